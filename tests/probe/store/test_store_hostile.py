"""Mutated capture files end in a named error or in a correct partial result."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from store_samples import PIECES, a_header, a_record, write_capture

from probe.errors import FlipscopeError
from probe.store.arrays import EXT_ARRAY, pack
from probe.store.container import MARKER, Damage, encode, encode_trailer, scan
from probe.store.limits import MAX_PIECE_BYTES, MAX_RECORDS
from probe.store.plain import dumps
from probe.store.reader import Capture
from probe.store.writer import CaptureWriter

Random = np.random.Generator
ODD: tuple[Any, ...] = (
    -1,
    2**31,
    2**63,
    1.5,
    float("nan"),
    True,
    None,
    "",
    "x" * 70_000,
    "../../etc/passwd\x1b[2J",
    b"bytes",
    [],
    {},
    [[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]],
    msgpack.ExtType(EXT_ARRAY, b"\x94\xa3<i4\x91\xce\xff\xff\xff\xff\xa6planes\xc4\x00"),
    msgpack.ExtType(EXT_ARRAY, b"\x94\xa3<i4\x92\x02\x03\xa3raw\xc4\x18" + b"\xff" * 24),
    msgpack.ExtType(77, b"?"),
)


def flip_bits(data: bytes, random: Random) -> bytes:
    out = bytearray(data)
    for at in random.integers(0, len(out), random.integers(1, 8)).tolist():
        out[at] ^= 1 << int(random.integers(8))
    return bytes(out)


def cut(data: bytes, random: Random) -> bytes:
    return data[: int(random.integers(len(data)))]


def splice(data: bytes, random: Random) -> bytes:
    begin, stop, at = sorted(random.integers(0, len(data), 2).tolist()) + [int(random.integers(len(data)))]
    return data[:at] + data[begin:stop] + data[at + int(random.integers(200)) :]


def swap_lengths(data: bytes, random: Random) -> bytes:
    out = bytearray(data)
    starts = [at for at in range(len(data)) if data.startswith(MARKER, at)]
    fields = [at + len(MARKER) + 1 + (data[at + len(MARKER)] & 0x1F) + 6 for at in starts]
    one, other = random.choice(fields, 2).tolist()
    out[one : one + 4], out[other : other + 4] = data[other : other + 4], data[one : one + 4]
    if random.random() < 0.3:
        out[one : one + 4] = random.bytes(4)
    return bytes(out)


def edit_payload(data: bytes, random: Random) -> bytes:
    """Flip bits inside one payload and make its checksum right again."""
    return _rewrite(data, random, lambda payload: flip_bits(payload, random) if payload else b"\xc1")


def edit_value(data: bytes, random: Random) -> bytes:
    """Put something odd in place of one value of one record, checksum right."""
    return _rewrite(data, random, lambda payload: msgpack.packb(_odd(msgpack.unpackb(payload), random)))


def _rewrite(data: bytes, random: Random, change: Callable[[bytes], bytes]) -> bytes:
    read = lambda offset, length: data[offset : offset + length]  # noqa: E731
    records = [each for each in scan(read, len(data)) if not isinstance(each, Damage)]
    chosen = int(random.integers(len(records)))
    out, at = b"", 0
    for row, (frame, payload) in enumerate(records):
        if frame.kind == "index":
            at = len(out)
        new = encode(frame.kind, change(payload) if row == chosen else payload)
        out += encode_trailer(at, len(out)) if frame.kind == "end" and row != chosen else new
    return out


def _odd(value: Any, random: Random) -> Any:
    """One value somewhere inside replaced; arrays are opened as well."""
    if isinstance(value, dict) and value and random.random() < 0.97:
        key = list(value)[int(random.integers(len(value)))]
        return value | {key: _odd(value[key], random)}
    if isinstance(value, list) and value and random.random() < 0.9:
        at = int(random.integers(len(value)))
        return [*value[:at], _odd(value[at], random), *value[at + 1 :]]
    if isinstance(value, msgpack.ExtType) and random.random() < 0.8:
        return msgpack.ExtType(value.code, msgpack.packb(_odd(msgpack.unpackb(value.data), random)))
    if isinstance(value, bytes) and value and random.random() < 0.5:
        return flip_bits(value, random)
    if isinstance(value, int) and random.random() < 0.5:
        return value + int(random.integers(-3, 4))
    return ODD[int(random.integers(len(ODD)))]


MUTATIONS = (flip_bits, cut, splice, swap_lengths, edit_payload, edit_value, edit_value)


def look_at_everything(path: Path) -> str:
    """Open and decode all there is; what came out, in a word."""
    outcome = "read"
    try:
        with Capture.open(path) as capture:
            for prompt_id in capture.prompt_ids:
                capture.summary(prompt_id)
                try:
                    record = capture.record(prompt_id)
                except FlipscopeError as error:
                    assert error.detail and str(path) in error.detail
                    outcome = "named"
                else:
                    assert record.prompt_id == prompt_id
            for token_id in capture.vocabulary.ids().tolist():
                capture.vocabulary.piece(token_id)
            assert all("\x1b" not in each for each in capture.damage)
            if outcome == "read":
                capture.digest()
            return "partial" if capture.damage and outcome == "read" else outcome
    except FlipscopeError as error:
        assert error.detail and str(path) in error.detail
        return "refused"


def test_a_thousand_mutated_files(tmp_path: Path) -> None:
    whole = write_capture(tmp_path / "whole.msgpack").read_bytes()
    open_ended = write_capture(tmp_path / "open.msgpack", finish=False).read_bytes()
    path = tmp_path / "mutant.msgpack"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcomes: dict[str, int] = {}
    for seed in range(1000):
        random = np.random.default_rng(seed)
        mutate = MUTATIONS[seed % len(MUTATIONS)]
        path.write_bytes(mutate(open_ended if seed % 3 == 0 else whole, random))
        started = time.monotonic()
        outcome = look_at_everything(path)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        if seed % 4 == 0:
            _continue(path)
        assert time.monotonic() - started < 10, f"seed {seed} took too long"
    assert min(outcomes.get(each, 0) for each in ("read", "partial", "named", "refused")) > 20, outcomes
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kb < 200_000, f"{grown_kb} kB"


def _continue(path: Path) -> None:
    """What a writer takes over must be a file that opens again and holds what was appended."""
    before = path.read_bytes()
    try:
        writer = CaptureWriter.resume(path, a_header())
    except FlipscopeError as error:
        assert str(path) in error.detail
        assert path.read_bytes() == before
        return
    with writer:
        writer.append(a_record(7), PIECES)
        writer.finish()
    with Capture.open(path) as capture:
        assert capture.complete
        forced, expected = capture.record("prompt-7").forced, a_record(7).forced
        assert forced is not None and expected is not None and forced.equals(expected)


@pytest.mark.parametrize(
    "tail",
    [
        pytest.param(b"\0" * 5000, id="zeros"),
        pytest.param(b"\xff" * 5000, id="ones"),
        pytest.param(MARKER * 100, id="markers"),
        pytest.param(b"\x94\xa9flipscope\xa6prompt\xce", id="frame"),
    ],
)
def test_whatever_follows_is_dropped(tmp_path: Path, tail: bytes) -> None:
    path = write_capture(tmp_path / "a.msgpack", finish=False)
    data = path.read_bytes()
    path.write_bytes(data + tail)
    with Capture.open(path) as capture:
        assert len(capture.prompt_ids) == 3 and len(capture.damage) == 1
    CaptureWriter.resume(path, a_header()).close()
    assert path.read_bytes() == data


def test_records_pasted_from_another_capture_are_judged_one_by_one(tmp_path: Path) -> None:
    path = write_capture(tmp_path / "a.msgpack", 2)
    other = write_capture(tmp_path / "b.msgpack", 4).read_bytes()
    path.write_bytes(path.read_bytes() + other)
    with Capture.open(path) as capture:  # the trailer knows its own place and does not match
        assert not capture.complete and len(capture.prompt_ids) == 4


def test_more_records_than_a_file_may_hold_are_left_unread_but_never_cut_off(tmp_path: Path) -> None:
    path = write_capture(tmp_path / "a.msgpack", finish=False)
    with path.open("ab") as file:
        file.write(encode("x", b"\x80") * (MAX_RECORDS + 1))
    data = path.read_bytes()
    with Capture.open(path) as capture:
        assert len(capture.prompt_ids) == 3 and "more than" in capture.damage[0]
    with pytest.raises(FlipscopeError, match="more than"):
        CaptureWriter.resume(path, a_header())
    assert path.read_bytes() == data


def test_a_vocabulary_beyond_its_bounds_is_left_out(tmp_path: Path) -> None:
    path = write_capture(tmp_path / "a.msgpack", finish=False)
    each, most = 300, MAX_PIECE_BYTES // 4 // 300  # four such records are the limit
    huge = pack(np.zeros(each * most, np.uint8)).ext()
    many = pack(np.arange(each, dtype=np.int32)).ext()
    lengths = pack(np.full(each, most, np.int32)).ext()
    flags = pack(np.zeros(each, np.uint8)).ext()
    bomb = dumps({"ids": many, "lengths": lengths, "flags": flags, "data": huge})
    with path.open("ab") as file:
        file.write(encode("vocabulary", bomb) * 2000)
    with Capture.open(path) as capture:
        assert len(capture.vocabulary.piece(1).data) == most
        assert "beyond the limit" in capture.damage[-1]
