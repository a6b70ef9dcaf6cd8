"""The streams screen under strain: every size, tokens and names that try to break it, no colour."""

from __future__ import annotations

import memory_captures
import pytest
from rich.cells import cell_len
from settling import press, settle

from probe.comparison import Comparison
from tui.app import FlipscopeApp
from tui.screens.streams import StreamsScreen
from tui.widgets.alternatives import Alternatives
from tui.widgets.banner import Banner
from tui.widgets.flow import FlowView
from tui.widgets.prompt_list import PromptList
from tui.widgets.status import StatusBar
from tui.widgets.titlebar import TitleBar

SIZE = (120, 36)
SIZES = [(80, 24), (120, 36), (200, 50)]


@pytest.mark.parametrize("size", SIZES)
async def test_every_part_fits_its_place(comparison: Comparison, size: tuple[int, int]) -> None:
    app = FlipscopeApp(comparison)
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        for other in (size, *SIZES, (60, 12), (20, 6), (5, 3), size):
            await pilot.resize_terminal(*other)
            await settle(pilot)
            for kind in (TitleBar, FlowView, Alternatives, PromptList, StatusBar, Banner):
                widget = app.screen.query_one(kind)
                for y in range(widget.size.height if widget.display else 0):
                    strip = widget.render_line(y)
                    assert strip.cell_length == widget.size.width
                    assert cell_len(strip.text) == widget.size.width
        flow = app.screen.query_one(FlowView)
        assert flow.size.width >= 48
        assert flow.size.height >= 10


WALK = [
    "n", "N", "right", "down", "up", "left", "home", "end", "pagedown", "pageup", "ctrl+end", "ctrl+home", "at",
    "number_sign", "right_square_bracket", "left_square_bracket", "a", "p", "2", "3", "2", "3", "t", "i", "escape",
    "question_mark", "escape", "g", "escape", "slash", "escape", "tab", "down", "tab", "down", "escape", "n", "enter",
]  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
async def test_hostile_tokens_and_names_do_no_harm(size: tuple[int, int]) -> None:
    names = {"[/red]\x1b[2J": "[bold\x07", "\u202eevil": "[@click=app.quit]x[/]", "x" * 300: "", "": "漢字"}
    made = memory_captures.captures(("[/INST]", "\x1b]0;x\x07", "漢字👩"), prompts=names, hostile=True, positions=120)
    for capture in made:
        capture.damage = ("[/b] \x1b[31m",)
    app = FlipscopeApp(memory_captures.comparison(made))
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        for key in WALK:
            await press(pilot, key)
            if isinstance(app.screen, StreamsScreen):
                _assert_harmless(app)
        for token_id in range(len(memory_captures.HOSTILE)):
            app.screen.query_one(FlowView).move_to(token_id)
            await press(pilot, "slash", "number_sign", *str(token_id), "enter")
            _assert_harmless(app)


def _assert_harmless(app: FlipscopeApp) -> None:
    for kind in (TitleBar, FlowView, Alternatives, PromptList, StatusBar, Banner):
        widget = app.screen.query_one(kind)
        for y in range(widget.size.height if widget.display else 0):
            strip = widget.render_line(y)
            assert strip.cell_length == widget.size.width
            for character in strip.text:
                code = ord(character)
                assert code >= 0x20 and not 0x7F <= code <= 0x9F, ascii(strip.text)
                assert not 0x202A <= code <= 0x202E and not 0x2066 <= code <= 0x2069, ascii(strip.text)
                assert not 0xD800 <= code <= 0xDFFF


async def test_marks_stand_without_colour(comparison: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = FlipscopeApp(comparison)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        picture = app.export_screenshot()
        assert any(mark in picture for mark in "▵△▲")
        assert "▶" in picture
        assert "▸" in picture
