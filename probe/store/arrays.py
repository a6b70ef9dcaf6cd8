"""Arrays inside records: a msgpack ext type of dtype, shape, codec and bytes, little-endian, sizes checked first."""

from __future__ import annotations

import lzma
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import zstandard
from msgpack import ExtType
from numpy.typing import NDArray

from probe.store import lattice
from probe.store.limits import MAX_ELEMENTS
from probe.store.plain import dumps, loads

EXT_ARRAY: Final = 1
"""Msgpack ext type code of an array."""

_DTYPES: Final = {code: np.dtype(code) for code in ("|u1", "<i2", "<i4", "<u4", "<f4", "<i8")}
_LEVEL: Final = 19
_WINDOW: Final = 1 << 27  # what zstd level 19 may ask for at most
_OWN: Final = threading.local()  # a decompressor serves one thread; making one costs more than a small array
# Bytes up to which a codec is not tried: an lzma encoder clears 11 MB of tables (2 ms) to save nothing.
_TINY: Final = {"lzma": 512}
# 2^20: a prompt of 26,000 positions at top-20 and two bytes; what a decoder allocates besides its output.
_LZMA: Final[list[dict[str, Any]]] = [
    {"id": lzma.FILTER_LZMA2, "preset": 6, "lc": 0, "lp": 1, "pb": 1, "dict_size": 1 << 20}
]


@dataclass(frozen=True, slots=True)
class PackedArray:
    """An array as it stands in a file: checked for shape, not yet decompressed.

    Attributes:
        dtype: numpy's little-endian name, such as `<f4`.
        shape: Its dimensions, at most two.
        codec: How `parts` hold the elements.
        parts: What the codec stored.
    """

    dtype: str
    shape: tuple[int, ...]
    codec: str
    parts: tuple[bytes, ...]

    @classmethod
    def parse(cls, data: bytes) -> PackedArray:
        """Read the ext type's data.

        Raises:
            ValueError: When it is no array of a known dtype and a bounded shape.
        """
        fields = loads(data, max_objects=16)
        if not isinstance(fields, list) or len(fields) < 4:
            raise ValueError("an array is not [dtype, shape, codec, bytes, …]")
        dtype, shape, codec, *parts = fields
        if not isinstance(dtype, str) or dtype not in _DTYPES:
            raise ValueError(f"an array of unknown dtype {dtype!r:.40}")
        if not isinstance(shape, list) or not 1 <= len(shape) <= 2:
            raise ValueError("an array's shape is not a list of one or two dimensions")
        if not all(type(size) is int and 0 <= size <= MAX_ELEMENTS for size in shape):
            raise ValueError(f"an array's shape {shape!r:.80} is out of bounds")
        if math.prod(shape) > MAX_ELEMENTS:
            raise ValueError(f"an array of shape {shape} is beyond the limit of {MAX_ELEMENTS} elements")
        if not isinstance(codec, str) or codec not in _CODECS:
            raise ValueError(f"an array in unknown codec {codec!r:.40}")
        if not all(isinstance(part, bytes) for part in parts):
            raise ValueError("an array's parts are not bytes")
        return cls(dtype, tuple(shape), codec, tuple(parts))

    def ext(self) -> ExtType:
        """This array as a msgpack ext type."""
        return ExtType(EXT_ARRAY, dumps([self.dtype, list(self.shape), self.codec, *self.parts]))

    @property
    def size(self) -> int:
        """Bytes it takes in the file, without its few bytes of description."""
        return sum(map(len, self.parts))

    def expect(self, dtype: str, shape: tuple[int, ...]) -> PackedArray:
        """Itself, when it has this dtype and shape.

        Raises:
            ValueError: When it has not.
        """
        if self.dtype != dtype or self.shape != shape:
            raise ValueError(f"is {self.dtype} {list(self.shape)}, expected {dtype} {list(shape)}")
        return self

    def unpack(self) -> NDArray[Any]:
        """Decompress.

        Returns:
            A new array of `dtype` and `shape` in native byte order.

        Raises:
            ValueError: When the stored bytes do not hold exactly that.
        """
        dtype = _DTYPES[self.dtype]
        try:
            array = _CODECS[self.codec][1](dtype, self.shape, self.parts)
        except (zstandard.ZstdError, lzma.LZMAError, EOFError) as error:
            raise ValueError(f"broken compressed data: {error}") from error
        return array.reshape(self.shape).astype(dtype.newbyteorder("="), copy=False)


