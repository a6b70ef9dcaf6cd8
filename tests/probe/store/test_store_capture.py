from __future__ import annotations

import os
import threading
from functools import lru_cache
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from store_samples import PIECES, a_header, a_record, a_stream, write_capture

from probe.errors import CaptureConflictError, CaptureFormatError, FlipscopeError
from probe.records import Piece, PromptRecord, Range
from probe.store.container import encode, encode_trailer
from probe.store.reader import Capture
from probe.store.schema import PromptFields, parse, read_prompt, write_prompt
from probe.store.writer import CaptureWriter
from probe.stream import TokenStream


def same(one: PromptRecord, other: PromptRecord) -> bool:
    fields = [each for each in PromptRecord.__slots__ if each not in ("forced", "generated")]
    streams = ((one.forced, other.forced), (one.generated, other.generated))
    return all(getattr(one, each) == getattr(other, each) for each in fields) and all(
        a is b is None or (a is not None and b is not None and a.equals(b)) for a, b in streams
    )


def test_what_was_written_is_read(tmp_path: Path) -> None:
    with Capture.open(write_capture(tmp_path / "f32.msgpack")) as capture:
        assert capture.complete and capture.damage == ()
        assert capture.header == a_header()
        assert capture.prompt_ids == ("prompt-0", "prompt-1", "prompt-2")
        for index in range(3):
            assert same(capture.record(f"prompt-{index}"), a_record(index))
        summary = capture.summary("prompt-1")
        assert (summary.positions, summary.generated, summary.prompt_length, summary.failure) == (12, 7, 6, "")
        for token_id in capture.vocabulary.ids().tolist():
            assert capture.vocabulary.piece(token_id) == PIECES[token_id]


@settings(max_examples=60)
@given(st.data())
def test_any_stream_comes_back_bit_by_bit(data: st.DataObject) -> None:
    n, k = data.draw(st.integers(0, 12)), data.draw(st.integers(0, 6))
    bits = st.integers(0, 2**32 - 1)
    ids = data.draw(hnp.arrays(np.int32, n, elements=st.integers(0, 2**24 - 1)))
    top_ids = data.draw(hnp.arrays(np.int32, (n, k), elements=st.integers(0, 2**24 - 1)))
    floats: NDArray[np.float32] = data.draw(hnp.arrays(np.uint32, (n, k), elements=bits)).view(np.float32)
    actual = data.draw(hnp.arrays(np.uint32, n, elements=bits)).view(np.float32)
    rank = data.draw(hnp.arrays(np.int32, n, elements=st.integers(0, 2**31 - 1)))
    stream = TokenStream("forced", 0, ids, actual, rank, top_ids, floats)
    record = PromptRecord("p", "", 0, n, forced=stream)
    assert same(read_prompt(parse(write_prompt(record), PromptFields, "p"), "p"), record)


def test_an_unfinished_file_opens_with_all_it_holds_and_its_vocabulary(tmp_path: Path) -> None:
    whole = write_capture(tmp_path / "a.msgpack")
    part = write_capture(tmp_path / "b.msgpack", finish=False)
    with Capture.open(whole) as one, Capture.open(part) as other:
        assert not other.complete and other.damage == ()
        assert other.prompt_ids == one.prompt_ids
        assert [other.summary(each) for each in other.prompt_ids] == [one.summary(each) for each in one.prompt_ids]
        assert other.digest() == one.digest()
        assert len(other.vocabulary) == len(one.vocabulary) > 50


def test_the_digest_sees_every_bit_and_no_time(tmp_path: Path) -> None:
    base = a_record(0)
    assert base.forced is not None
    logprobs = base.forced.top_logprobs.copy()
    logprobs.view(np.int32)[3, 2] ^= 1
    stream = base.forced
    bent = TokenStream("forced", 0, stream.ids, stream.logprob, stream.rank, stream.top_ids, logprobs)
    later = msgspec.structs.replace(base.timing, score_s=99.0)

    def digest(name: str, record: PromptRecord, pieces: dict[int, Piece]) -> str:
        with CaptureWriter.create(tmp_path / name, a_header()) as writer:
            writer.append(record, pieces)
        with Capture.open(tmp_path / name) as capture:
            return capture.digest()

    def replaced(**changes: object) -> PromptRecord:
        values = {each: getattr(base, each) for each in PromptRecord.__slots__} | changes
        return PromptRecord(**values)

    first = digest("0", base, PIECES)
    assert digest("1", replaced(timing=later, evidence={}), PIECES) == first
    assert digest("2", replaced(forced=bent), PIECES) != first
    assert digest("3", replaced(category="code"), PIECES) != first
    assert digest("4", base, PIECES | {int(stream.ids[0]): Piece(b"other")}) != first


