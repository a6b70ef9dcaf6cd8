"""The prompts of the comparison, with how often the candidates flip in each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.strip import Strip
from textual.widget import Widget

from tui.messages import PromptChosen
from tui.painting import Line, clip, ground
from tui.session import Session, Tally
from tui.triage import MARKS, STRONG

_COUNT = 5
"""Cells of a flip count: four digits and a gap."""


@dataclass(frozen=True, slots=True)
class _Row:
    """One line of the list: a prompt, or the heading of a category."""

    prompt_id: str
    heading: str = ""


class PromptList(Widget, can_focus=True):
    """One line per prompt under its category; the current one is marked. Click or walk it to open a prompt."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "step(-1)", "Up", id="prompts.up", tooltip="Open the prompt above.", show=False),
        Binding("down,j", "step(1)", "Down", id="prompts.down", tooltip="Open the prompt below.", show=False),
        Binding("home", "end(0)", "First", id="prompts.first", tooltip="Open the first prompt.", show=False),
        Binding("end", "end(-1)", "Last", id="prompts.last", tooltip="Open the last prompt.", show=False),
        Binding("enter", "leave", "Read", id="prompts.leave", tooltip="Go back to the streams.", show=False),
    ]

    DEFAULT_CSS = """
    PromptList {
        background: $panel;
        & > .prompts--title { color: $text-muted; text-style: bold; }
        & > .prompts--heading { color: $text-muted; }
        & > .prompts--prompt { color: $foreground; }
        & > .prompts--quiet { color: $text-disabled; }
        & > .prompts--count { color: $foreground; }
        & > .prompts--strong { color: $text-error; text-style: bold; }
        & > .prompts--failed { color: $text-warning; text-style: italic; }
        & > .prompts--current { background: $primary 18%; text-style: bold; }
        & > .prompts--focused { background: $primary 40%; text-style: bold; }
        & > .prompts--hover { background: $foreground 6%; }
    }
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "prompts--title",
        "prompts--heading",
        "prompts--prompt",
        "prompts--quiet",
        "prompts--count",
        "prompts--strong",
        "prompts--failed",
        "prompts--current",
        "prompts--focused",
        "prompts--hover",
    }

    def __init__(self, session: Session, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._session = session
        self._rows: list[_Row] = []
        for category, prompt_ids in session.categories():
            if category:
                self._rows.append(_Row("", category))
            self._rows += [_Row(prompt_id) for prompt_id in prompt_ids]
        self._line_of = {row.prompt_id: line for line, row in enumerate(self._rows) if row.prompt_id}
        self._top = 0
        self._hovered = -1

    def wide_width(self) -> int:
        """Cells wanted for one count per candidate."""
        return 24 + _COUNT * (len(self._session.labels) - 1)

    def show_current(self) -> None:
        """Bring the current prompt into view and repaint."""
        line = self._line_of[self._session.prompt_id]
        height = self.size.height - 1
        if height <= 0:
            return
        top = self._top
        if not top <= line < top + height:
            top = line - height // 3
        elif line == top and line and self._rows[line - 1].heading:
            top = line - 1
        self._scroll_rows(top)
        self.refresh()

    def action_step(self, step: int) -> None:
        """Open a neighbour."""
        place = self._session.prompt_ids.index(self._session.prompt_id) + step
        if 0 <= place < len(self._session.prompt_ids):
            self.post_message(PromptChosen(self._session.prompt_ids[place]))

    def action_end(self, place: int) -> None:
        """Open the first or the last prompt."""
        self.post_message(PromptChosen(self._session.prompt_ids[place]))

    def action_leave(self) -> None:
        """Give the keys back to the streams."""
        self.screen.focus_next()

    def on_resize(self) -> None:
        """Keep the current prompt in view."""
        self.show_current()

    def on_click(self, event: events.Click) -> None:
        """Open the prompt under the mouse."""
        row = self._row_at(event.y)
        if row is not None and row.prompt_id:
            self.post_message(PromptChosen(row.prompt_id))

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Mark the prompt under the mouse."""
        self._hover(self._top + event.y - 1 if event.y > 0 else -1)

    def on_leave(self) -> None:
        """The mouse is gone."""
        self._hover(-1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Show later prompts."""
        event.stop()
        self._scroll_rows(self._top + 3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Show earlier prompts."""
        event.stop()
        self._scroll_rows(self._top - 3)

    def render_line(self, y: int) -> Strip:
        """One line of the list; the first is its title."""
        width = self.size.width
        if y == 0:
            return self._title(width)
        row = self._row_at(y)
        if row is None:
            return Strip.blank(width, self.rich_style)
        if row.heading:
            style = self._style("heading")
            return Line(width).add(f" {row.heading}", style).strip(style)
        return self._prompt(row, width, self._top + y - 1 == self._hovered)

    def _title(self, width: int) -> Strip:
        style = self._style("title")
        line = Line(width)
        if width >= self.wide_width():
            line.add(" prompts", style).fill(style, leaving=_COUNT * (len(self._session.labels) - 1) + 3)
            for label in self._session.labels[1:]:
                line.add(clip(label, _COUNT - 1), style, width=_COUNT, right=True)
        else:
            line.add(" prompts", style).fill(style, leaving=8).add("flips", style)
        return line.strip(style)

    def _prompt(self, row: _Row, width: int, hovered: bool) -> Strip:
        tally = self._session.tally(row.prompt_id)
        current = row.prompt_id == self._session.prompt_id
        over = Style()
        if current:
            over = ground(self._style("focused" if self.has_focus else "current"))
        elif hovered:
            over = ground(self._style("hover"))
        base = self._style("prompt") + over
        quiet = self._style("quiet") + over
        line = Line(width).add("▌" if current else " ", base).add(" ", base)
        if tally.failure:
            return (
                line.add(tally.prompt_id, base, width=line.room - 12)
                .add("unreadable", self._style("failed") + over, width=11, right=True)
                .strip(base)
            )
        columns = self._columns(tally, width)
        line.add(tally.prompt_id, base, width=line.room - len(columns) * _COUNT - 3)
        for count in columns:
            text = "…" if count is None else str(count) if count < 10_000 else f"{count // 1000}k"
            line.add(text, quiet if not count else self._style("count") + over, width=_COUNT, right=True)
        mark = self._style("strong") + over if tally.worst == STRONG else quiet
        return line.add(" ", base).add(MARKS[tally.worst], mark).strip(base)

    def _columns(self, tally: Tally, width: int) -> list[int | None]:
        """One count per candidate where there is room, else one over those that are shown."""
        if width >= self.wide_width():
            return list(tally.flips or [None] * (len(self._session.labels) - 1))
        return [None if tally.flips is None else tally.total]

    def _row_at(self, y: int) -> _Row | None:
        line = self._top + y - 1
        return self._rows[line] if y > 0 and 0 <= line < len(self._rows) else None

    def _scroll_rows(self, line: int) -> None:
        top = min(max(line, 0), max(len(self._rows) - (self.size.height - 1), 0))
        if top != self._top:
            self._top = top
            self.refresh()

    def _hover(self, line: int) -> None:
        if line != self._hovered:
            self._hovered = line
            self.refresh()

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(f"prompts--{name}")
