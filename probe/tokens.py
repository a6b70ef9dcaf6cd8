"""What a token id stands for: exact bytes from a tokenizer, or a server's own words for it."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import socket
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from probe.errors import TokenizerError
from probe.records import Piece, TokenizerFacts

UNKNOWN = Piece(b"", exact=False)
_IMPORTING = threading.Lock()
"""transformers fills itself in on first use, and two threads at once see it half filled: no AutoTokenizer in it."""
_BYTE_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class TokenTable(Protocol):
    """Where the text of a token id comes from."""

    @property
    def facts(self) -> TokenizerFacts:
        """Source and fingerprint, as the capture records them."""
        ...

    def piece(self, token_id: int) -> Piece:
        """The text of one id; `Piece(b"", exact=False)` where nothing is known."""
        ...


class PieceList:
    """A whole vocabulary with exact bytes: what the embedded engine, or a tokenizer, knows.

    Args:
        source: Where it came from, for people.
        pieces: Piece of id 0, 1, 2, …
    """

    def __init__(self, source: str, pieces: Sequence[Piece]) -> None:
        self._pieces = pieces
        self.facts = TokenizerFacts(source=source, fingerprint=fingerprint(pieces))

    def __len__(self) -> int:
        return len(self._pieces)

    def piece(self, token_id: int) -> Piece:
        """The text of one id."""
        return self._pieces[token_id] if 0 <= token_id < len(self._pieces) else UNKNOWN


class ServerWords:
    """The server's own words for the ids it listed, when no tokenizer can be had.

    A server decodes an incomplete UTF-8 piece to nothing and the completing one to the whole character, whatever was
    before it. So none of these are exact, an empty one says only that the bytes are unknown, and a word beyond ASCII is
    believed only when the server says it of the id alone as well.
    """

    def __init__(self) -> None:
        self._words: dict[int, str] = {}
        self._settled: set[int] = set()
        self.facts = TokenizerFacts(source="server words")

    def learn(self, words: Mapping[int, str]) -> None:
        """Take the words of one answer; the shortest one that says something wins, since longer ones hold context."""
        for token_id, word in words.items():
            known = self._words.get(token_id)
            better = word and "\ufffd" not in word and len(word) < len(known or "")
            if token_id not in self._settled and (not known or better):
                self._words[token_id] = word

    def settle(self, words: Mapping[int, str]) -> None:
        """Take the server's word for ids on their own. One with U+FFFD is a part of a character: bytes unknown."""
        for token_id, word in words.items():
            self._words[token_id] = "" if "\ufffd" in word else word
            self._settled.add(token_id)

    def doubtful(self, ids: Iterable[int]) -> list[int]:
        """Those of some ids that the server should be asked about on their own."""
        return [
            token_id
            for token_id in ids
            if token_id not in self._settled and not (self._words.get(token_id) or "\ufffd").isascii()
        ]

    def piece(self, token_id: int) -> Piece:
        """The server's words for one id, never exact."""
        return Piece(self._words.get(token_id, "").encode("utf-8", "replace"), exact=False)


class LocalTokenizer(PieceList):
    """A tokenizer loaded by transformers, for exact bytes and for servers without /tokenize.

    Args:
        source: A folder, or a hub id.
        offline: Look only at what is on this machine.

    Raises:
        TokenizerError: it cannot be loaded.
    """

    def __init__(self, source: str, *, offline: bool = False) -> None:
        self._tokenizer = _load(source, offline)
        super().__init__(source, _vocabulary(self._tokenizer))

    def encode(self, text: str) -> list[int]:
        """Token ids of plain text, without added special tokens."""
        return [int(token) for token in self._tokenizer.encode(text, add_special_tokens=False)]

    def encode_chat(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None
    ) -> list[int]:
        """Token ids of a chat in the model's own template, ready for the assistant's answer.

        Raises:
            TokenizerError: the tokenizer has no chat template, or the template refuses these messages.
        """
        try:
            text = self._tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                tools=[dict(tool) for tool in tools] if tools else None,
                tokenize=False,
                add_generation_prompt=True,
            )
        except Exception as error:  # a template is a program of the model's author and raises what it likes
            raise TokenizerError(f"{self.facts.source}: the chat template failed: {error}") from error
        return self.encode(str(text))


