"""Msgpack of untrusted bytes: measured before anything is built from it."""

from __future__ import annotations

from typing import Any

import msgpack

from probe.store.limits import MAX_DEPTH, MAX_OBJECTS

# First byte -> how many bytes of length follow, for the types whose size is not in the first byte itself.
_SIZED = {
    0xC4: 1, 0xC5: 2, 0xC6: 4,  # bin
    0xC7: 1, 0xC8: 2, 0xC9: 4,  # ext: one byte of type code more
    0xD9: 1, 0xDA: 2, 0xDB: 4,  # str
}  # fmt: skip
_FIXED = {
    0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8,
    0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8, 0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17,
}  # fmt: skip
_CONTAINERS = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}


def dumps(value: object) -> bytes:
    """Plain objects as msgpack."""
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed


def loads(data: bytes, *, max_objects: int = MAX_OBJECTS) -> Any:
    """Build plain objects from one msgpack object.

    Args:
        data: Exactly one object.
        max_objects: How many objects it may hold in all.

    Returns:
        dicts with string or integer keys, lists, str, bytes, numbers, None, and `msgpack.ExtType` undecoded.

    Raises:
        ValueError: When the bytes are no msgpack, are cut, nest too deeply or hold too many objects.
    """
    _measure(data, max_objects)
    try:
        return msgpack.unpackb(data, raw=False, strict_map_key=True)
    except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as error:
        raise ValueError(f"broken msgpack: {error or type(error).__name__}") from error


def _measure(data: bytes, max_objects: int) -> None:
    """Walk the type bytes only: no object is built before its count, depth and length are known to be bounded."""
    size = len(data)
    position = 0
    total = 1
    waiting = [1]
    while waiting:
        if not waiting[-1]:
            waiting.pop()
            continue
        waiting[-1] -= 1
        if position >= size:
            raise ValueError("broken msgpack: it ends too early")
        first = data[position]
        position += 1
        children = 0
        if first <= 0x7F or first >= 0xE0:
            continue
        if first <= 0x8F:
            children = 2 * (first & 0x0F)
        elif first <= 0x9F:
            children = first & 0x0F
        elif first <= 0xBF:
            position += first & 0x1F
        elif first in _FIXED:
            position += _FIXED[first]
        elif first in _SIZED:
            width = _SIZED[first]
            length = int.from_bytes(data[position : position + width], "big")
            position += width + length + (0xC7 <= first <= 0xC9)
        elif first in _CONTAINERS:
            width, each = _CONTAINERS[first]
            children = each * int.from_bytes(data[position : position + width], "big")
            position += width
        else:
            raise ValueError(f"broken msgpack: byte 0x{first:02x} starts no object")
        if position > size:
            raise ValueError("broken msgpack: it ends too early")
        if children:
            total += children
            if total > max_objects:
                raise ValueError(f"more than {max_objects} msgpack objects in one record")
            if len(waiting) >= MAX_DEPTH:
                raise ValueError(f"msgpack nested deeper than {MAX_DEPTH} levels")
            waiting.append(children)
    if position != size:
        raise ValueError(f"broken msgpack: {size - position} bytes follow the object")
