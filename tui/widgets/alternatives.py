"""What every runtime would have said at the cursor: its top alternatives, side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.strip import Strip

from probe.stream import NO_TOKEN
from tui import figures
from tui.choices import UNLISTED, Choice, Choices, choices_at
from tui.painting import Line, clip, ground
from tui.palette import FLIP_STEPS, LANES, NO_BUCKET, kl_bucket
from tui.session import Session
from tui.widgets.inked import Inked

_HEAD = 2
"""Lines above the rows: what stands here, and whose column is whose."""
_FOOT = 1
"""Lines below them: listed mass."""


@dataclass(frozen=True, slots=True)
class Format:
    """How much of an alternative there is room for, in cells."""

    token: int
    bar: int
    """0 for a bar of one cell that grows upwards."""
    shift: int

    def lane(self, lane: int) -> int:
        """Width of a lane's column: mark, probability, bar, and a candidate's rank shift."""
        return 1 + 4 + (1 + self.bar if self.bar else 1) + (self.shift if lane else 0)

    def total(self, lanes: Sequence[int]) -> int:
        """Width of the whole panel."""
        return 2 + self.token + sum(self.lane(lane) for lane in lanes) + 1


FORMATS = (Format(20, 6, 4), Format(16, 4, 4), Format(14, 0, 4), Format(12, 0, 0), Format(8, 0, 0))
"""From the roomiest to the tightest."""


class Alternatives(Inked, can_focus=True):
    """The listed alternatives of all shown lanes at one position, one row per token id.

    `▶` marks the token that stands in the text, `▸` a lane's first choice, `–` an id that a lane did not list (its
    probability is below the lane's last row). A first choice that differs from the reference's is drawn on the
    colour of its KL, like the flip in the streams.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll(-1)", "Up", id="alternatives.up", tooltip="Scroll the alternatives up.", show=False),
        Binding(
            "down,j", "scroll(1)", "Down", id="alternatives.down", tooltip="Scroll the alternatives down.", show=False
        ),
    ]

    DEFAULT_CSS = """
    Alternatives {
        background: $panel;
        & > .alternatives--title { color: $foreground; text-style: bold; }
        & > .alternatives--raw { color: $text-muted; }
        & > .alternatives--label { color: $text-muted; text-style: bold; }
        & > .alternatives--lane-0 { color: $lane-0; text-style: bold; }
        & > .alternatives--lane-1 { color: $lane-1; text-style: bold; }
        & > .alternatives--lane-2 { color: $lane-2; text-style: bold; }
        & > .alternatives--lane-3 { color: $lane-3; text-style: bold; }
        & > .alternatives--lane-4 { color: $lane-4; text-style: bold; }
        & > .alternatives--token { color: $foreground; }
        & > .alternatives--actual { background: $primary 18%; text-style: bold; }
        & > .alternatives--value { color: $foreground; }
        & > .alternatives--quiet { color: $text-muted; }
        & > .alternatives--unlisted { color: $text-disabled; }
        & > .alternatives--bar { color: $primary; }
        & > .alternatives--top { color: $foreground; text-style: bold; }
        & > .alternatives--flip-0 { background: $flip-0; color: $flip-text-0; text-style: bold; }
        & > .alternatives--flip-1 { background: $flip-1; color: $flip-text-1; text-style: bold; }
        & > .alternatives--flip-2 { background: $flip-2; color: $flip-text-2; text-style: bold; }
        & > .alternatives--flip-3 { background: $flip-3; color: $flip-text-3; text-style: bold; }
        & > .alternatives--flip-4 { background: $flip-4; color: $flip-text-4; text-style: bold; }
        & > .alternatives--flip-5 { background: $flip-5; color: $flip-text-5; text-style: bold; }
        & > .alternatives--flip-6 { background: $flip-6; color: $flip-text-6; text-style: bold; }
        & > .alternatives--flip-7 { background: $flip-7; color: $flip-text-7; text-style: bold; }
    }
    """

    INK_PREFIX = "alternatives"

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "alternatives--title",
        "alternatives--raw",
        "alternatives--label",
        "alternatives--token",
        "alternatives--actual",
        "alternatives--value",
        "alternatives--quiet",
        "alternatives--unlisted",
        "alternatives--bar",
        "alternatives--top",
        *(f"alternatives--lane-{lane}" for lane in range(LANES)),
        *(f"alternatives--flip-{level}" for level in range(FLIP_STEPS)),
    }

    def __init__(self, session: Session, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._session = session
        self._choices: Choices | None = None
        self._fitted: tuple[tuple[int, tuple[bool, ...]], Format] | None = None
        self._empty: tuple[tuple[int, Style], Strip] | None = None
        self._top = 0

    def formats(self) -> list[tuple[Format, int]]:
        """The ways to draw the shown lanes and the width that each wants, the roomiest first."""
        lanes = self._lanes()
        return [(form, form.total(lanes)) for form in FORMATS]

    def show_cursor(self) -> None:
        """Draw the alternatives at the session's cursor. Does nothing while hidden."""
        if not self.display or self._session.opened is None:
            return
        before = len(self._choices.rows) - self._top if self._choices is not None else self.size.height
        self._choices = choices_at(self._session.opened.streams, self._session.position)
        self._top = 0
        # Blank lines that stay blank are not written again: a fifth of the bytes of a step on a tall terminal.
        width, height = self.size
        used = _HEAD + max(before, len(self._choices.rows), 1)
        if used < height - _FOOT:
            self.refresh(Region(0, 0, width, used), Region(0, height - _FOOT, width, _FOOT))
        else:
            self.refresh()

    def action_scroll(self, step: int) -> None:
        """Move the rows."""
        self._scroll_rows(self._top + step)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Show later rows."""
        event.stop()
        self._scroll_rows(self._top + 2)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Show earlier rows."""
        event.stop()
        self._scroll_rows(self._top - 2)

    def render_line(self, y: int) -> Strip:
        """Title, column labels, one row per id, listed mass."""
        return self._line(y, self.size)

    def _line(self, y: int, size: Size) -> Strip:
        width, height = size
        choices = self._choices
        if choices is None or self._session.opened is None:
            return self._blank(width)
        if y == 0:
            return self._title(choices, width)
        form = self._format(width)
        if y == 1:
            return self._labels(choices, form, width)
        if y == height - _FOOT:
            return self._mass(choices, form, width)
        index = self._top + y - _HEAD
        if not choices.rows and y == _HEAD:
            text = "nothing is predicted for the first token" if not choices.position else "no rows here"
            return Line(width).add(f"  {text}", self.ink("unlisted")).strip(self.ink("token"))
        if index >= len(choices.rows):
            return self._blank(width)
        return self._row(choices, choices.rows[index], form, width)

    def render_lines(self, crop: Region) -> list[Strip]:
        """The asked lines, without the cache for borders and padding, of which there are none: half of their cost."""
        filters = self.get_line_filters()
        _, background = self.background_colors
        size = self.size
        strips = []
        for y in range(crop.y, crop.bottom):
            strip = self._line(y, size).crop(crop.x, crop.right)
            for each in filters:
                strip = strip.apply_filter(each, background)
            strips.append(strip)
        return strips

    def _blank(self, width: int) -> Strip:
        """An empty line; the same one every time, because a strip remembers what the filters made of it."""
        style = self.ink("token")
        if self._empty is None or self._empty[0] != (width, style):
            self._empty = (width, style), Line(width).strip(style)
        return self._empty[1]

    def _title(self, choices: Choices, width: int) -> Strip:
        glyphs = self._session.glyphs
        title, raw = self.ink("title"), self.ink("raw")
        line = Line(width).add(f" {choices.position} ", raw)
        if choices.actual != NO_TOKEN:
            line.add(glyphs.text(choices.actual), title).add(f"  {glyphs.raw(choices.actual)}", raw)
        return line.strip(raw)

    def _labels(self, choices: Choices, form: Format, width: int) -> Strip:
        style = self.ink("label")
        hidden = len(choices.rows) - self._top - (self.size.height - _HEAD - _FOOT)
        line = Line(width).add("  ", style)
        line.add(f"↓ {hidden} more" if hidden > 0 else "", self.ink("unlisted"), width=form.token)
        for lane in self._lanes():
            cells = form.lane(lane)
            label = clip(self._session.labels[lane], cells - 1)
            line.add(f" {label}", self.ink(f"lane-{lane % LANES}"), width=cells)
        return line.strip(style)

    def _mass(self, choices: Choices, form: Format, width: int) -> Strip:
        quiet = self.ink("quiet")
        line = Line(width).add("  ", quiet).add("listed", quiet, width=form.token)
        for lane in self._lanes():
            cells = form.lane(lane)
            mass = choices.mass[lane]
            line.add("" if math.isnan(mass) else f" {figures.probability(mass)}", quiet, width=cells)
        return line.strip(quiet)

    def _row(self, choices: Choices, row: Choice, form: Format, width: int) -> Strip:
        actual = row.token_id == choices.actual
        base = self._on("token", actual)
        line = Line(width).add("▶ " if actual else "  ", base)
        line.add(clip(self._session.glyphs.text(row.token_id), form.token - 1), base, width=form.token)
        for lane in self._lanes():
            self._cell(line, row, lane, form, actual)
        return line.strip(base)

    def _cell(self, line: Line, row: Choice, lane: int, form: Format, actual: bool) -> None:
        """One lane's column; its texts are of one cell a character, so nothing is measured."""
        cells = form.lane(lane)
        logprob = row.logprobs[lane]
        if logprob is None:
            opened = self._session.opened
            missing = opened is not None and opened.streams[lane] is None
            line.put(("" if missing else "    –").ljust(cells), cells, self._on("unlisted", actual))
            return
        probability = math.exp(logprob) if not math.isnan(logprob) else math.nan
        first = row.ranks[lane] == 1
        quiet = self._on("quiet", actual)
        plain = quiet if probability < 0.01 else self._on("value", actual)
        number = ("▸" if first else " ") + figures.probability(probability).rjust(4)
        line.put(number, 5, self._first_style(lane, actual) if first else plain)
        bar = " " + figures.bar(probability, form.bar) if form.bar else figures.column(probability)
        line.put(bar, len(bar), plain if bar.isspace() else self._on("bar", actual))
        if lane and form.shift:
            shift = self._shift(row, lane)
            line.put(shift.ljust(form.shift), form.shift, quiet if shift else plain)

    def _shift(self, row: Choice, lane: int) -> str:
        """Rank shift against the reference; `new` for an id that the reference did not list."""
        if row.ranks[0] == UNLISTED:
            return "new"
        moved = figures.shift(row.ranks[0], row.ranks[lane])
        return "" if moved == "=" else moved

    def _first_style(self, lane: int, actual: bool) -> Style:
        opened = self._session.opened
        assert opened is not None
        lanes, position = opened.lanes, self._session.position
        if not lanes.flip[lane, position]:
            return self._on("top", actual)
        level = int(kl_bucket(lanes.kl[lane, position : position + 1])[0])
        return self._on("top", actual) if level == NO_BUCKET else self.ink(f"flip-{level}")

    def _lanes(self) -> list[int]:
        return [lane for lane, shown in enumerate(self._session.shown) if shown]

    def _format(self, width: int) -> Format:
        wanted = (width, tuple(self._session.shown))
        if self._fitted is None or self._fitted[0] != wanted:
            self._fitted = wanted, next((form for form, cells in self.formats() if cells <= width), FORMATS[-1])
        return self._fitted[1]

    def _scroll_rows(self, row: int) -> None:
        rows = len(self._choices.rows) if self._choices is not None else 0
        top = min(max(row, 0), max(rows - (self.size.height - _HEAD - _FOOT), 0))
        if top != self._top:
            self._top = top
            self.refresh()

    def _on(self, name: str, actual: bool) -> Style:
        """Style of a component, on the ground of the row of the actual token when asked for."""
        return self.ink(name) + ground(self.ink("actual")) if actual else self.ink(name)