def test_cut_at_every_length_it_opens_to_a_prefix_and_resumes_to_the_same_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The same two records are appended thousands of times: compress them once.
    monkeypatch.setattr("probe.store.writer.write_prompt", lru_cache(write_prompt))
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    records = [a_record(index, 8) for index in range(2)]
    header = a_header(count=2)

    def fill(writer: CaptureWriter) -> None:
        for record in records:
            if record.prompt_id not in writer.done:
                writer.append(record, PIECES)

    whole, path = tmp_path / "whole.msgpack", tmp_path / "cut.msgpack"
    with CaptureWriter.create(whole, header) as writer:
        fill(writer)
        writer.finish()
    data = whole.read_bytes()
    with Capture.open(whole) as capture:
        digest = capture.digest()
    seen = set()
    results: set[bytes] = set()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        done: tuple[str, ...] = ()
        try:
            with Capture.open(path) as capture:
                done = capture.prompt_ids
                assert done == ("prompt-0", "prompt-1")[: len(done)]
                assert not capture.complete
                seen.add((len(done), bool(capture.damage)))
        except CaptureFormatError as error:
            assert "header at byte 0" in error.detail
        with CaptureWriter.resume(path, header) as writer:
            assert writer.done == set(done)
            fill(writer)
            writer.finish()
        if (again := path.read_bytes()) not in results:  # almost always the undisturbed file, byte by byte
            results.add(again)
            with Capture.open(path) as capture:
                assert capture.complete and capture.damage == () and capture.digest() == digest
    assert len(results) < 10
    assert seen == {(count, torn) for count in range(3) for torn in (False, True)}


def test_a_corrupted_record_names_itself_and_the_rest_opens(tmp_path: Path) -> None:
    path = write_capture(tmp_path / "a.msgpack")
    with Capture.open(path) as capture:
        place = capture.summary("prompt-1")
    data = bytearray(path.read_bytes())
    data[place.offset + place.length - 9] ^= 4
    path.write_bytes(data)
    with Capture.open(path) as capture:  # by the index: nobody has looked at the record yet
        assert same(capture.record("prompt-2"), a_record(2))
        with pytest.raises(CaptureFormatError, match=rf"prompt-1.*byte {place.offset}.*checksum"):
            capture.record("prompt-1")
    path.write_bytes(data[:-1])
    with Capture.open(path) as capture:  # by walking
        assert capture.prompt_ids == ("prompt-0", "prompt-2")
        assert f"prompt record 'prompt-1' at byte {place.offset}: checksum mismatch" in capture.damage[0]
    with CaptureWriter.resume(path, a_header()) as writer:
        assert writer.done == {"prompt-0", "prompt-2"}
        writer.append(a_record(1), PIECES)
        writer.finish()
    with Capture.open(path) as capture, Capture.open(write_capture(tmp_path / "b.msgpack")) as fresh:
        assert capture.complete and capture.digest() == fresh.digest()


def test_a_corrupted_vocabulary_record_costs_its_pieces_until_resumed(tmp_path: Path) -> None:
    path = write_capture(tmp_path / "a.msgpack", finish=False)
    data = bytearray(path.read_bytes())
    data[data.index(b"vocabulary") + 40] ^= 1
    path.write_bytes(data)
    with Capture.open(path) as capture:
        assert "'vocabulary' record" in capture.damage[0]
        missing = int(a_stream(0, 12).ids[0])
        assert capture.vocabulary.piece(missing) == Piece(b"", exact=False)
    with CaptureWriter.resume(path, a_header()) as writer:
        writer.append(a_record(0), PIECES)
    with Capture.open(path) as capture:
        assert capture.vocabulary.piece(missing) == PIECES[missing]


def test_a_corrupted_header_is_taken_from_the_index(tmp_path: Path) -> None:
    path = write_capture(tmp_path / "a.msgpack")
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)
    with Capture.open(path) as capture:
        assert capture.header == a_header() and "copy in the index" in capture.damage[0]
    with pytest.raises(CaptureFormatError):
        CaptureWriter.resume(path, a_header())
    assert path.read_bytes() == data