def pack(array: NDArray[Any], *codecs: str) -> PackedArray:
    """Compress an array with the codec that makes it smallest.

    Args:
        array: One or two dimensions of a dtype in the table above.
        codecs: What to try besides storing it raw; none means all that fit any array.

    Returns:
        The smallest result; ties go to the earlier codec.
    """
    dtype = array.dtype.newbyteorder("<").str
    if dtype not in _DTYPES or not 1 <= array.ndim <= 2 or array.size > MAX_ELEMENTS:
        raise ValueError(f"cannot store an array of {array.dtype} {array.shape}")
    stored = np.ascontiguousarray(array, dtype=_DTYPES[dtype])
    best = PackedArray(dtype, array.shape, "raw", (stored.tobytes(),))
    for codec in codecs or ("planes", "delta"):
        parts = _CODECS[codec][0](stored) if best.size > _TINY.get(codec, 16) else None
        if parts is not None and sum(map(len, parts)) < best.size:
            best = PackedArray(dtype, array.shape, codec, parts)
    return best


Encode = Callable[[NDArray[Any]], "tuple[bytes, ...] | None"]
Decode = Callable[["np.dtype[Any]", "tuple[int, ...]", Sequence[bytes]], NDArray[Any]]


def _only(parts: Sequence[bytes], count: int) -> Sequence[bytes]:
    if len(parts) != count:
        raise ValueError(f"an array has {len(parts)} parts where {count} were expected")
    return parts


def _count(shape: tuple[int, ...]) -> int:
    return math.prod(shape)


def _deflate(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=_LEVEL, write_checksum=False).compress(data)


def _inflate(data: bytes, size: int) -> bytes:
    """Undo `_deflate`; the frame must state exactly `size` before memory is asked for."""
    frame = zstandard.get_frame_parameters(data)
    if frame.content_size != size or frame.window_size > _WINDOW:
        raise ValueError(f"an array's zstd frame holds {frame.content_size} bytes, expected {size}")
    decompressor: zstandard.ZstdDecompressor | None = getattr(_OWN, "decompressor", None)
    if decompressor is None:
        decompressor = _OWN.decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
    out = decompressor.decompress(data) if size else b""
    if len(out) != size:
        raise ValueError(f"an array decompressed to {len(out)} bytes, expected {size}")
    return out


def _to_planes(array: NDArray[Any]) -> bytes:
    """All first bytes, then all second ones, …: high bytes are alike and compress."""
    width = array.dtype.itemsize
    planes = np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(-1, width).T
    return _deflate(np.ascontiguousarray(planes).tobytes())


