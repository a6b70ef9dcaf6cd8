"""A server's words for token ids: `decoded_token`, which for a part of a character depends on what came before."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence

from probe.records import Piece


class Words:
    """Text of tokens as vLLM decodes it.

    A piece that is no whole text by itself is the empty string; the token that completes the character shows the
    whole of it, with whatever the earlier pieces held in front (often a space).
    """

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._data = [piece.data for piece in pieces]
        self._special = [piece.special for piece in pieces]
        self._text = [_decode(data) for data in self._data]

    def __len__(self) -> int:
        return len(self._data)

    def word(self, token: int, pending: bytes) -> str:
        """The word for `token` after an unfinished character whose bytes are `pending`."""
        text = self._text[token]
        if text is None:
            text = _decode(pending + self._data[token])
        return text or ""

    def after(self, token: int, pending: bytes) -> bytes:
        """The bytes of the character that is still unfinished once `token` was read."""
        if self._text[token] is not None or _decode(pending + self._data[token]) is not None:
            return b""
        for data in (pending + self._data[token], self._data[token]):
            if _unfinished(data):
                return data
        return b""

    def text(self, ids: Iterable[int]) -> str:
        """Text of a generation: special tokens are left out, a character unfinished at the end too."""
        data = b"".join(self._data[token] for token in ids if not self._special[token])
        return codecs.getincrementaldecoder("utf-8")("replace").decode(data)

    def verbatim(self, ids: Iterable[int]) -> str:
        """Text of ids with special tokens spelled out; ids outside the vocabulary are dropped, as vLLM does."""
        return b"".join(self._data[token] for token in ids if 0 <= token < len(self._data)).decode("utf-8", "replace")


def _decode(data: bytes) -> str | None:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _unfinished(data: bytes) -> bool:
    """Whether `data` is text up to a character that more bytes could complete."""
    try:
        codecs.getincrementaldecoder("utf-8")("strict").decode(data)
    except UnicodeDecodeError:
        return False
    return True