def test_opening_by_the_index_reads_no_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_capture(tmp_path / "a.msgpack", 20)
    with Capture.open(path) as capture:
        places = [capture.summary(each) for each in capture.prompt_ids]
    touched: list[tuple[int, int]] = []
    real = os.pread

    def pread(descriptor: int, length: int, offset: int) -> bytes:
        touched.append((offset, length))
        return real(descriptor, length, offset)

    monkeypatch.setattr(os, "pread", pread)
    Capture.open(path).close()
    for place in places[1:]:
        assert not any(
            offset < place.offset + place.length and offset + length > place.offset for offset, length in touched
        )


def test_a_later_record_replaces_an_earlier_one_and_a_failure_is_not_done(tmp_path: Path) -> None:
    path = tmp_path / "a.msgpack"
    with CaptureWriter.create(path, a_header()) as writer:
        writer.append(a_record(0, failure="server died"), {})
        writer.append(a_record(1), PIECES)
        assert writer.done == {"prompt-1"}
        writer.finish()
    with Capture.open(path) as capture:
        assert capture.summary("prompt-0").failure == "server died"
    with CaptureWriter.resume(path, a_header()) as writer:
        assert writer.done == {"prompt-1"}
        writer.append(a_record(0), PIECES)
        assert writer.done == {"prompt-0", "prompt-1"}
    with Capture.open(path) as capture:
        assert not capture.complete and capture.record("prompt-0").failure == ""
        assert capture.damage == ()
    with CaptureWriter.resume(path, a_header()) as writer:
        writer.finish()
    size = path.stat().st_size
    with CaptureWriter.resume(path, a_header()) as writer:
        writer.finish()
    assert path.stat().st_size == size
    with Capture.open(path) as capture:
        assert capture.complete and capture.prompt_ids == ("prompt-0", "prompt-1")


def test_prompts_in_any_order_leave_the_same_digest(tmp_path: Path) -> None:
    words = {each: Piece(b"\xef\xbf\xbd", exact=False) for each in PIECES}
    digests = set()
    for order in ((0, 1, 2), (2, 0, 1)):
        path = tmp_path / "-".join(map(str, order))
        with CaptureWriter.create(path, a_header()) as writer:
            for index in order:
                writer.append(a_record(index), words if index == 1 else PIECES)
        with Capture.open(path) as capture:
            digests.add(capture.digest())
            assert capture.prompt_ids == ("prompt-0", "prompt-1", "prompt-2")
    assert len(digests) == 1


def test_resuming_under_other_conditions_names_both_values(tmp_path: Path) -> None:
    path = write_capture(tmp_path / "a.msgpack", finish=False)
    other = a_header(label="bf16", fingerprint="vllm-0.32.0-05252756")
    with pytest.raises(CaptureConflictError) as caught:
        CaptureWriter.resume(path, other)
    assert "label was 'f32', is now 'bf16'" in caught.value.detail
    assert "vllm-0.32.0-69a31f44" in caught.value.detail and "vllm-0.32.0-05252756" in caught.value.detail


def test_two_writers_are_kept_apart(tmp_path: Path) -> None:
    with CaptureWriter.create(tmp_path / "a.msgpack", a_header()):
        with pytest.raises(CaptureConflictError, match="written by another"):
            CaptureWriter.resume(tmp_path / "a.msgpack", a_header())
        with pytest.raises(CaptureConflictError, match="exists"):
            CaptureWriter.create(tmp_path / "a.msgpack", a_header())
    CaptureWriter.resume(tmp_path / "a.msgpack", a_header()).close()


@pytest.mark.parametrize("call", ["pwrite", "fsync"])
def test_a_full_disk_leaves_a_valid_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    path = tmp_path / "a.msgpack"
    real = os.pwrite

    def full(descriptor: int, *rest: object) -> int:
        if call == "pwrite" and isinstance(rest[0], memoryview) and len(rest[0]) > 100:
            return real(descriptor, rest[0][:100], int(str(rest[1])))
        raise OSError(28, "No space left on device")

    with CaptureWriter.create(path, a_header()) as writer:
        writer.append(a_record(0), PIECES)
        before = path.read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(os, call, full)
            with pytest.raises(FlipscopeError, match=r"a\.msgpack: No space left") as caught:
                writer.append(a_record(1), PIECES)
            assert caught.value.hint
        assert path.read_bytes() == before and writer.done == {"prompt-0"}
        writer.append(a_record(1), PIECES)
        writer.finish()
    with Capture.open(path) as capture:
        assert capture.damage == () and same(capture.record("prompt-1"), a_record(1))


