"""The main screen, key by key."""

from __future__ import annotations

import threading
from typing import Any

import memory_captures
import numpy as np
import pytest
from settling import press, settle, text_of
from textual.binding import Binding
from textual.geometry import Region
from textual.pilot import Pilot
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input

from probe.comparison import Comparison
from probe.errors import InputError, NotComparableError
from tui.app import FlipscopeApp
from tui.bindings import STREAMS
from tui.screens.help import HelpScreen
from tui.screens.info import InfoScreen
from tui.screens.loading import LoadingScreen
from tui.screens.streams import StreamsScreen
from tui.session import Session
from tui.widgets.alternatives import Alternatives
from tui.widgets.banner import Banner
from tui.widgets.flow import FlowView
from tui.widgets.prompt_list import PromptList
from tui.widgets.status import StatusBar
from tui.widgets.titlebar import TitleBar

SIZE = (120, 36)


def streams(app: FlipscopeApp) -> tuple[Session, FlowView]:
    assert isinstance(app.screen, StreamsScreen)
    return app.screen._session, app.screen.query_one(FlowView)


def said(app: FlipscopeApp) -> str:
    return text_of(app.screen.query_one(StatusBar))[0]


def status(app: FlipscopeApp) -> str:
    return "\n".join(text_of(app.screen.query_one(StatusBar)))


async def answer(pilot: Pilot[Any], key: str, text: str) -> None:
    """Open a question with a key and answer it."""
    await pilot.press(key)
    await settle(pilot)
    pilot.app.screen.query_one(Input).value = text
    await press(pilot, "enter")


async def test_the_first_frame_does_not_wait_and_early_keys_do_no_harm(comparison: Comparison) -> None:
    go = threading.Event()

    def load() -> Comparison:
        assert go.wait(20)
        return comparison

    app = FlipscopeApp(load, prompt="sql-orders", position=33)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        assert isinstance(app.screen, LoadingScreen)
        for key in ("n", "N", "right_square_bracket", "a", "p", "1", "t", "g", "slash", "question_mark", "i", "down"):
            await pilot.press(key)
        assert isinstance(app.screen, LoadingScreen)
        go.set()
        await settle(pilot)
        session, flow = streams(app)
        assert (session.prompt_id, flow.cursor) == ("sql-orders", 33)
        assert app.focused is flow


async def test_an_error_while_loading_ends_the_app_with_it() -> None:
    def load() -> Comparison:
        raise NotComparableError("tokenizers differ: ab / cd")

    app = FlipscopeApp(load)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
    assert isinstance(app.return_value, NotComparableError)
    assert app.return_code == 2


async def test_an_unknown_prompt_ends_the_app_with_the_known_ones(comparison: Comparison) -> None:
    app = FlipscopeApp(comparison, prompt="nowhere")
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
    assert isinstance(app.return_value, InputError)
    assert "facts-river" in app.return_value.hint


def test_an_unknown_theme_is_refused_with_the_known_ones(comparison: Comparison) -> None:
    with pytest.raises(InputError) as caught:
        FlipscopeApp(comparison, theme="beige")
    assert "flipscope-dark" in caught.value.hint


def test_every_key_is_named_and_explained() -> None:
    bindings = [*STREAMS, *(each for widget in (FlowView, PromptList, Alternatives) for each in widget.BINDINGS)]
    ids = []
    for binding in bindings:
        assert isinstance(binding, Binding)
        assert binding.id and binding.description and binding.tooltip.endswith((".", ":")), binding
        ids.append(binding.id)
    assert len(ids) == len(set(ids))
    keys = [key for binding in STREAMS if isinstance(binding, Binding) for key in binding.key.split(",")]
    assert len(keys) == len(set(keys))


async def test_the_cursor_keys_move_status_and_alternatives(comparison: Comparison) -> None:
    app = FlipscopeApp(comparison, position=100)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        session, flow = streams(app)
        for key, position in (
            ("right", 101),
            ("l", 102),
            ("left", 101),
            ("h", 100),
            ("ctrl+home", 0),
            ("ctrl+end", 199),
        ):
            await press(pilot, key)
            assert flow.cursor == session.position == position
            assert f" {position}/199" in status(app)
            assert text_of(app.screen.query_one(Alternatives))[0].startswith(f" {position} ")
        await press(pilot, "up", "k", "pageup")
        assert session.position < 199


async def test_flips_are_walked_across_prompts_and_round_the_end(comparison: Comparison) -> None:
    app = FlipscopeApp(comparison, position=0)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        session, flow = streams(app)
        assert session.opened is not None
        flips = np.flatnonzero(session.opened.lanes.flip.any(axis=0)).tolist()
        for position in flips[:3]:
            await press(pilot, "n")
            assert session.position == position
        await press(pilot, "N")
        assert session.position == flips[1]
        flow.move_to(199)
        await press(pilot, "n")
        assert session.prompt_id == "facts-river"
        assert session.position == session.edge_flip("facts-river", 1)
        await press(pilot, "N")
        assert session.prompt_id == "facts-capital"
        assert session.position == flips[-1]
        flow.move_to(0)
        await press(pilot, "N")
        assert session.prompt_id == "cisco-acl"
        assert "round to the last prompt" in said(app)
        await press(pilot, "n")
        assert session.prompt_id == "facts-capital"
        assert "round to the first prompt" in said(app)


