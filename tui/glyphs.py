"""What a token looks like in a terminal: safe text and its width in cells, worked out once per vocabulary id."""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len, set_cell_size

from probe.records import Piece

MAX_CELLS = 24
"""Widest a token is drawn; a longer one ends in the clip mark."""

MAX_MARKS = 3
"""Combining marks kept per base character; more would bleed over the neighbouring lines."""

LEAD = 1
"""Flag: starts with a space that `flow` draws as a gap."""
BREAK = 2
"""Flag: ends a line of the text."""
BLANK = 4
"""Flag: nothing but whitespace."""
SPECIAL = 8
"""Flag: a control token of the model, such as `<|im_end|>`."""
ODD = 16
"""Flag: shows something other than its characters: bytes, control characters, an unknown id, nothing at all."""

# Ids past this are looked up one by one instead of by index, so that a hostile id cannot ask for gigabytes.
_TABLE_LIMIT = 1 << 21

# A token of 2,000 characters costs no more than one of this many.
_READ_BYTES = 400

_MARKS = {" ": "␣", "\n": "⏎", "\t": "⇥", "\x7f": "\u2421"}
_ASCII_MARKS = {" ": "_", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


class Glyphs:
    """Display text and widths by token id. Ids are worked out when they are first asked for, then kept.

    Args:
        pieces: The text of an id; an unknown one gives an empty inexact piece.
        ids: int32, ids to work out now (any shape).
        ascii_only: Draw everything with ASCII, for terminals whose font or bidi handling cannot be trusted.
    """

    def __init__(
        self, pieces: Callable[[int], Piece], ids: NDArray[np.int32] | None = None, *, ascii_only: bool = False
    ) -> None:
        self._pieces = pieces
        # The reading thread works ids out while the screen draws others.
        self._lock = threading.RLock()
        self.ascii_only = ascii_only
        self._widths = np.zeros(0, dtype=np.uint8)
        self._flags = np.zeros(0, dtype=np.uint8)
        self._texts: dict[int, str] = {}
        self._flows: dict[int, str] = {}
        self._far: dict[int, tuple[int, int]] = {}
        if ids is not None:
            self.cells(ids)

    @property
    def widths(self) -> NDArray[np.uint8]:
        """uint8 by id: width in cells, 0 where the id has not been asked for yet."""
        return self._widths

    def text(self, token_id: int) -> str:
        """One line of display text for a token, spaces at its edges shown as `␣`."""
        if token_id not in self._texts:
            self._learn((token_id,))
        return self._texts[token_id]

    def flow(self, token_id: int) -> str:
        """The same, as wide, but spaces in front of a word are gaps, so that a line of tokens reads as text."""
        if token_id not in self._flows:
            self._learn((token_id,))
        return self._flows[token_id]

    def flows(self, ids: Iterable[int]) -> list[str]:
        """`flow` of many ids that `cells` has seen."""
        flows = self._flows
        return [flows[token_id] for token_id in ids]

    def cells(self, ids: NDArray[np.int32]) -> NDArray[np.uint8]:
        """Width of every token in cells, 1 to `MAX_CELLS`; uint8 in the shape of `ids`."""
        return self._gather(ids, 0)

    def flags(self, ids: NDArray[np.int32]) -> NDArray[np.uint8]:
        """`LEAD`, `BREAK`, `BLANK`, `SPECIAL` and `ODD` of every token, or-ed; uint8 in the shape of `ids`."""
        return self._gather(ids, 1)

    def raw(self, token_id: int) -> str:
        """The whole truth about a token, in printable ASCII: its characters escaped, its bytes in hex, its id."""
        if token_id < 0:
            return "nothing listed"
        piece = self._pieces(token_id)
        if not piece.data:
            return f"{'empty' if piece.exact else 'unknown'}  id {token_id}"
        try:
            characters = ascii(piece.data.decode("utf-8"))
        except UnicodeDecodeError:
            characters = "not UTF-8"
        source = "" if piece.exact else "  (the server's words, not its bytes)"
        return f"{characters}  {piece.data.hex(' ')}  id {token_id}{source}"

    def _gather(self, ids: NDArray[np.int32], which: int) -> NDArray[np.uint8]:
        flat = np.asarray(ids, dtype=np.int64).ravel()
        near = (flat >= 0) & (flat < _TABLE_LIMIT)
        everything_near = bool(near.all())
        inside = flat if everything_near else flat[near]
        with self._lock:
            if len(inside):
                self._grow(int(inside.max()) + 1)
                unseen = inside[self._widths[inside] == 0]
                if len(unseen):
                    self._learn(np.unique(unseen).tolist())
            table = self._flags if which else self._widths
        if everything_near:
            return table[flat].reshape(np.shape(ids))
        out = np.ones(len(flat), dtype=np.uint8) if which == 0 else np.zeros(len(flat), dtype=np.uint8)
        out[near] = table[inside]
        far = np.flatnonzero(~near)
        for at, token_id in zip(far.tolist(), flat[far].tolist(), strict=True):
            if token_id not in self._far:
                self._learn((token_id,))
            out[at] = self._far[token_id][which]
        return out.reshape(np.shape(ids))

    def _grow(self, size: int) -> None:
        if size > len(self._widths):
            extra = np.zeros(size - len(self._widths), dtype=np.uint8)
            self._widths = np.concatenate([self._widths, extra])
            self._flags = np.concatenate([self._flags, extra])

    def _learn(self, ids: Iterable[int]) -> None:
        with self._lock:
            for token_id in ids:
                piece = self._pieces(token_id) if token_id >= 0 else Piece(b"", exact=False)
                text, flow, flags = _draw(token_id, piece, self.ascii_only)
                self._texts[token_id] = text
                self._flows[token_id] = flow
                width = cell_len(text)
                if 0 <= token_id < _TABLE_LIMIT:
                    self._grow(token_id + 1)
                    self._widths[token_id] = width
                    self._flags[token_id] = flags
                else:
                    self._far[token_id] = (width, flags)


def _draw(token_id: int, piece: Piece, ascii_only: bool) -> tuple[str, str, int]:
    """Text with visible spaces, text with gaps, flags."""
    special = SPECIAL if piece.special else 0
    if not piece.data:
        text = ("<>" if ascii_only else "∅") if piece.exact else "-" if token_id < 0 else f"<id {token_id}>"
        return text, text, ODD | special
    cut = len(piece.data) > _READ_BYTES
    data = piece.data[:_READ_BYTES]
    if cut:
        # The cut may fall inside a character; its first bytes are dropped rather than shown as broken ones.
        data = data.decode("utf-8", "ignore").encode("utf-8") or data
    characters = data.decode("utf-8", "surrogateescape")
    blank = characters.isspace()
    lead = len(characters) - len(characters.lstrip(" "))
    flags = special
    if blank:
        flags |= BLANK
    elif lead:
        flags |= LEAD
    if "\n" in characters[len(characters.rstrip()) :]:
        flags |= BREAK
    text, odd = safe_text(characters, ascii_only)
    if odd:
        flags |= ODD
    if not text:
        text = "<>" if ascii_only else "∅"
    gap = 0 if blank else lead
    flow = " " * gap + text[gap:]
    if cut or cell_len(text) > MAX_CELLS:
        mark = ">" if ascii_only else "…"
        text = set_cell_size(text, MAX_CELLS - 1) + mark
        flow = set_cell_size(flow, MAX_CELLS - 1) + mark
    return text, flow, flags


def safe_text(characters: str, ascii_only: bool = False) -> tuple[str, bool]:
    """One line in which nothing moves the cursor, joins its neighbours or hides.

    Args:
        characters: Decoded text; bytes that are no UTF-8 as the surrogates of the `surrogateescape` handler.
        ascii_only: Escape everything outside ASCII.

    Returns:
        The text, spaces at either end as `␣`; and whether anything but whitespace had to be named.
    """
    inner_start = len(characters) - len(characters.lstrip(" "))
    inner_stop = len(characters.rstrip(" "))
    marks = _ASCII_MARKS if ascii_only else _MARKS
    out: list[str] = []
    odd = False
    stacked = 0
    can_carry_marks = False
    rest = enumerate(characters)
    for at, character in rest:
        if " " < character < "\x7f":
            out.append(character)
            can_carry_marks, stacked = True, 0
            continue
        if character in marks:
            out.append(" " if inner_start <= at < inner_stop and character == " " else marks[character])
            can_carry_marks = False
        elif "\udc80" <= character <= "\udcff":
            out.append(f"<{ord(character) - 0xDC00:02X}>")
            odd, can_carry_marks = True, False
        elif ascii_only:
            out.append(_name(character) if character < "\xa0" else ascii(character)[1:-1])
            odd = odd or character < "\xa0"
        elif character < " ":
            out.append(chr(0x2400 + ord(character)))
            odd, can_carry_marks = True, False
        elif _is_regional(character):
            # Two make a flag; a lone one would pair up with a neighbouring token's.
            paired = _is_regional(characters[at + 1 : at + 2])
            out.append(character + next(rest)[1] if paired else _name(character))
            can_carry_marks = False
        elif _draws_nothing(character) or (not out and "\U0001f3fb" <= character <= "\U0001f3ff"):
            # Also a skin tone at the start: it would change the emoji of the token before.
            out.append(_name(character))
            odd, can_carry_marks = True, False
        elif unicodedata.category(character) in ("Mn", "Mc", "Me"):
            stacked += 1
            if not can_carry_marks:
                out.append("◌")
                can_carry_marks = True
            if stacked <= MAX_MARKS:
                out.append(character)
        else:
            out.append(character)
            can_carry_marks, stacked = True, 0
    return "".join(out), odd


def _name(character: str) -> str:
    return f"<{ord(character):02X}>"


def _is_regional(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _selects_variation(character: str) -> bool:
    return "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"


def _draws_nothing(character: str) -> bool:
    """Controls, bidi and joiners, unassigned and private code points, odd spaces: named instead of drawn."""
    category = unicodedata.category(character)
    if category in ("Mn", "Mc", "Me"):
        return _selects_variation(character)
    return category in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs") or cell_len(character) == 0