def test_a_file_of_another_kind_is_never_touched(tmp_path: Path) -> None:
    for data in (b"precious notes", b"\x94\xa9flipscope" + b"but something else"):
        path = tmp_path / "notes"
        path.write_bytes(data)
        with pytest.raises(CaptureFormatError):
            Capture.open(path)
        with pytest.raises(CaptureFormatError):
            CaptureWriter.resume(path, a_header())
        assert path.read_bytes() == data
    os.mkfifo(tmp_path / "pipe")
    for other in (tmp_path, tmp_path / "pipe", tmp_path / "none", Path("nul\0byte")):
        with pytest.raises(CaptureFormatError):
            Capture.open(other)


def test_a_newer_format_is_refused_with_both_versions(tmp_path: Path) -> None:
    header = msgspec.structs.replace(a_header(), format=99)
    with pytest.raises(CaptureFormatError, match="format 99.*format 1") as caught:
        Capture.open(write_capture(tmp_path / "a.msgpack", header=header))
    assert caught.value.hint == "Update flipscope."


def test_unknown_kinds_are_kept_and_skipped(tmp_path: Path) -> None:
    path = write_capture(tmp_path / "a.msgpack", finish=False)
    offset = path.stat().st_size
    with path.open("ab") as file:
        file.write(encode("branch", b"\x80"))
    with CaptureWriter.resume(path, a_header()) as writer:
        writer.append(a_record(3), PIECES)
        writer.finish()
    with Capture.open(path) as capture:
        assert capture.complete and capture.damage == ()
        assert capture.others() == {"branch": (offset,)}
        assert len(capture.prompt_ids) == 4


def test_a_broken_index_falls_back_to_walking(tmp_path: Path) -> None:
    path = write_capture(tmp_path / "a.msgpack", finish=False)
    at = path.stat().st_size
    index = encode("index", b"\x81\xa3ids\x01")
    with path.open("ab") as file:
        file.write(index + encode_trailer(at, at + len(index)))
    with Capture.open(path) as capture:
        assert not capture.complete and "index at byte" in capture.damage[0]
        assert len(capture.prompt_ids) == 3


def test_a_file_cut_while_open_gives_a_named_error(tmp_path: Path) -> None:
    path = write_capture(tmp_path / "a.msgpack")
    with Capture.open(path) as capture:
        os.truncate(path, 2000)
        with pytest.raises(CaptureFormatError, match="prompt-2"):
            capture.record("prompt-2")
    with pytest.raises(CaptureFormatError, match="closed"):
        capture.record("prompt-2")


def test_records_that_contradict_themselves_are_refused_at_both_ends() -> None:
    for name, complaint, changes in (
        ("ranges", "outside a text of 12", {"ranges": (Range(0, 13, "x"),)}),
        ("output", "outside a text of 12", {"output": ((5, 4),)}),
        ("prompt_length", "expected 13", {"prompt_length": 13}),
        ("id", "1 to 512", {"prompt_id": ""}),
        ("index", "out of bounds", {"index": -1}),
        ("generated", "forced.kind", {"forced": a_stream(1, 12, "generated")}),
        ("ids", "-5…", {"forced": _with_id(-5)}),
        ("ids", f"{1 << 24}", {"forced": _with_id(1 << 24)}),
    ):
        base = a_record(0)
        values = {each: getattr(base, each) for each in PromptRecord.__slots__} | changes
        with pytest.raises(CaptureFormatError, match=complaint):
            write_prompt(PromptRecord(**values))
            pytest.fail(name)


def _with_id(token_id: int) -> TokenStream:
    stream = a_stream(1, 12)
    ids = stream.ids.copy()
    ids[5] = token_id
    return TokenStream("forced", 0, ids, stream.logprob, stream.rank, stream.top_ids, stream.top_logprobs)


def test_threads_share_a_capture_and_the_cache_is_bounded(tmp_path: Path) -> None:
    path = write_capture(tmp_path / "a.msgpack", 12)
    with Capture.open(path, cache_bytes=8000) as capture:
        wrong: list[str] = []

        def look(seed: int) -> None:
            for index in np.random.default_rng(seed).integers(0, 12, 60).tolist():
                if not same(capture.record(f"prompt-{index}"), a_record(index)):
                    wrong.append(f"prompt-{index}")

        threads = [threading.Thread(target=look, args=(seed,)) for seed in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert not wrong
        assert 1 <= len(capture._cache) <= 6
        forced = capture.record("prompt-1").forced
        assert forced is not None and not forced.top_logprobs.flags.writeable
