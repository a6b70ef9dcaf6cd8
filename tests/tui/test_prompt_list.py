"""The list of prompts."""

from __future__ import annotations

import memory_captures
import pytest
from settling import press, settle, text_of

from probe.comparison import Comparison
from tui.app import FlipscopeApp
from tui.widgets.prompt_list import PromptList

SIZE = (120, 36)


def listed(app: FlipscopeApp) -> list[str]:
    return text_of(app.screen.query_one(PromptList))


def current(app: FlipscopeApp) -> str:
    return app.screen.query_one(PromptList)._session.prompt_id


async def test_prompts_stand_under_their_category_with_counts(comparison: Comparison) -> None:
    app = FlipscopeApp(comparison)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        session = app.screen.query_one(PromptList)._session
        lines = listed(app)
        assert lines[0].split() == ["prompts", "flips"]
        assert [line.split()[0] for line in lines[1:8]] == [
            "facts", "▌", "facts-river", "code", "sql-orders", "config", "cisco-acl",
        ]  # fmt: skip
        flips = session.tally("sql-orders").flips
        assert flips is not None
        assert lines[5].split()[1] == str(sum(flips))
        assert lines[5].split()[2] in "~▵△▲"


async def test_a_wide_list_counts_each_candidate(comparison: Comparison) -> None:
    app = FlipscopeApp(comparison)
    async with app.run_test(size=(200, 50)) as pilot:
        await settle(pilot)
        session = app.screen.query_one(PromptList)._session
        assert listed(app)[0].split() == ["prompts", "bf16", "int4"]
        flips = session.tally("sql-orders").flips
        assert flips is not None
        assert listed(app)[5].split()[1:3] == [str(count) for count in flips]


async def test_an_unreadable_prompt_says_so_and_opens_nothing() -> None:
    made = memory_captures.captures()
    made[2].broken = frozenset({"sql-orders"})
    app = FlipscopeApp(memory_captures.comparison(made))
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        assert "unreadable" in listed(app)[5]
        await press(pilot, "right_square_bracket", "right_square_bracket")
        assert current(app) == "facts-river"
        assert any("checksum" in str(note.message) for note in app._notifications)
        await press(pilot, "n", "n")
        assert current(app) == "facts-river"


async def test_keys_walk_the_list_when_it_has_the_focus(comparison: Comparison) -> None:
    app = FlipscopeApp(comparison)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        app.screen.query_one(PromptList).focus()
        await press(pilot, "down", "j")
        assert current(app) == "sql-orders"
        await press(pilot, "end", "down")
        assert current(app) == "cisco-acl"
        await press(pilot, "home", "up", "k")
        assert current(app) == "facts-capital"
        await press(pilot, "enter")
        assert app.focused is app.screen.query_one("#flow")


@pytest.mark.parametrize(
    ("line", "prompt"),
    [(3, "facts-river"), (5, "sql-orders"), (4, "facts-capital"), (0, "facts-capital"), (20, "facts-capital")],
)
async def test_a_click_opens_a_prompt_and_nothing_on_a_heading(comparison: Comparison, line: int, prompt: str) -> None:
    app = FlipscopeApp(comparison)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        await pilot.hover(PromptList, offset=(4, line))
        await pilot.click(PromptList, offset=(4, line))
        await settle(pilot)
        assert current(app) == prompt


async def test_a_long_list_keeps_the_current_prompt_in_view() -> None:
    names = {f"prompt-{number}": f"kind {number // 10}" for number in range(60)}
    made = memory_captures.captures(prompts=names, positions=12)
    app = FlipscopeApp(memory_captures.comparison(made), prompt="prompt-41")
    async with app.run_test(size=(120, 24)) as pilot:
        await settle(pilot)
        assert any(line.startswith("▌ prompt-41") for line in listed(app))
        await press(pilot, "left_square_bracket", "left_square_bracket")
        assert any(line.startswith("▌ prompt-39") for line in listed(app))
        await pilot.resize_terminal(120, 60)
        await settle(pilot)
        assert any(line.startswith("▌ prompt-39") for line in listed(app))
        widget = app.screen.query_one(PromptList)
        widget._scroll_rows(0)
        assert listed(app)[1].split() == ["kind", "0"]
        widget._scroll_rows(10_000)
        assert "prompt-59" in listed(app)[-1]
