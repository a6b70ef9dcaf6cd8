"""The sheets over the streams."""

from __future__ import annotations

import memory_captures
from rich.console import Console
from settling import press, settle
from textual.binding import Binding

from probe.comparison import Comparison
from tui import triage
from tui.app import FlipscopeApp
from tui.bindings import STREAMS
from tui.screens.page import Page
from tui.widgets.flow import FlowView


def words(page: Page, width: int = 90) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"), color_system=None)  # noqa: SIM115
    with console.file:
        for part in page.parts():
            console.print(part)
        return console.export_text()


async def test_help_explains_every_key_and_mark(comparison: Comparison) -> None:
    app = FlipscopeApp(comparison)
    async with app.run_test(size=(120, 36)) as pilot:
        await settle(pilot)
        await press(pilot, "question_mark")
        assert isinstance(app.screen, Page)
        text = " ".join(words(app.screen).split())
        for binding in (*STREAMS, *FlowView.BINDINGS, *FlipscopeApp.BINDINGS):
            assert isinstance(binding, Binding)
            assert binding.tooltip in text, binding
        for name, meaning in zip(triage.NAMES[1:], triage.MEANINGS[1:], strict=True):
            assert name in text
            assert meaning in text
        assert "≥0.3" in text


async def test_help_shows_the_keys_as_they_are_bound(comparison: Comparison) -> None:
    app = FlipscopeApp(comparison)
    app.set_keymap({"jump.find": "f3"})
    async with app.run_test(size=(120, 36)) as pilot:
        await settle(pilot)
        await press(pilot, "question_mark")
        assert isinstance(app.screen, Page)
        line = next(line for line in words(app.screen).splitlines() if "Find words" in line)
        assert "f3" in line
        assert "/" not in line.split("Find")[0]


async def test_facts_of_every_capture_are_listed_and_nothing_is_markup() -> None:
    made = memory_captures.captures(("f32", "[/b]\x1b[31m"))
    made[1].damage = ("[/i] the end was cut off",)
    app = FlipscopeApp(memory_captures.comparison(made))
    async with app.run_test(size=(120, 36)) as pilot:
        await settle(pilot)
        await press(pilot, "i")
        assert isinstance(app.screen, Page)
        text = words(app.screen)
        assert "\x1b" not in text
        for fact in ("[/b]", "[/i] the end was cut off", "weights=f32", "vllm 0.32.0", "fp_1", "top 20", "2026-01-02"):
            assert fact in text
        assert text.index("cut off") < text.index("reference")
