"""Words, ids and positions."""

from __future__ import annotations

import numpy as np
import pytest

from probe.records import Piece
from tui.search import find, place

PIECES = (b"The", b" por", b"t ", b"\xc3", b"\xa4", b"", b"[/INST]")
IDS = np.array([0, 1, 2, 3, 4, 5, 0, 6, 1, 2], dtype=np.int32)


def piece(token_id: int) -> Piece:
    return Piece(PIECES[token_id])


@pytest.mark.parametrize(
    ("query", "positions"),
    [
        ("port", [1, 8]),
        ("PORT", []),
        ("the", [0, 6]),
        ("The", [0, 6]),
        ("ä", [3]),
        ("[/INST]", [7]),
        ("#0", [0, 6]),
        ("#99999999999999999999", []),
        ("#x", []),
        ("", []),
        ("nowhere", []),
    ],
)
def test_find(query: str, positions: list[int]) -> None:
    assert find(IDS, piece, query).tolist() == positions


def test_find_in_nothing() -> None:
    assert find(IDS[:0], piece, "the").tolist() == []


@pytest.mark.parametrize(
    ("answer", "position"),
    [
        ("30", 30),
        ("1,000", 99),
        ("+5", 45),
        ("-5", 35),
        ("-500", 0),
        ("50%", 49),
        ("999%", 99),
        ("end", 99),
        (" Start ", 0),
        ("", None),
        ("x", None),
        ("+", None),
        ("%", None),
        ("1.5", None),
        ("٣", None),
        ("9" * 40, None),
    ],
)
def test_place(answer: str, position: int | None) -> None:
    assert place(answer, 40, 100) == position


def test_place_in_nothing() -> None:
    assert place("5", 0, 0) == 0