async def test_travel_passes_over_prompts_without_flips() -> None:
    made = memory_captures.captures(quiet=frozenset({"facts-river", "sql-orders"}))
    app = FlipscopeApp(memory_captures.comparison(made))
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        session, flow = streams(app)
        flow.move_to(199)
        await press(pilot, "n")
        assert session.prompt_id == "cisco-acl"


async def test_no_flip_anywhere_is_said() -> None:
    made = memory_captures.captures(quiet=frozenset(memory_captures.PROMPTS))
    app = FlipscopeApp(memory_captures.comparison(made))
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        await press(pilot, "n")
        assert "no flip of any shown runtime" in said(app)
        await press(pilot, "number_sign")
        assert "no flip of int4" in said(app)


async def test_shifted_digits_walk_the_flips_of_one_runtime(comparison: Comparison) -> None:
    app = FlipscopeApp(comparison, position=0)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        session, flow = streams(app)
        assert session.opened is not None
        await press(pilot, "at")
        assert session.position == np.flatnonzero(session.opened.lanes.flip[1])[0]
        assert session.lane == flow.cursor_lane == 1
        await press(pilot, "number_sign")
        assert session.lane == 2
        before = session.position
        await press(pilot, "exclamation_mark", "dollar_sign", "percent_sign")
        assert session.position == before
        assert "f32 is the reference" in said(app)


async def test_prompts_are_opened_in_turn_and_remember_the_place(comparison: Comparison) -> None:
    app = FlipscopeApp(comparison, position=150)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        session, flow = streams(app)
        await press(pilot, "right_square_bracket")
        assert session.prompt_id == "facts-river"
        assert "facts-river" in text_of(app.screen.query_one(TitleBar))[0]
        await press(pilot, "left_square_bracket")
        assert (session.prompt_id, flow.cursor) == ("facts-capital", 150)
        await press(pilot, "left_square_bracket")
        assert session.prompt_id == "cisco-acl"
        for _ in range(3):
            await pilot.press("right_square_bracket")
        await settle(pilot)
        assert session.prompt_id == "sql-orders", "keys that come faster than prompts open are all counted"


async def test_go_to_a_position(comparison: Comparison) -> None:
    app = FlipscopeApp(comparison, position=10)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        session, _ = streams(app)
        for text, position in (("42", 42), ("+5", 47), ("50%", 99), ("end", 199), ("", 199)):
            await answer(pilot, "g", text)
            assert session.position == position
        await answer(pilot, "g", "[/x]\x1b")
        assert session.position == 199
        assert "is no position" in said(app)
        await press(pilot, "g", "escape")
        assert session.position == 199
        assert isinstance(app.screen, StreamsScreen)


async def test_find_words_and_ids(comparison: Comparison) -> None:
    app = FlipscopeApp(comparison, position=0)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        session, _ = streams(app)
        assert session.opened is not None
        ids = session.opened.lanes.ids
        places = np.flatnonzero(ids == memory_captures.WORDS.index(" router"))
        await answer(pilot, "slash", "Router")
        assert "does not occur" in said(app)
        await answer(pilot, "slash", " router")
        first = session.position
        assert first in places
        await press(pilot, "slash", "enter")
        assert session.position in places
        assert session.position != first or len(places) == 1
        await answer(pilot, "slash", f"#{ids[77]}")
        assert ids[session.position] == ids[77]
        await answer(pilot, "slash", "[/INST]")
        assert "[/INST] does not occur" in said(app)


async def test_alternatives_are_shown_and_hidden(comparison: Comparison) -> None:
    app = FlipscopeApp(comparison)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        panel = app.screen.query_one(Alternatives)
        assert not panel.display
        await press(pilot, "a")
        assert panel.display
        assert panel.region.width == 80
        assert any(line.startswith("▶") for line in text_of(panel))
        await press(pilot, "enter")
        assert not panel.display
        await pilot.resize_terminal(140, 40)
        await settle(pilot)
        assert not panel.display, "what the user closed stays closed"
        await press(pilot, "a")
        assert panel.region.x > 40
        assert panel.region.height > 20


async def test_the_list_is_shown_and_hidden(comparison: Comparison) -> None:
    app = FlipscopeApp(comparison)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        prompts = app.screen.query_one(PromptList)
        assert not prompts.display
        await press(pilot, "p")
        assert prompts.display
        prompts.focus()
        await press(pilot, "p")
        assert not prompts.display
        assert app.focused is app.screen.query_one(FlowView)


