"""The frame around every record, and the walk over a file of them that survives torn and corrupted ones."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from probe.store.limits import MAX_PAYLOAD, MAX_RECORDS

MARKER: Final = b"\x94\xa9flipscope"
"""How every record starts: a msgpack array of four whose first element is the string `flipscope`."""
MAX_KIND: Final = 31
"""Bytes of a kind: a msgpack fixstr."""
TRAILER_SIZE: Final = len(MARKER) + 4 + 5 + 5 + 19
"""Bytes of the `end` record, always the last ones of a finished file."""

_CHUNK = 1 << 16

Read = Callable[[int, int], bytes]
"""Reads up to `length` bytes at `offset` of a file; fewer at its end."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Where a record lies.

    Attributes:
        kind: What the record is; readers skip kinds they do not know.
        offset: First byte of the record in the file.
        begin: First byte of its payload.
        length: Bytes of its payload.
        crc: CRC32 over kind and payload, as the file states it.
    """

    kind: str
    offset: int
    begin: int
    length: int
    crc: int

    @property
    def stop(self) -> int:
        """Byte right after the record."""
        return self.begin + self.length


@dataclass(frozen=True, slots=True)
class Damage:
    """A part of a file that holds no valid record.

    Attributes:
        offset: Its first byte.
        stop: Byte right after it.
        reason: What is wrong with it.
        frame: The record that seems to start there; None when not even that can be read.
        tail: Whether the file ends inside it.
    """

    offset: int
    stop: int
    reason: str
    frame: Frame | None
    tail: bool


class FrameError(ValueError):
    """No complete record starts at an offset.

    Attributes:
        frame: What its head claims, when the head is whole.
    """

    def __init__(self, reason: str, frame: Frame | None = None) -> None:
        super().__init__(reason)
        self.frame = frame


def encode(kind: str, payload: bytes) -> bytes:
    """A payload in its frame: `["flipscope", kind, crc32, payload]`, with fixed-width crc and length.

    Raises:
        ValueError: When the payload is larger than readers accept.
    """
    if len(payload) > MAX_PAYLOAD:
        raise ValueError(f"a {kind} record of {len(payload)} bytes is beyond the limit of {MAX_PAYLOAD}")
    name = kind.encode()
    crc = zlib.crc32(payload, zlib.crc32(name))
    return b"".join(
        (
            MARKER,
            bytes([0xA0 | len(name)]),
            name,
            b"\xce" + crc.to_bytes(4, "big"),
            b"\xc6" + len(payload).to_bytes(4, "big"),
            payload,
        )
    )


def encode_trailer(index_offset: int, offset: int) -> bytes:
    """The `end` record that will stand at `offset` and points to the index.

    It holds its own offset as well, so that a file pasted behind another is not taken for a finished one.
    """
    payload = b"\x92\xcf" + index_offset.to_bytes(8, "big") + b"\xcf" + offset.to_bytes(8, "big")
    return encode("end", payload)


def read_trailer(read: Read, size: int) -> int | None:
    """Where the index of a finished file starts; None when the file does not end with a valid trailer."""
    offset = size - TRAILER_SIZE
    if offset < 0:
        return None
    try:
        frame = read_frame(read, offset, size)
        if frame.kind != "end" or frame.stop != size:
            return None
        payload = read_payload(read, frame)
    except ValueError:
        return None
    if payload[:2] != b"\x92\xcf" or payload[10:11] != b"\xcf" or int.from_bytes(payload[11:19], "big") != offset:
        return None
    index_offset = int.from_bytes(payload[2:10], "big")
    return index_offset if index_offset < offset else None


def read_frame(read: Read, offset: int, size: int) -> Frame:
    """Read the frame at `offset` without its payload.

    Args:
        read: Reads the file.
        offset: Where the record starts.
        size: Bytes of the file; a length that reaches beyond is refused before anything is read.

    Raises:
        FrameError: When no complete record starts there.
    """
    head = read(offset, len(MARKER) + 1 + MAX_KIND + 10)
    if not head.startswith(MARKER):
        raise FrameError("cut in its frame" if MARKER.startswith(head) else "no record starts here")
    if len(head) < len(MARKER) + 11:
        raise FrameError("cut in its frame")
    named = head[len(MARKER)]
    if named & 0xE0 != 0xA0:
        raise FrameError("its kind is no short string")
    at = len(MARKER) + 1 + (named & 0x1F)
    name = head[len(MARKER) + 1 : at]
    numbers = head[at : at + 10]
    if len(numbers) < 10:
        raise FrameError("cut in its frame")
    if numbers[0] != 0xCE or numbers[5] != 0xC6:
        raise FrameError("its checksum or length is no number of the fixed width")
    try:
        kind = name.decode("ascii")
    except UnicodeDecodeError as error:
        raise FrameError("its kind is no ASCII") from error
    frame = Frame(
        kind=kind,
        offset=offset,
        begin=offset + at + 10,
        length=int.from_bytes(numbers[6:10], "big"),
        crc=int.from_bytes(numbers[1:5], "big"),
    )
    if frame.length > MAX_PAYLOAD:
        raise FrameError(f"it claims {frame.length} bytes, beyond the limit of {MAX_PAYLOAD}", frame)
    if frame.stop > size:
        raise FrameError(
            f"it claims {frame.length} bytes, of which {max(size - frame.begin, 0)} are in the file", frame
        )
    return frame


def read_payload(read: Read, frame: Frame) -> bytes:
    """Read a record's payload and check it.

    Raises:
        ValueError: When bytes are missing or the checksum does not match.
    """
    payload = read(frame.begin, frame.length)
    if len(payload) != frame.length:
        raise ValueError("the file became shorter while it was open")
    if zlib.crc32(payload, zlib.crc32(frame.kind.encode())) != frame.crc:
        raise ValueError("checksum mismatch")
    return payload


def scan(read: Read, size: int) -> Iterator[tuple[Frame, bytes] | Damage]:
    """Walk all records from the first byte on; what is no valid record comes out as `Damage` and is stepped over.

    After a fault the walk goes on at the next marker that starts a record with a valid checksum. Candidates that fail
    may cost reads of four times the file in all, so a file made of markers cannot stall a reader.
    """
    offset = 0
    budget = 4 * size + (16 << 20)
    for _ in range(MAX_RECORDS):
        if offset >= size:
            return
        fault: Damage | None = None
        where = offset
        while True:
            frame: Frame | None = None
            try:
                frame = read_frame(read, where, size)
                found = frame, read_payload(read, frame)
                break
            except ValueError as error:
                budget -= _CHUNK if frame is None else _CHUNK + frame.length
                if fault is None:
                    seen = error.frame if isinstance(error, FrameError) else frame
                    fault = Damage(offset, size, str(error), seen, tail=True)
            if budget <= 0:
                yield Damage(offset, size, f"{fault.reason}; too many false starts behind it", fault.frame, tail=False)
                return
            where = _next_marker(read, where + 1, size)
            if where >= size:
                yield fault
                return
        if fault is not None:
            yield Damage(fault.offset, where, fault.reason, fault.frame, tail=False)
        yield found
        offset = found[0].stop
    if offset < size:
        yield Damage(offset, size, f"the file holds more than {MAX_RECORDS} records", None, tail=False)


def _next_marker(read: Read, offset: int, size: int) -> int:
    """Where the next marker at or after `offset` starts; `size` when there is none."""
    while offset < size:
        chunk = read(offset, _CHUNK)
        found = chunk.find(MARKER)
        if found >= 0:
            return offset + found
        if len(chunk) < _CHUNK:
            break
        offset += len(chunk) - len(MARKER) + 1
    return size
