"""The main screen: parallel streams, the prompts beside them, the alternatives at the cursor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from time import monotonic
from typing import ClassVar, ParamSpec, TypeVar

from textual import events, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Horizontal
from textual.screen import Screen
from textual.widgets import Footer

from probe.errors import FlipscopeError
from tui import search
from tui.bindings import STREAMS
from tui.glyphs import safe_text
from tui.messages import PositionChosen, PromptChosen
from tui.screens.ask import AskScreen
from tui.screens.help import HelpScreen
from tui.screens.info import InfoScreen
from tui.session import Session
from tui.widgets.alternatives import Alternatives
from tui.widgets.banner import Banner
from tui.widgets.flow import FlowView
from tui.widgets.overview import Overview
from tui.widgets.prompt_list import PromptList
from tui.widgets.status import StatusBar
from tui.widgets.titlebar import TitleBar

P = ParamSpec("P")
R = TypeVar("R")

WIDE = 110
"""From this many columns on the alternatives stand beside the streams, open unless closed."""

ROOMY = 100
"""From this many columns on the prompts are listed unless closed."""

LIST_WIDTH = 26
LIST_WIDE_FROM = 190
"""From this many columns on the list has one count per candidate."""

FLOW_LEAST = 48
"""Columns that the streams keep before the alternatives are given more."""

REPAINT_EVERY = 0.1
"""Seconds between two repaints of the list while prompts are being scored."""


class StreamsScreen(Screen[None]):
    """Walks the flips of a comparison.

    Args:
        session: What to show. Its current prompt must have been read and entered.
        reader: The one thread on which captures are read.
    """

    AUTO_FOCUS = "#flow"

    BINDINGS: ClassVar[list[BindingType]] = [*STREAMS]

    DEFAULT_CSS = """
    StreamsScreen {
        layout: vertical;
        #body { height: 1fr; }
        #stage { width: 1fr; layout: vertical; }
        #flow { width: 1fr; height: 1fr; padding: 0; }
        #prompts { width: 26; }
        #alternatives { width: 1fr; height: 50%; min-height: 6; max-height: 26; }
        &.-wide #stage { layout: horizontal; }
        &.-wide #alternatives { height: 1fr; max-height: 100%; }
    }
    """

    def __init__(self, session: Session, reader: Executor) -> None:
        super().__init__()
        self._session = session
        self._reader = reader
        self._bound_for: str | None = None
        self._prompts_open: bool | None = None
        self._alternatives_open: bool | None = None
        self._query = ""

    def compose(self) -> ComposeResult:
        """Title, notes, overview; prompts, streams, alternatives; status, keys."""
        session = self._session
        self._title = TitleBar(session, id="title")
        self._banner = Banner(session, id="banner")
        self._overview = Overview(id="overview")
        self._prompts = PromptList(session, id="prompts")
        self._flow = FlowView(on_cursor=self._cursor_moved, id="flow")
        self._alternatives = Alternatives(session, id="alternatives")
        self._status = StatusBar(session, id="status")
        yield self._title
        yield self._banner
        yield self._overview
        with Horizontal(id="body"):
            yield self._prompts
            with Container(id="stage"):
                yield self._flow
                yield self._alternatives
        yield self._status
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Lay out for the terminal's size, then draw and score."""
        self._arrange(self.app.size.width)
        self._show_prompt()
        self._score_all()

    def on_resize(self, event: events.Resize) -> None:
        """Lay out for the new size."""
        self._arrange(event.size.width)

    def on_prompt_chosen(self, event: PromptChosen) -> None:
        """Open what was picked in the list."""
        self._open(event.prompt_id)

    def on_position_chosen(self, event: PositionChosen) -> None:
        """Go where the overview was clicked."""
        self._flow.move_to(event.position)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys of lanes that this comparison does not have do nothing and are not offered."""
        lane = parameters[-1] if action == "lane" or (action == "flip" and len(parameters) == 2) else 0
        return not isinstance(lane, int) or lane < len(self._session.labels)

    def action_flip(self, step: int, lane: int | None = None) -> None:
        """Travel to a flip."""
        session = self._session
        if lane == 0:
            self.say(f"{session.labels[0]} is the reference: the others flip against it")
            return
        look = self._flow.next_flip if step > 0 else self._flow.previous_flip
        position = look(session.position, lane)
        if position is None:
            self._travel(step, lane)
        else:
            self._flow.move_to(position, lane)

    def action_prompt(self, step: int) -> None:
        """Open a neighbour in the list."""
        self._open(self._session.neighbour(step, of=self._bound_for))

    @work(group="ask")
    async def action_go(self) -> None:
        """Ask for a position and go there."""
        opened = self._session.opened
        if opened is None:
            return
        count = len(opened.lanes)
        answer = await self.app.push_screen_wait(AskScreen("Go to", hint=f"0 to {count - 1}, +40, -40, 50%, end"))
        if answer is None:
            return
        position = search.place(answer, self._session.position, count)
        if position is None:
            self.say(f"{safe_text(answer)[0]} is no position: try 300, +40, -40, 50% or end")
        else:
            self._flow.move_to(position)

    @work(group="ask")
    async def action_find(self) -> None:
        """Ask for words or a token id and go to where they come next."""
        answer = await self.app.push_screen_wait(AskScreen("Find", hint="words, or #id of a token", value=self._query))
        opened = self._session.opened
        if answer is None or opened is None:
            return
        self._query = answer
        places = await self._off_loop(search.find, opened.lanes.ids, self._session.piece, answer)
        name = safe_text(answer)[0]
        if not len(places):
            self.say(f"{name} does not occur in this prompt")
            return
        at = int(places.searchsorted(self._session.position, side="right")) % len(places)
        self._flow.move_to(int(places[at]))
        self.say(f"{name}: place {at + 1} of {len(places)}")

    def action_alternatives(self) -> None:
        """Show or hide the alternatives."""
        self._alternatives_open = not self._alternatives.display
        self._arrange(self.size.width)
        self._alternatives.show_cursor()

    def action_prompts(self) -> None:
        """Show or hide the list of prompts."""
        self._prompts_open = not self._prompts.display
        if not self._prompts_open and self._prompts.has_focus:
            self._flow.focus()
        self._arrange(self.size.width)

    def action_lane(self, lane: int) -> None:
        """Show or hide a runtime."""
        session = self._session
        if not session.toggle_lane(lane):
            self.say(f"{session.labels[0]} is the reference: it stays")
            return
        self._flow.show_lanes(session.shown)
        self._overview.show_lanes(session.shown)
        self._arrange(self.size.width)
        for widget in (self._title, self._prompts, self._status, self._alternatives):
            widget.refresh()

    def action_read(self) -> None:
        """Give the keys back to the streams."""
        self._flow.focus()

    def action_info(self) -> None:
        """Show what the captures say about themselves."""
        self.app.push_screen(InfoScreen(self._session))

    def action_help(self) -> None:
        """Explain keys and marks."""
        keys = [
            active.binding for active in self.active_bindings.values() if active.node in (self, self.app, self._flow)
        ]
        self.app.push_screen(HelpScreen(keys))

    @work(exclusive=True, group="open")
    async def _open(self, prompt_id: str) -> None:
        """Read a prompt and show it where the user left it."""
        self._bound_for = prompt_id
        await self._enter(prompt_id)
        self._bound_for = None

    @work(exclusive=True, group="open")
    async def _travel(self, step: int, lane: int | None) -> None:
        """Look for a flip in the other prompts, scoring them as needed."""
        session = self._session
        self._bound_for = None
        for prompt_id, wrapped in session.others(step):
            await self._off_loop(session.score, prompt_id)
            position = session.edge_flip(prompt_id, step, lane)
            if position is None:
                continue
            if (prompt_id, position) == (session.prompt_id, session.position):
                self.say("this is the only flip")
            elif await self._enter(prompt_id, position) and wrapped:
                self.say("round to the first prompt" if step > 0 else "round to the last prompt")
            return
        whose = "of any shown runtime" if lane is None else f"of {session.labels[lane]}"
        self.say(f"no flip {whose} in {len(session.prompt_ids)} prompts")

    async def _enter(self, prompt_id: str, position: int | None = None) -> bool:
        try:
            opened = await self._off_loop(self._session.read, prompt_id)
        except FlipscopeError as error:
            self.notify(error.detail, title=error.title, severity="warning", markup=False)
            return False
        self._session.enter(prompt_id, opened, position)
        self._show_prompt()
        return True

    @work(group="score")
    async def _score_all(self) -> None:
        """Fill the list, one prompt after another."""
        painted = monotonic()
        while waiting := self._session.unscored():
            await self._off_loop(self._session.score, waiting[0])
            if monotonic() - painted > REPAINT_EVERY:
                painted = monotonic()
                self._counted()
        self._counted()

    def _counted(self) -> None:
        """More prompts are counted: the list and the title say so."""
        self._prompts.refresh()
        self._title.refresh()

    async def _off_loop(self, slow: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        call = partial(slow, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._reader, call)

    def _show_prompt(self) -> None:
        """Draw the session's prompt."""
        session = self._session
        opened = session.opened
        if opened is None:
            return
        place = {"position": session.position, "lane": session.lane}
        self._flow.show(opened.lanes, session.glyphs, shown=session.shown, **place)
        self._overview.show(opened.lanes, session.shown)
        self._title.refresh()
        self._prompts.show_current()
        self._follow()

    def _cursor_moved(self, position: int, lane: int) -> None:
        """Called by the streams themselves, so that everything is painted in the same frame."""
        self._session.move(position, lane)
        self._follow()

    def _follow(self) -> None:
        self._overview.cursor = self._session.position
        self._status.show_cursor()
        self._alternatives.show_cursor()

    def _arrange(self, width: int) -> None:
        """Give every part its room."""
        wide = width >= WIDE
        self.set_class(wide, "-wide")
        listed = width >= ROOMY if self._prompts_open is None else self._prompts_open
        self._prompts.display = listed
        list_width = self._prompts.wide_width() if width >= LIST_WIDE_FROM else LIST_WIDTH
        self._prompts.styles.width = list_width
        self._alternatives.display = wide if self._alternatives_open is None else self._alternatives_open
        if wide:
            room = width - (list_width if listed else 0)
            forms = self._alternatives.formats()
            least = max(FLOW_LEAST, room * 45 // 100)
            self._alternatives.styles.width = next((form for _, form in forms if room - form >= least), forms[-2][1])
        else:
            self._alternatives.styles.width = "1fr"

    def say(self, text: str) -> None:
        """Tell the user something where it covers nothing, until the cursor moves."""
        self._status.say(text)