def _from_planes(data: bytes, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    width = dtype.itemsize
    planes = np.frombuffer(_inflate(data, count * width), np.uint8).reshape(width, count)
    out = np.empty((count, width), np.uint8)
    for index in range(width):
        out[:, index] = planes[index]
    return out.reshape(-1).view(dtype)


def _whole(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The integer type that holds the bits of `dtype`."""
    return np.dtype("<i4") if dtype.kind == "f" else dtype


def _encode_raw(array: NDArray[Any]) -> tuple[bytes, ...]:
    return (array.tobytes(),)


def _decode_raw(dtype: np.dtype[Any], shape: tuple[int, ...], parts: Sequence[bytes]) -> NDArray[Any]:
    (data,) = _only(parts, 1)
    if len(data) != _count(shape) * dtype.itemsize:
        raise ValueError(f"an array of {list(shape)} is stored in {len(data)} bytes")
    return np.frombuffer(data, dtype).copy()


def _encode_planes(array: NDArray[Any]) -> tuple[bytes, ...]:
    return (_to_planes(array),)


def _decode_planes(dtype: np.dtype[Any], shape: tuple[int, ...], parts: Sequence[bytes]) -> NDArray[Any]:
    return _from_planes(_only(parts, 1)[0], dtype, _count(shape))


def _encode_delta(array: NDArray[Any]) -> tuple[bytes, ...]:
    bits = array.view(_whole(array.dtype))
    falls = bits.copy()
    falls[..., 1:] -= bits[..., :-1]
    return (_to_planes(falls),)


def _decode_delta(dtype: np.dtype[Any], shape: tuple[int, ...], parts: Sequence[bytes]) -> NDArray[Any]:
    whole = _whole(dtype)
    falls = _from_planes(_only(parts, 1)[0], whole, _count(shape)).reshape(shape)
    return np.add.accumulate(falls, axis=-1, dtype=whole).view(dtype)


def _encode_lzma(array: NDArray[Any]) -> tuple[bytes, ...] | None:
    """Ids from -1 on as two bytes each: `id + 1` where that fits, else the place in a table of the distinct ids."""
    if array.dtype.kind != "i" or int(array.min()) < -1:
        return None
    table = b""
    if int(array.max()) < 0xFFFF:
        places = array + 1
    else:
        distinct, places = np.unique(array, return_inverse=True)
        if len(distinct) > 0xFFFF + 1:
            return None
        table = _to_planes(np.diff(distinct, prepend=distinct.dtype.type(0)))
    data = lzma.compress(places.astype("<u2").tobytes(), format=lzma.FORMAT_RAW, filters=_LZMA)
    return (table, data)


def _decode_lzma(dtype: np.dtype[Any], shape: tuple[int, ...], parts: Sequence[bytes]) -> NDArray[Any]:
    table, data = _only(parts, 2)
    size = 2 * _count(shape)
    decoder = lzma.LZMADecompressor(format=lzma.FORMAT_RAW, filters=_LZMA)
    out = decoder.decompress(data, max_length=size + 1)
    if len(out) != size:
        raise ValueError(f"an array decompressed to {len(out)} bytes or more, expected {size}")
    places = np.frombuffer(out, "<u2")
    if not table:
        shifted: NDArray[Any] = places.astype(dtype) - dtype.type(1)
        return shifted
    count = zstandard.get_frame_parameters(table).content_size // dtype.itemsize
    if not 1 <= count <= 0xFFFF + 1:
        raise ValueError(f"a table of {count} ids")
    distinct = np.cumsum(_from_planes(table, dtype, count), dtype=dtype)
    if len(places) and int(places.max()) >= count:
        raise ValueError(f"a place beyond a table of {count} ids")
    looked_up: NDArray[Any] = distinct[places]
    return looked_up


def _encode_lattice(array: NDArray[Any]) -> tuple[bytes, ...] | None:
    if array.dtype.kind != "f" or array.ndim != 2 or array.shape[1] < 2:
        return None
    exponents, steps = lattice.fit(array)
    on = exponents != lattice.OFF
    if not on.any():
        return None
    rest = _encode_delta(np.ascontiguousarray(array[~on]))[0] if not on.all() else b""
    return (_to_planes(np.ascontiguousarray(array[on, 0])), _to_planes(exponents), _to_planes(steps), rest)


def _decode_lattice(dtype: np.dtype[Any], shape: tuple[int, ...], parts: Sequence[bytes]) -> NDArray[Any]:
    first, exponents_data, steps_data, rest = _only(parts, 4)
    if dtype.kind != "f" or len(shape) != 2 or shape[1] < 2:
        raise ValueError(f"a lattice of {dtype} {list(shape)}")
    n, k = shape
    exponents = _from_planes(exponents_data, np.dtype(np.uint8), n)
    on = exponents != lattice.OFF
    count = int(np.count_nonzero(on))
    placed = lattice.place(
        _from_planes(first, dtype, count),
        exponents[on],
        _from_planes(steps_data, np.dtype("<u4"), count * (k - 1)).reshape(count, k - 1),
    )
    if count == n:
        return placed
    out = np.empty(shape, dtype)
    out[on] = placed
    out[~on] = _decode_delta(dtype, (n - count, k), (rest,))
    return out


_CODECS: Final[dict[str, tuple[Encode, Decode]]] = {
    "raw": (_encode_raw, _decode_raw),
    "planes": (_encode_planes, _decode_planes),
    "delta": (_encode_delta, _decode_delta),
    "lzma": (_encode_lzma, _decode_lzma),
    "lattice": (_encode_lattice, _decode_lattice),
}
