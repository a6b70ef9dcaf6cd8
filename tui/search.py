"""Finding a place in a text: by words, by token id, by position."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from probe.records import Piece


def find(ids: NDArray[np.int32], pieces: Callable[[int], Piece], query: str) -> NDArray[np.int64]:
    """Positions where something begins, rising.

    Args:
        ids: int32 `[n]`, the text.
        pieces: The bytes of an id.
        query: `#` and a token id, or words. Words match across token edges; without a capital letter in them ASCII
            capitals do not matter.

    Returns:
        int64: every position of the id; or the positions of the tokens in which the words begin, overlaps left out.
    """
    if query.startswith("#") and query[1:].isdecimal():
        return np.flatnonzero(ids == min(int(query[1:]), np.iinfo(np.int32).max))
    words = query.encode("utf-8", "replace")
    if not words or not len(ids):
        return np.zeros(0, dtype=np.int64)
    known, place = np.unique(ids, return_inverse=True)
    data = [pieces(token_id).data for token_id in known.tolist()]
    text = b"".join([data[index] for index in place.tolist()])
    if query == query.lower():
        text, words = text.lower(), words.lower()
    lengths = np.array([len(part) for part in data], dtype=np.int64)
    ends = np.cumsum(lengths[place])
    offsets = []
    at = text.find(words)
    while at >= 0:
        offsets.append(at)
        at = text.find(words, at + len(words))
    return np.unique(np.searchsorted(ends, np.array(offsets, dtype=np.int64), side="right"))


def place(answer: str, position: int, count: int) -> int | None:
    """The position that an answer to "go to" means.

    Args:
        answer: A position, `+40` or `-40` from here, `50%`, `start` or `end`.
        position: Here.
        count: Positions of the text.

    Returns:
        A position inside the text, None for an answer that means nothing.
    """
    answer = answer.strip().lower().replace(",", "").replace("_", "")
    last = max(count - 1, 0)
    if answer in ("start", "end"):
        return 0 if answer == "start" else last
    sign, digits = (answer[0], answer[1:]) if answer[:1] in ("+", "-") else ("", answer)
    percent = digits.endswith("%") and not sign
    digits = digits.removesuffix("%") if percent else digits
    if not digits.isascii() or not digits.isdecimal() or len(digits) > 12:
        return None
    number = int(digits)
    if percent:
        number = last * min(number, 100) // 100
    elif sign:
        number = position + number if sign == "+" else position - number
    return min(max(number, 0), last)
