"""Numbers on the screen: short, of one width, small told apart from none."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.style import Style

from tui import figures
from tui.painting import Line, clip


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.00"), (0.9997, "1.00"), (0.9994, ".999"), (0.5, ".500"), (0.0005, ".001"), (0.00049, "5e-4"),
        (9.6e-5, "1e-4"), (3e-12, "e-12"), (0.0, "0"), (math.nan, "·"),
    ],
)  # fmt: skip
def test_probability(value: float, text: str) -> None:
    assert figures.probability(value) == text


@given(st.floats(0, 1.01))
def test_a_probability_has_room_in_four_cells(value: float) -> None:
    assert cell_len(figures.probability(value)) <= 4
    assert (figures.probability(value) == "0") == (value < 1e-99)


@given(st.floats(0, 1e4))
def test_a_divergence_has_room_in_seven_cells(value: float) -> None:
    assert cell_len(figures.nats(value)) <= 7


def test_changes_carry_their_sign() -> None:
    assert figures.change(0.12) == "+.120"
    assert figures.change(-0.12) == "−.120"
    assert figures.change(-2e-5) == "−2e-5"
    assert figures.change(0.0) == "0"
    assert figures.change(math.nan) == "·"


def test_rank_shifts() -> None:
    assert [figures.shift(1, 1), figures.shift(3, 1), figures.shift(1, 12), figures.shift(1, 50_000)] == [
        "=",
        "↑2",
        "↓11",
        "↓99",
    ]


@given(st.floats(-1, 2) | st.just(math.nan), st.integers(-1, 12))
def test_bars_fill_their_cells(value: float, width: int) -> None:
    assert cell_len(figures.bar(value, width)) == max(width, 0)
    assert cell_len(figures.column(value)) == 1


@given(st.text(alphabet="aä漢👩 ", max_size=30), st.integers(0, 20))
def test_clipped_text_fits(text: str, width: int) -> None:
    assert cell_len(clip(text, width)) <= width


@given(st.lists(st.text(alphabet="aä漢 ", max_size=12), max_size=6), st.integers(0, 30))
def test_a_line_is_exactly_as_wide_as_asked(texts: list[str], width: int) -> None:
    line = Line(width)
    for text in texts:
        line.add(text, Style(), width=5 if len(text) % 2 else None, right=len(text) % 3 == 0)
    strip = line.strip(Style())
    assert strip.cell_length == width
    assert cell_len(strip.text) == width
