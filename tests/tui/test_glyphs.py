"""No token can move the cursor, hide, or push its neighbours aside."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lanes_samples import HOSTILE, WORDS, glyphs_of
from rich.cells import cell_len

from probe.records import Piece
from tui.glyphs import BLANK, BREAK, LEAD, MAX_CELLS, ODD, SPECIAL, Glyphs, safe_text

FORBIDDEN = {*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0x200B, 0x200D, 0xFEFF}


def show(data: bytes, *, ascii_only: bool = False) -> str:
    return glyphs_of([data], ascii_only=ascii_only).text(0)


@pytest.mark.parametrize(
    ("data", "text", "flow"),
    [
        (b" the", "␣the", " the"),
        (b"\n", "⏎", "⏎"),
        (b"\t", "⇥", "⇥"),
        (b"   ", "␣␣␣", "␣␣␣"),
        (b" a b ", "␣a b␣", " a b␣"),
        (b";\n  ", ";⏎␣␣", ";⏎␣␣"),
        (b"\x1b[31m", "␛[31m", "␛[31m"),
        (b"\x00AB", "␀AB", "␀AB"),
        (b"\xe6\xbc", "<E6><BC>", "<E6><BC>"),
        (b"\xed\xa0\x80", "<ED><A0><80>", "<ED><A0><80>"),
        (b"ab\xe6", "ab<E6>", "ab<E6>"),
        ("\u202egnp".encode(), "<202E>gnp", "<202E>gnp"),
        ("\u0301".encode(), "◌\u0301", "◌\u0301"),
        (b"", "∅", "∅"),
        (b"[/INST]", "[/INST]", "[/INST]"),
    ],
)
def test_what_a_token_looks_like(data: bytes, text: str, flow: str) -> None:
    glyphs = glyphs_of([data])
    assert (glyphs.text(0), glyphs.flow(0)) == (text, flow)


def test_unknown_ids_say_so() -> None:
    glyphs = glyphs_of([])
    assert glyphs.text(1234) == "<id 1234>"
    assert glyphs.raw(1234) == "unknown  id 1234"
    assert glyphs.text(-1) == "-"


def test_the_truth_is_printable_ascii() -> None:
    glyphs = glyphs_of(HOSTILE)
    for token in range(len(HOSTILE)):
        assert glyphs.raw(token).isascii()
        assert glyphs.raw(token).isprintable()
    assert glyphs_of([b" \xc3\xa9"]).raw(0) == "' \\xe9'  20 c3 a9  id 0"
    assert "server's words" in Glyphs(lambda _: Piece(b"x", exact=False)).raw(0)


def test_marks_stacked_on_one_letter_are_capped() -> None:
    assert show(("Z" + "\u0301" * 40).encode()).count("\u0301") == 3


def test_long_tokens_are_clipped_by_cells() -> None:
    assert cell_len(show(b"x" * 2000)) == MAX_CELLS
    wide = show("漢".encode() * 700)
    assert cell_len(wide) == MAX_CELLS
    assert wide.endswith("…")
    assert show("漢".encode() * 12) == "漢" * 12


@given(st.binary(max_size=40), st.binary(max_size=40), st.booleans())
@example("நி".encode(), "க்".encode(), False)
@example("🇫".encode(), "🇮".encode(), False)
def test_any_bytes_are_drawn_safely(one: bytes, other: bytes, ascii_only: bool) -> None:
    glyphs = glyphs_of([one, other], ascii_only=ascii_only)
    cells = glyphs.cells(np.array([0, 1], dtype=np.int32))
    for token in (0, 1):
        for text in (glyphs.text(token), glyphs.flow(token)):
            assert not FORBIDDEN & set(map(ord, text))
            text.encode("utf-8")
            assert cell_len(text) == cells[token]
            assert 1 <= cells[token] <= MAX_CELLS
            assert not ascii_only or text.isascii()
    # Two tokens side by side are as wide as both: nothing joins across the edge.
    assert cell_len(glyphs.text(0) + glyphs.text(1)) == cells.sum()


@given(st.text(max_size=12), st.text(max_size=12))
def test_any_text_keeps_to_its_cells(one: str, other: str) -> None:
    left, right = safe_text(one)[0], safe_text(other)[0]
    assert not FORBIDDEN & set(map(ord, left))
    assert cell_len(left + right) == cell_len(left) + cell_len(right)


def test_flags() -> None:
    glyphs = glyphs_of([b" a", b"\n", b"  ", b"<|end|>", b"\xe6", b"a", b"x\n  "])
    flags = glyphs.flags(np.arange(7, dtype=np.int32)).tolist()
    assert flags == [LEAD, BLANK | BREAK, BLANK, SPECIAL, ODD, 0, BREAK]


def test_ids_are_worked_out_when_they_are_asked_for_and_once() -> None:
    asked: list[int] = []

    def pieces(token: int) -> Piece:
        asked.append(token)
        return Piece(WORDS[token % len(WORDS)])

    glyphs = Glyphs(pieces, np.array([3, 3, 5], dtype=np.int32))
    assert asked == [3, 5]
    assert glyphs.cells(np.array([[5, 3], [9, 5]], dtype=np.int32)).shape == (2, 2)
    assert glyphs.text(9) == "␣interface"
    assert asked == [3, 5, 9]
    assert glyphs.widths[3] == glyphs.cells(np.array([3], dtype=np.int32))[0]


def test_a_hostile_id_costs_no_memory() -> None:
    glyphs = glyphs_of(WORDS)
    ids = np.array([2**31 - 1, 0, -1, -(2**31)], dtype=np.int32)
    assert glyphs.cells(ids).tolist() == [len("<id 2147483647>"), 4, 1, 1]
    assert glyphs.flags(ids).tolist() == [ODD, LEAD, ODD, ODD]
    assert len(glyphs.widths) == 1
