"""The panel with every runtime's alternatives, and the rows it aligns."""

from __future__ import annotations

import math

import numpy as np
import pytest
from settling import press, settle, text_of

from probe.comparison import Comparison
from probe.stream import NO_TOKEN, TokenStream
from tui.app import FlipscopeApp
from tui.choices import UNLISTED, choices_at
from tui.widgets.alternatives import FORMATS, Alternatives
from tui.widgets.status import StatusBar

WIDE = (160, 40)


def stream(rows: list[dict[int, float]], ids: list[int], logprob: list[float], rank: list[int]) -> TokenStream:
    """Rows of id to log-prob, best first."""
    k = max(len(row) for row in rows)
    top_ids = np.full((len(rows), k), NO_TOKEN, np.int32)
    top = np.full((len(rows), k), np.nan, np.float32)
    for at, row in enumerate(rows):
        top_ids[at, : len(row)], top[at, : len(row)] = list(row), list(row.values())
    return TokenStream(
        "forced", 0, np.array(ids, np.int32), np.array(logprob, np.float32), np.array(rank, np.int32), top_ids, top
    )


REFERENCE = stream([{}, {7: -0.5, 3: -1.5, 9: -2.5}], [1, 3], [math.nan, -1.5], [0, 0])
CANDIDATE = stream([{}, {3: -0.4, 8: -1.25, 5: -2.5}], [1, 3], [math.nan, -0.4], [0, 0])


def test_rows_follow_the_reference_then_the_others_by_probability() -> None:
    choices = choices_at([REFERENCE, CANDIDATE], 1)
    assert [row.token_id for row in choices.rows] == [7, 3, 9, 8, 5]
    assert [row.ranks for row in choices.rows] == [(1, 0), (2, 1), (3, 0), (0, 2), (0, 3)]
    assert choices.rows[0].logprobs == (-0.5, None)
    assert choices.actual == 3
    assert choices.top(0) == 7
    assert choices.top(1) == 3
    assert choices.mass[0] == pytest.approx(math.exp(-0.5) + math.exp(-1.5) + math.exp(-2.5))
    assert choices.least[1] == -2.5


def test_the_actual_token_outside_the_list_keeps_the_servers_rank() -> None:
    outside = stream([{}, {7: -0.5}], [1, 4], [math.nan, -9.0], [0, 312])
    choices = choices_at([outside, None], 1)
    assert [(row.token_id, row.ranks) for row in choices.rows] == [(7, (1, UNLISTED)), (4, (312, UNLISTED))]
    assert choices.mass[0] == pytest.approx(math.exp(-0.5) + math.exp(-9.0))
    assert choices.least[0] == -0.5, "the bound on what is not listed comes from the list"
    assert math.isnan(choices.mass[1])


def test_nothing_is_listed_at_the_first_token_nor_outside_the_text() -> None:
    assert choices_at([REFERENCE, CANDIDATE], 0).rows == ()
    assert choices_at([REFERENCE, CANDIDATE], 5).actual == NO_TOKEN
    assert choices_at([None, None], 1).actual == NO_TOKEN


async def test_the_panel_shows_every_runtime_at_the_cursor(comparison: Comparison) -> None:
    app = FlipscopeApp(comparison, position=120)
    async with app.run_test(size=WIDE) as pilot:
        await settle(pilot)
        panel = app.screen.query_one(Alternatives)
        lines = text_of(panel)
        opened = app.screen.query_one(Alternatives)._session.opened
        assert opened is not None
        choices = choices_at(opened.streams, 120)
        assert lines[0].startswith(" 120 ")
        assert f"id {choices.actual}" in lines[0]
        assert lines[1].split()[-3:] == ["f32", "bf16", "int4"]
        actual = [line for line in lines if line.startswith("▶")]
        assert len(actual) == 1
        firsts = sum(line.count("▸") for line in lines[2:-1])
        assert firsts == 3, "every runtime has one first choice"
        assert sum(line.count("–") for line in lines[2:-1]) > 0
        assert lines[-1].split()[0] == "listed"
        assert all(panel.render_line(y).cell_length == panel.size.width for y in range(panel.size.height))


async def test_a_flip_is_marked_and_stands_on_its_colour(comparison: Comparison) -> None:
    app = FlipscopeApp(comparison)
    async with app.run_test(size=WIDE) as pilot:
        await settle(pilot)
        panel = app.screen.query_one(Alternatives)
        session = panel._session
        assert session.opened is not None
        flipped = np.flatnonzero(session.opened.lanes.flip[:, session.position])
        assert len(flipped)
        grounds = [
            segment.style.bgcolor
            for y in range(panel.size.height)
            for segment in panel.render_line(y)
            if segment.text.startswith("▸") and segment.style is not None
        ]
        assert len(set(grounds)) > 1


async def test_it_scrolls_and_begins_again_at_the_next_token(comparison: Comparison) -> None:
    app = FlipscopeApp(comparison, position=120)
    async with app.run_test(size=(120, 24)) as pilot:
        await settle(pilot)
        panel = app.screen.query_one(Alternatives)
        first = text_of(panel)[2]
        assert "more" in text_of(panel)[1]
        panel.focus()
        await press(pilot, "down", "j")
        assert text_of(panel)[2] != first
        await press(pilot, "up", "k", "k")
        assert text_of(panel)[2] == first
        panel.action_scroll(1000)
        assert "more" not in text_of(panel)[1]
        await press(pilot, "escape", "l")
        assert panel._top == 0


def test_formats_are_ordered_from_roomy_to_tight() -> None:
    widths = [form.total(range(5)) for form in FORMATS]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] <= 42


async def test_colours_follow_the_theme(comparison: Comparison) -> None:
    app = FlipscopeApp(comparison, theme="flipscope-dark")
    async with app.run_test(size=WIDE) as pilot:
        await settle(pilot)
        grounds = []
        for theme in ("flipscope-dark", "flipscope-light"):
            app.theme = theme
            await settle(pilot)
            row = list(app.screen.query_one(Alternatives).render_line(4))
            status = list(app.screen.query_one(StatusBar).render_line(0))
            grounds.append([part[0].style.bgcolor for part in (row, status) if part[0].style is not None])
        assert len(grounds[0]) == 2
        assert all(dark != light for dark, light in zip(*grounds, strict=True))