async def test_lanes_are_shown_and_hidden(comparison: Comparison) -> None:
    app = FlipscopeApp(comparison, position=0)
    async with app.run_test(size=(160, 40)) as pilot:
        await settle(pilot)
        session, _ = streams(app)
        assert session.opened is not None
        await press(pilot, "3")
        assert session.shown == [True, True, False]
        assert "int4 off" in text_of(app.screen.query_one(TitleBar))[0]
        assert "int4" not in text_of(app.screen.query_one(Alternatives))[1]
        assert "int4" not in status(app)
        await press(pilot, "n")
        assert session.position == np.flatnonzero(session.opened.lanes.flip[1])[0]
        await press(pilot, "1")
        assert session.shown[0]
        assert "it stays" in said(app)
        await press(pilot, "2")
        assert session.shown == [True, False, False]
        await press(pilot, "n", "4", "5")
        await press(pilot, "right_square_bracket")
        assert session.shown == [True, False, False], "hidden in the next prompt too"
        await press(pilot, "2", "3")
        assert session.shown == [True, True, True]


async def test_themes_take_turns(comparison: Comparison) -> None:
    app = FlipscopeApp(comparison)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        seen = []
        for _ in app._themes:
            await press(pilot, "t")
            seen.append(app.theme)
        assert sorted(seen) == sorted(theme.name for theme in app._themes)
        app.theme = "textual-light"
        await settle(pilot)
        await press(pilot, "t")
        assert app.theme.startswith("flipscope")


async def test_info_and_help_open_and_close(comparison: Comparison) -> None:
    app = FlipscopeApp(comparison)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        for key, screen in (("i", InfoScreen), ("question_mark", HelpScreen)):
            for close in (key, "escape", "q", "enter"):
                await press(pilot, key)
                assert isinstance(app.screen, screen)
                await press(pilot, "down", "j", "up", "pagedown", close)
                assert isinstance(app.screen, StreamsScreen)


async def test_notes_are_shown_and_lead_to_all_of_them() -> None:
    made = memory_captures.captures()
    made[1].damage = ("the end was cut off after sql-orders [/b]\x1b[31m",)
    app = FlipscopeApp(memory_captures.comparison(made))
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        banner = app.screen.query_one(Banner)
        assert banner.display
        assert "cut off after" in text_of(banner)[0]
        assert "\x1b" not in text_of(banner)[0]
        await pilot.click(Banner)
        await settle(pilot)
        assert isinstance(app.screen, InfoScreen)
        assert "[/b]" in app.export_screenshot(simplify=True).replace("&#91;", "[")


async def test_no_notes_no_banner(session: Session) -> None:
    session.notes = ()
    assert not Banner(session).display


async def test_one_key_is_one_frame_without_a_layout(comparison: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    app = FlipscopeApp(comparison, position=100)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        frames: list[set[str]] = []
        layouts: list[bool] = []
        painted: set[str] = set()
        display = app._display
        refresh_layout = app.screen._refresh_layout

        def count_frame(screen: Any, renderable: Any) -> None:
            if painted:
                frames.append(set(painted))
                painted.clear()
            display(screen, renderable)

        def count_layout(*args: Any, **kwargs: Any) -> None:
            layouts.append(True)
            refresh_layout(*args, **kwargs)

        for widget in (app.screen.query_one(kind) for kind in (FlowView, StatusBar, Alternatives)):
            _record(widget, painted)
        monkeypatch.setattr(app, "_display", count_frame)
        monkeypatch.setattr(app.screen, "_refresh_layout", count_layout)
        for _ in range(5):
            await press(pilot, "right")
        assert layouts == []
        assert frames == [{"flow", "status", "alternatives"}] * 5


def _record(widget: Widget, painted: set[str]) -> None:
    render = widget.render_lines

    def lines(crop: Region) -> list[Strip]:
        painted.add(str(widget.id))
        return render(crop)

    widget.render_lines = lines  # type: ignore[method-assign]


async def test_the_palette_offers_every_key(comparison: Comparison) -> None:
    app = FlipscopeApp(comparison)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        titles = [command.title for command in app.get_system_commands(app.screen)]
        for title in (
            "jump: next flip",
            "jump: previous prompt",
            "view: lane 3",
            "view: theme",
            "app: help",
            "move: left",
        ):
            assert title in titles
        assert "view: lane 4" not in titles, "there are three runtimes"
        command = next(each for each in app.get_system_commands(app.screen) if each.title == "app: info")
        await command.callback()
        await settle(pilot)
        assert isinstance(app.screen, InfoScreen)


async def test_keys_can_be_bound_anew(comparison: Comparison) -> None:
    app = FlipscopeApp(comparison, position=0)
    app.set_keymap({"jump.next-flip": "f5"})
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        session, _ = streams(app)
        await press(pilot, "n")
        assert session.position == 0
        await press(pilot, "f5")
        assert session.position > 0


async def test_clicks_on_tokens_and_on_the_overview(comparison: Comparison) -> None:
    app = FlipscopeApp(comparison, position=100)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        session, flow = streams(app)
        await pilot.click(FlowView, offset=(25, 1))
        await settle(pilot)
        assert session.position != 100
        await pilot.click("#overview", offset=(110, 0))
        await settle(pilot)
        assert session.position > 150