def fingerprint(pieces: Iterable[Piece]) -> str:
    """Hash over a vocabulary: every id's bytes in order, so the same vocabulary from two sources hashes alike."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(len(piece.data).to_bytes(4, "little") + piece.data)
    return digest.hexdigest()[:32]


def text_bytes(ids: Iterable[int], table: TokenTable) -> tuple[bytes, list[int]]:
    """The text of some tokens and where each begins.

    Returns:
        The joined bytes, and `n + 1` offsets: token `i` is `bytes[offsets[i]:offsets[i + 1]]`.
    """
    joined = bytearray()
    offsets = [0]
    for token_id in ids:
        joined += table.piece(token_id).data
        offsets.append(len(joined))
    return bytes(joined), offsets


def _load(source: str, offline: bool) -> Any:
    """Load by transformers; imported here because it takes a second that only a capture should pay."""
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # "PyTorch was not found": it is not wanted
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    with _IMPORTING:
        from transformers import AutoTokenizer

    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    folder = Path(source).expanduser()
    try:
        return AutoTokenizer.from_pretrained(
            str(folder) if folder.exists() else source,
            local_files_only=offline or folder.exists() or not _hub_resolves(),
        )
    except Exception as error:  # transformers raises OSError, ValueError, KeyError, ImportError, hub errors, …
        first_line = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise TokenizerError(
            f"{source}: {first_line}",
            hint="--tokenizer takes a folder with tokenizer.json, or a hub id this machine can reach",
        ) from error


def _hub_resolves() -> bool:
    """Whether the hub's name resolves: without a network the hub client retries for 46 s before it gives up."""
    from huggingface_hub import constants

    host = urlsplit(constants.ENDPOINT).hostname
    try:
        socket.getaddrinfo(host, 443)
    except OSError:
        return False
    return True


def _vocabulary(tokenizer: Any) -> list[Piece]:
    """Exact bytes of every id of a transformers tokenizer."""
    added = {int(i): token for i, token in tokenizer.added_tokens_decoder.items()}
    special = set(tokenizer.all_special_ids) | {i for i, token in added.items() if token.special}
    byte_level = _is_byte_level(tokenizer)
    alphabet = _byte_alphabet() if byte_level else {}
    pieces = []
    for token_id, name in enumerate(tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))):
        if token_id in added:
            pieces.append(Piece(added[token_id].content.encode("utf-8", "replace"), special=token_id in special))
        elif name is None:
            pieces.append(UNKNOWN)
        elif isinstance(name, bytes):
            pieces.append(Piece(name, special=token_id in special))
        elif byte_level:
            data = b"".join(alphabet.get(c, c.encode("utf-8", "replace")) for c in name)
            pieces.append(Piece(data, special=token_id in special))
        elif match := _BYTE_FALLBACK.fullmatch(name):
            pieces.append(Piece(bytes([int(match[1], 16)])))
        else:
            pieces.append(Piece(name.replace("\u2581", " ").encode("utf-8", "replace"), special=token_id in special))
    return pieces


def _is_byte_level(tokenizer: Any) -> bool:
    """Whether token names are written in GPT-2's byte alphabet: the fast tokenizer's decoder says so."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        return "ByteLevel" in str(backend.decoder)
    return any("\u0120" in name for name in list(tokenizer.get_vocab())[:5000])


def _byte_alphabet() -> dict[str, bytes]:
    """GPT-2's printable stand-in for each byte (the table of its `bytes_to_unicode`)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): bytes([byte]) for byte in printable}
    shifted = (byte for byte in range(256) if byte not in printable)
    return table | {chr(256 + n): bytes([byte]) for n, byte in enumerate(shifted)}
