from __future__ import annotations

import msgpack
import pytest

from probe.store.container import (
    MARKER,
    TRAILER_SIZE,
    Damage,
    Read,
    encode,
    encode_trailer,
    read_frame,
    read_payload,
    read_trailer,
    scan,
)


def reads(data: bytes) -> Read:
    return lambda offset, length: data[offset : offset + length]


def kinds(data: bytes) -> list[str]:
    return ["!" if isinstance(each, Damage) else each[0].kind for each in scan(reads(data), len(data))]


def test_a_file_is_a_stream_of_msgpack_objects() -> None:
    data = encode("one", b"abc") + encode("two", b"") + encode_trailer(0, 99)
    unpacker = msgpack.Unpacker(raw=False)
    unpacker.feed(data)
    assert [each[:2] for each in unpacker] == [["flipscope", "one"], ["flipscope", "two"], ["flipscope", "end"]]


def test_a_frame_comes_back() -> None:
    data = b"junk" + encode("prompt", b"payload")
    frame = read_frame(reads(data), 4, len(data))
    assert (frame.kind, frame.offset, frame.stop) == ("prompt", 4, len(data))
    assert read_payload(reads(data), frame) == b"payload"


def test_a_flipped_bit_anywhere_loses_one_record_only() -> None:
    parts = [encode("one", b"first"), encode("two", b"second"), encode("three", b"third")]
    data = b"".join(parts)
    begin, stop = len(parts[0]), len(parts[0]) + len(parts[1])
    for bit in range(begin * 8, stop * 8):
        broken = bytearray(data)
        broken[bit // 8] ^= 1 << bit % 8
        assert kinds(bytes(broken)) == ["one", "!", "three"]


def test_a_torn_tail_is_told_from_a_fault_inside() -> None:
    data = encode("one", b"first") + encode("two", b"second")
    (found,) = [each for each in scan(reads(data[:-1]), len(data) - 1) if isinstance(each, Damage)]
    assert found.tail and found.frame is not None and found.frame.kind == "two"
    assert "of which 5 are in the file" in found.reason
    inside = b"garbage" + data
    (found,) = [each for each in scan(reads(inside), len(inside)) if isinstance(each, Damage)]
    assert not found.tail and found.stop == 7


def test_a_length_beyond_the_file_or_the_limit_is_refused_before_reading() -> None:
    asked: list[int] = []
    data = bytearray(encode("one", b"first"))
    data[-9:-5] = b"\x07\xff\xff\xff"

    def read(offset: int, length: int) -> bytes:
        asked.append(length)
        return bytes(data[offset : offset + length])

    with pytest.raises(ValueError, match="of which 5"):
        read_frame(read, 0, len(data))
    data[-9:-5] = b"\xff\xff\xff\xff"
    with pytest.raises(ValueError, match="beyond the limit"):
        read_frame(read, 0, 1 << 40)
    assert max(asked) < 100


def test_a_file_of_false_starts_ends_soon() -> None:
    start = MARKER + b"\xa1x\xce\0\0\0\0\xc6\0\x01\0\0"
    found = list(scan(reads(start * 20_000), len(start) * 20_000))
    assert len(found) == 1 and isinstance(found[0], Damage)


def test_the_trailer_is_of_fixed_size_and_knows_its_place() -> None:
    first = encode("index", b"abc")
    data = first + encode_trailer(0, len(first))
    assert len(data) - len(first) == TRAILER_SIZE
    assert read_trailer(reads(data), len(data)) == 0
    assert read_trailer(reads(b"x" + data), len(data) + 1) is None
    assert read_trailer(reads(data), len(data) - 1) is None
    assert read_trailer(reads(b""), 0) is None
