"""Token ids and their bytes: what a capture says about its vocabulary, so that a viewer needs no tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from probe.errors import CaptureFormatError
from probe.records import Piece
from probe.store.arrays import PackedArray, pack
from probe.store.limits import MAX_PIECE, MAX_PIECE_BYTES, MAX_PIECES, MAX_TOKEN_ID
from probe.store.plain import dumps
from probe.store.schema import parse

_EXACT = 1
_SPECIAL = 2
_UNKNOWN = Piece(b"", exact=False)


class VocabularyFields(msgspec.Struct, frozen=True, kw_only=True):
    """A vocabulary record's payload: ids rising, their bytes one behind the other."""

    ids: PackedArray
    """`<i4 [n]`."""
    lengths: PackedArray
    """`<i4 [n]`, bytes of each piece."""
    flags: PackedArray
    """`|u1 [n]`: 1 exact, 2 special."""
    data: PackedArray
    """`|u1 [sum of lengths]`."""


VocabularyTable = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.uint8], bytes]
"""A vocabulary record, unpacked: ids, lengths, flags, data."""


class Vocabulary:
    """The pieces of every token id that occurs in a capture.

    Built from records in the order of the file; a later piece of the same id replaces an earlier one.
    """

    def __init__(self, tables: Iterable[VocabularyTable] = ()) -> None:
        self._ids = np.zeros(0, np.int32)
        self._begins = np.zeros(0, np.int64)
        self._lengths = np.zeros(0, np.int32)
        self._flags = np.zeros(0, np.uint8)
        self._data = b""
        self._places: dict[int, int] = {}  # a look-up is 0.1 us; searchsorted for one number takes 4
        listed = list(tables)
        if listed:
            self._merge(listed)

    def piece(self, token_id: int) -> Piece:
        """The text of an id; empty and not exact when the capture says nothing about it."""
        at = self._places.get(token_id)
        if at is None:
            return _UNKNOWN
        begin = int(self._begins[at])
        flags = int(self._flags[at])
        return Piece(
            self._data[begin : begin + int(self._lengths[at])],
            exact=bool(flags & _EXACT),
            special=bool(flags & _SPECIAL),
        )

    def ids(self) -> NDArray[np.int32]:
        """All known ids, rising: int32 `[n]`."""
        return self._ids.copy()

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, token_id: object) -> bool:
        return token_id in self._places

    def _merge(self, tables: list[VocabularyTable]) -> None:
        ids = np.concatenate([each[0] for each in tables])
        lengths = np.concatenate([each[1] for each in tables])
        begins = np.cumsum(lengths, dtype=np.int64) - lengths
        # np.unique keeps the first of equals, so look from the end: the last record wins.
        self._ids, last = np.unique(ids[::-1], return_index=True)
        self._places = {token_id: at for at, token_id in enumerate(self._ids.tolist())}
        keep = len(ids) - 1 - last
        self._begins, self._lengths = begins[keep], lengths[keep]
        self._flags = np.concatenate([each[2] for each in tables])[keep]
        self._data = b"".join(each[3] for each in tables)


def better(new: Piece, old: Piece | None) -> bool:
    """Whether a piece says more about its id than the one already in the file.

    A total order, so that prompts captured in another order leave the same vocabulary: exact bytes before a server's
    words, words without a replacement character before those with one, then any words before none.
    """
    return old is None or _merit(new) > _merit(old)


def _merit(piece: Piece) -> tuple[bool, bool, bool, bytes, bool]:
    return piece.exact, bool(piece.data), b"\xef\xbf\xbd" not in piece.data, piece.data, piece.special


def write_vocabulary(pieces: Mapping[int, Piece]) -> bytes:
    """A vocabulary record's payload.

    Raises:
        CaptureFormatError: When an id or a piece is beyond what readers accept.
    """
    ids = sorted(pieces)
    for token_id in ids:
        if not 0 <= token_id <= MAX_TOKEN_ID or len(pieces[token_id].data) > MAX_PIECE:
            raise CaptureFormatError(
                f"vocabulary: token id {token_id} with {len(pieces[token_id].data)} bytes is out of bounds"
            )
    data = b"".join(pieces[each].data for each in ids)
    flags = [_EXACT * pieces[each].exact + _SPECIAL * pieces[each].special for each in ids]
    return dumps(
        {
            "ids": pack(np.array(ids, np.int32)).ext(),
            "lengths": pack(np.array([len(pieces[each].data) for each in ids], np.int32)).ext(),
            "flags": pack(np.array(flags, np.uint8)).ext(),
            "data": pack(np.frombuffer(data, np.uint8), "planes").ext(),
        }
    )


def read_tables(
    payload: Callable[[int, str], bytes], offsets: Iterable[int]
) -> tuple[list[VocabularyTable], list[str]]:
    """All vocabulary records of a file that can be read.

    Args:
        payload: Reads the record at an offset; is told how to call it in an error.
        offsets: Where they lie.

    Returns:
        Their tables in order, and a sentence about each record that had to be left out.
    """
    tables: list[VocabularyTable] = []
    faults: list[str] = []
    pieces = size = 0
    for offset in offsets:
        where = f"vocabulary record at byte {offset}"
        try:
            table = read_vocabulary(payload(offset, where), where)
        except CaptureFormatError as error:
            faults.append(error.detail)
            continue
        pieces += len(table[0])
        size += len(table[3])
        if pieces > MAX_PIECES or size > MAX_PIECE_BYTES:
            faults.append(
                f"{where}: the file's vocabulary is beyond the limit of {MAX_PIECES} pieces; the rest is left out"
            )
            break
        tables.append(table)
    return tables, faults


def read_vocabulary(payload: bytes, where: str) -> VocabularyTable:
    """A vocabulary record from its payload.

    Raises:
        CaptureFormatError: Names the record and what contradicts itself.
    """
    fields = parse(payload, VocabularyFields, where)
    try:
        n = fields.ids.shape[0]
        if n > MAX_PIECES or fields.data.shape[0] > MAX_PIECE_BYTES:
            raise ValueError(f"{n} pieces of {fields.data.shape[0]} bytes are beyond the limits")
        for packed, dtype in ((fields.lengths, "<i4"), (fields.flags, "|u1")):
            packed.expect(dtype, (n,))
        ids = fields.ids.expect("<i4", (n,)).unpack()
        lengths = fields.lengths.unpack()
        flags = fields.flags.unpack()
        if n and not (0 <= int(ids[0]) <= int(ids[-1]) <= MAX_TOKEN_ID and (np.diff(ids) > 0).all()):
            raise ValueError("ids do not rise from 0 on")
        if n and not 0 <= int(lengths.min()) <= int(lengths.max()) <= MAX_PIECE:
            raise ValueError("lengths are out of bounds")
        data = fields.data.expect("|u1", (int(lengths.sum(dtype=np.int64)),)).unpack().tobytes()
    except ValueError as error:
        raise CaptureFormatError(f"{where}: {error}") from error
    return ids, lengths, flags, data
