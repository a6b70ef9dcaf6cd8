"""What the flow draws, line by line, and how little of it a key repaints."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

import numpy as np
import pytest
from lanes_samples import HOSTILE, LABELS, WORDS, glyphs_of, make_lanes
from rich.cells import cell_len
from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.screen import Screen

from probe.records import Range
from tui.glyphs import Glyphs
from tui.lanes import Lanes
from tui.messages import CursorMoved
from tui.palette import DEFAULT_DARK, themes, variable_defaults
from tui.widgets.flow import FlowView

FORBIDDEN = {*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), "\u202e", "\u2066", "\u200d", "\ufeff"}


class FlowApp(App[None]):
    def __init__(self, lanes: Lanes | None, glyphs: Glyphs) -> None:
        super().__init__()
        for theme in themes():
            self.register_theme(theme)
        self.theme = DEFAULT_DARK
        self.lanes, self.glyphs = lanes, glyphs
        self.told: list[tuple[int, int]] = []
        self.heard: list[CursorMoved] = []

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return variable_defaults()

    def compose(self) -> ComposeResult:
        self.flow = FlowView(on_cursor=lambda position, lane: self.told.append((position, lane)))
        yield self.flow

    def on_mount(self) -> None:
        if self.lanes is not None:
            self.flow.show(self.lanes, self.glyphs)
        self.flow.focus()

    def on_cursor_moved(self, event: CursorMoved) -> None:
        self.heard.append(event)


Opened = Callable[..., AbstractAsyncContextManager[tuple[FlowApp, Pilot[None]]]]


@asynccontextmanager
async def opened(
    lanes: Lanes | None, glyphs: Glyphs, size: tuple[int, int] = (80, 24)
) -> AsyncIterator[tuple[FlowApp, Pilot[None]]]:
    app = FlowApp(lanes, glyphs)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        yield app, pilot


def lines_of(flow: FlowView) -> list[str]:
    return [flow.render_line(y).text for y in range(flow.size.height)]


def small(tokens: list[bytes], flips: dict[tuple[int, int], int], *, labels: tuple[str, ...] = LABELS[:3]) -> Lanes:
    """A text of one token each, with flips by (lane, position) to a token."""
    n = len(tokens)
    lanes = make_lanes(n, n, labels=labels, flips=[0.0] * len(labels), prompt_length=0)
    top1 = np.tile(np.arange(n, dtype=np.int32), (len(labels), 1))
    flip = np.zeros_like(lanes.flip)
    triage = np.zeros_like(lanes.triage)
    for (lane, position), token in flips.items():
        top1[lane, position] = token
        flip[lane, position] = True
        triage[lane, position] = 4
    return replace(
        lanes,
        ids=np.arange(n, dtype=np.int32),
        top1=top1,
        flip=flip,
        triage=triage,
        tie=np.zeros_like(flip),
        kl=np.zeros_like(lanes.kl),
        loose=np.zeros_like(lanes.loose),
    )


async def test_the_reference_reads_as_text_and_flips_stand_below_it() -> None:
    tokens = [b"SELECT", b" id", b" FROM", b" or", b"ders", b"\n"]
    lanes = small(tokens, {(2, 2): 1, (2, 3): 0})
    async with opened(lanes, glyphs_of(tokens)) as (app, _):
        lines = lines_of(app.flow)
    assert lines[0].split()[:2] == ["0", "▾0"]
    assert lines[1].rstrip() == "▸f32     SELECT id FROM or┈┈┈┈ders⏎"
    assert lines[2].rstrip() == " bf16    ·      ·  ·    ·     ·   ·"
    assert lines[3].rstrip() == " kv fp8  ·      · ▲ id ▲SELECT·   ·"
    assert all(not line.strip() for line in lines[4:])


async def test_lanes_that_never_flip_share_a_line() -> None:
    tokens = [b"a", b" b", b" c"]
    lanes = small(tokens, {(3, 1): 2}, labels=LABELS)
    async with opened(lanes, glyphs_of(tokens)) as (app, pilot):
        labels = [line[:9].strip(" ▸") for line in lines_of(app.flow)]
        assert labels[1:5] == ["f32", "int8", "3 agree", ""]
        app.flow.fold = False
        await pilot.pause()
        labels = [line[:9].strip(" ▸") for line in lines_of(app.flow)]
        assert labels[1:6] == ["f32", "bf16", "kv fp8", "int8", "int4"]
        app.flow.fold = True
        app.flow.show_lanes([True, False, False, True, True])
        await pilot.pause()
        labels = [line[:9].strip(" ▸") for line in lines_of(app.flow)]
        assert labels[1:5] == ["f32", "int8", "int4", ""]


async def test_a_missing_lane_says_why_and_does_not_count_as_agreeing() -> None:
    lanes = replace(small([b"a", b" b"], {}, labels=LABELS), missing=("", "", "server died", "", ""))
    async with opened(lanes, glyphs_of([b"a", b" b"])) as (app, _):
        lines = lines_of(app.flow)
    assert lines[0].rstrip().endswith("kv fp8: server died")
    assert lines[2].startswith(" 3 agree")


async def test_ties_loose_positions_and_unknown_distances_have_marks_of_their_own() -> None:
    tokens = [b"a", b"b", b"c", b"d", b"e"]
    lanes = small(tokens, {}, labels=LABELS[:2])
    lanes.tie[1, 1] = True
    lanes.loose[2] = True
    lanes.kl[1, 3] = np.nan
    lanes.kl[1, 4] = 0.5
    async with opened(lanes, glyphs_of(tokens)) as (app, _):
        assert lines_of(app.flow)[2][9:14] == "·≈◦?•"


async def test_the_continuation_starts_a_block_and_spans_have_brackets() -> None:
    lanes = make_lanes(60, seed=1, ranges=(Range(2, 25, "call"),), prompt_length=30)
    async with opened(lanes, glyphs_of(WORDS), (120, 40)) as (app, _):
        lines = lines_of(app.flow)
        output = next(line for line in lines if " output ─" in line)
        assert output.split()[0] == "30"
    text = "\n".join(lines)
    assert "prompt" in lines[0]
    assert " call ─" in text
    assert "╮" in text


@pytest.mark.parametrize("size", [(80, 24), (200, 50), (30, 10), (11, 5), (9, 4), (1, 1)])
@pytest.mark.parametrize("ascii_only", [False, True])
async def test_hostile_tokens_never_leave_their_cells(size: tuple[int, int], ascii_only: bool) -> None:
    lanes = make_lanes(
        400, len(HOSTILE), flips=(0, 0.1, 0.2, 0.3, 0.5), ranges=(Range(3, 90, "\x1b[31m漢"), Range(0, 400, "all"))
    )
    lanes = replace(lanes, labels=("f32", "[red]", "\x1b[31m", "漢字" * 9, "x" * 40), missing=("", "", "\x07", "", ""))
    async with opened(lanes, glyphs_of(HOSTILE, ascii_only=ascii_only), size) as (app, pilot):
        flow = app.flow
        layout = flow._laid_out()
        assert layout is not None
        for line in range(0, layout.height, max(flow.size.height, 1)):
            flow.scroll_to(y=line, animate=False)
            for y in range(flow.size.height):
                strip = flow.render_line(y)
                assert strip.cell_length == flow.size.width
                assert cell_len(strip.text) == flow.size.width
                assert not FORBIDDEN & set(strip.text)
                assert not ascii_only or strip.text.isascii()
        await pilot.press("pagedown", "n", "right", "end", "up")


async def test_a_step_repaints_two_blocks_and_lays_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    lanes = make_lanes(100_000)
    async with opened(lanes, glyphs_of(WORDS), (200, 50)) as (app, pilot):
        flow = app.flow
        layout = flow._laid_out()
        assert layout is not None
        tallest = int(np.diff(layout.lines).max())
        layouts = 0
        refresh_layout = Screen._refresh_layout

        def counted(screen: Screen[object], *args: object, **kwargs: object) -> None:
            nonlocal layouts
            layouts += 1
            refresh_layout(screen, *args, **kwargs)  # type: ignore[arg-type]

        monkeypatch.setattr(Screen, "_refresh_layout", counted)
        turned = 0
        for _ in range(100):
            drawn, top = flow.rendered_lines, flow.scroll_offset.y
            await pilot.press("right")
            drawn = flow.rendered_lines - drawn
            if flow.scroll_offset.y == top:
                assert 0 < drawn <= 2 * tallest
            else:
                turned += 1
                assert drawn <= flow.size.height
        assert turned <= 2
        for key in ("pagedown", "pageup", "ctrl+end", "ctrl+home", "down"):
            drawn = flow.rendered_lines
            await pilot.press(key)
            assert flow.rendered_lines - drawn <= flow.size.height
        assert layouts == 0


async def test_keys() -> None:
    lanes = make_lanes(3_000)
    async with opened(lanes, glyphs_of(WORDS), (100, 30)) as (app, pilot):
        flow = app.flow
        layout = flow._laid_out()
        assert layout is not None

        async def after(*keys: str) -> int:
            await pilot.press(*keys)
            top, bottom = layout.line_span(layout.block_of(flow.cursor))
            seen = flow.scroll_offset.y
            assert seen <= top
            assert bottom <= seen + flow.size.height
            return flow.cursor

        assert await after("right", "l", "l", "left") == 2
        x = layout.x_of(2)
        down = await after("j", "down", "down")
        assert layout.block_of(down) == 3
        assert layout.position_at(3, x) == down
        assert await after("k", "up", "up") == 2
        assert await after("end") == layout.span(0)[1] - 1
        assert await after("home") == 0
        assert await after("left", "up", "pageup") == 0
        page = await after("pagedown")
        assert 15 < layout.lines[layout.block_of(page)] <= 30
        assert await after("pageup") == 0
        assert await after("ctrl+end") == 2_999
        assert await after("right", "down") == 2_999
        assert flow.render_line(0).text.strip() != ""
        assert await after("ctrl+home") == 0
        assert app.told[-1] == (0, 0)
        await pilot.press("J", "J")
        assert (flow.cursor_lane, app.told[-1]) == (2, (0, 2))
        flow.show_lanes([True, True, False, True, True])
        assert flow.cursor_lane == 0
        await pilot.press("J", "J")
        assert flow.cursor_lane == 3
        await pilot.pause()
        assert (app.heard[-1].position, app.heard[-1].lane) == app.told[-1]


async def test_the_screen_turns_between_blocks() -> None:
    lanes = make_lanes(20_000)
    async with opened(lanes, glyphs_of(WORDS), (100, 30)) as (app, _):
        flow = app.flow
        layout = flow._laid_out()
        assert layout is not None
        for position in (19_999, 12_345, 0, 700, 19_990, 5_000):
            flow.move_to(position)
            assert flow.scroll_offset.y in layout.lines


async def test_flips_are_found_and_hidden_lanes_passed_over() -> None:
    tokens = [b"a", b"b", b"c", b"d", b"e", b"f"]
    lanes = small(tokens, {(1, 1): 0, (2, 3): 0, (1, 4): 2})
    async with opened(lanes, glyphs_of(tokens)) as (app, _):
        flow = app.flow
        assert [flow.next_flip(at) for at in range(-1, 5)] == [1, 1, 3, 3, 4, None]
        assert [flow.previous_flip(at) for at in range(6)] == [None, None, 1, 1, 3, 4]
        assert (flow.next_flip(0, 2), flow.previous_flip(9, 1), flow.next_flip(3, 2), flow.next_flip(0, 7)) == (
            3,
            4,
            None,
            None,
        )
        flow.show_lanes([True, False, True])
        assert (flow.next_flip(0), flow.next_flip(3)) == (3, None)


async def test_a_click_goes_to_the_token_and_its_lane() -> None:
    tokens = [b"SELECT", b" id", b" FROM", b" or", b"ders"]
    lanes = small(tokens, {(1, 1): 2, (2, 2): 1})
    async with opened(lanes, glyphs_of(tokens)) as (app, pilot):
        line = lines_of(app.flow)[1]
        await pilot.click(FlowView, offset=(line.index("FROM"), 1))
        assert (app.flow.cursor, app.flow.cursor_lane) == (2, 0)
        await pilot.click(FlowView, offset=(line.index("id"), 3))
        assert (app.flow.cursor, app.flow.cursor_lane) == (1, 2)
        await pilot.click(FlowView, offset=(70, 3))
        assert app.flow.cursor == 4
        await pilot.click(FlowView, offset=(10, 20))
        assert app.flow.cursor == 4


async def test_resize_keeps_the_cursor_in_view() -> None:
    lanes = make_lanes(5_000)
    async with opened(lanes, glyphs_of(WORDS), (120, 40)) as (app, pilot):
        app.flow.move_to(2_500)
        for size in ((60, 20), (200, 12), (80, 24)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            line = app.flow.line_of(2_500) - app.flow.scroll_offset.y
            assert 0 < line < size[1]
            assert app.flow.render_line(line).text.startswith("▸")
            assert "▾2500" in app.flow.render_line(line - 1).text or "2500▾" in app.flow.render_line(line - 1).text


async def test_nothing_and_next_to_nothing_can_be_shown() -> None:
    for lanes in (None, make_lanes(0), make_lanes(1), make_lanes(5, labels=("alone",), flips=(0.0,))):
        async with opened(lanes, glyphs_of(WORDS)) as (app, pilot):
            await pilot.press("right", "down", "pagedown", "end", "ctrl+end", "J", "up", "pageup", "home")
            await pilot.click(FlowView, offset=(3, 3))
            assert all(cell_len(line) == 80 for line in lines_of(app.flow))
            assert app.flow.next_flip(0) is None


async def test_marks_survive_without_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    tokens = [b"a", b" b", b" c"]
    async with opened(small(tokens, {(1, 1): 2}), glyphs_of(tokens)) as (app, _):
        picture = app.export_screenshot()
    assert "▲" in picture
    assert "#f8f085" not in picture


@pytest.mark.parametrize("theme", ["textual-light", "ansi-dark", "nord", "flipscope-light"])
async def test_any_theme_will_do(theme: str) -> None:
    async with opened(make_lanes(200), glyphs_of(WORDS)) as (app, pilot):
        before = app.flow.render_line(1)
        app.theme = theme
        await pilot.pause()
        after = app.flow.render_line(1)
        assert after.text == before.text
        assert [segment.style for segment in after] != [segment.style for segment in before]
