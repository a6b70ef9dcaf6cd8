"""The exact bytes of every token id of a llama.cpp vocabulary."""

from __future__ import annotations

import re
from typing import Any

from probe.records import Piece

_SENTENCEPIECE, _BYTE_BPE, _UNIGRAM = 1, 2, 4
"""Values of `llama_vocab_type`."""
_NORMAL, _CONTROL, _BYTE = 4, 8, 32
"""Bits of `llama_token_attr`."""
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def read_pieces(vocab: Any) -> list[Piece]:
    """Read the vocabulary as bytes.

    Args:
        vocab: cyllama's `LlamaVocab`. Its `token_to_piece` decodes to text and destroys parts of characters, so the
            bytes come from the vocabulary's own spelling.

    Returns:
        One piece per id. Of vocabulary kinds whose spelling is not known, the pieces are marked as not exact.
    """
    kind: int = vocab.vocab_type
    return [_piece(vocab, token, kind) for token in range(vocab.n_vocab)]


def _piece(vocab: Any, token: int, kind: int) -> Piece:
    attributes: int = vocab.get_attr(token)
    special = bool(attributes & _CONTROL)
    try:
        spelling: str = vocab.get_text(token)
    except UnicodeDecodeError:
        return Piece(b"", exact=False, special=special)
    if kind == _BYTE_BPE:
        data = _from_byte_alphabet(spelling) if attributes & _NORMAL else spelling.encode()
        return Piece(data, special=special)
    if kind in (_SENTENCEPIECE, _UNIGRAM):
        if attributes & _BYTE and (match := _BYTE_TOKEN.fullmatch(spelling)):
            return Piece(bytes([int(match[1], 16)]), special=special)
        return Piece((spelling.replace("\u2581", " ") if attributes & _NORMAL else spelling).encode(), special=special)
    return Piece(str(vocab.token_to_piece(token, 0, True)).encode(), exact=False, special=special)


def byte_alphabet() -> dict[str, int]:
    """GPT-2's spelling of bytes: printable Latin-1 stands for itself, the other 68 bytes for U+0100 onwards."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}


_ALPHABET = byte_alphabet()


def _from_byte_alphabet(spelling: str) -> bytes:
    """The bytes behind a spelling; a character outside the alphabet stands for itself, as llama.cpp reads it."""
    return b"".join(
        bytes([_ALPHABET[character]]) if character in _ALPHABET else character.encode() for character in spelling
    )
