"""The whole text in a few lines: where runtimes flip, how far they move, and where the cursor stands in it."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len
from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from tui.glyphs import safe_text
from tui.lanes import Lanes
from tui.messages import PositionChosen
from tui.painting import clip
from tui.palette import FLIP_STEPS, LANES, NO_BUCKET, kl_bucket
from tui.widgets.brush import Brush

ROOMY_FROM = 30
"""Rows of a terminal from which every candidate has a line of its own; below, one line holds them all."""

LABEL_CELLS = (7, 12)
"""Least and most cells of a lane's label."""

_BARS = " ▁▂▃▄▅▆▇█"
_QUIET = "·"


class Overview(Widget):
    """A strip for the whole prompt: height of a bar is how many positions flip, its colour how far the worst moved."""

    DEFAULT_CSS = (
        """
    Overview {
        height: auto;
        background: $background;
        & .overview--label { color: $flow-special; }
        & .overview--rule { color: $flow-quiet; }
        & .overview--output { color: $flow-special; }
        & .overview--range { color: $flow-prompt; }
        & .overview--missing { color: $flow-prompt; text-style: italic; }
        & .overview--here { color: $flow-cursor-ground; text-style: bold; }
    """
        + "".join(f"    & .overview--lane-{lane} {{ color: $lane-{lane}; }}\n" for lane in range(LANES))
        + "".join(f"    & .overview--flip-{step} {{ color: $flip-{step}; }}\n" for step in range(FLIP_STEPS))
        + "}"
    )

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "overview--label",
        "overview--rule",
        "overview--output",
        "overview--range",
        "overview--here",
        "overview--missing",
        *(f"overview--lane-{lane}" for lane in range(LANES)),
        *(f"overview--flip-{step}" for step in range(FLIP_STEPS)),
    }

    cursor: reactive[int] = reactive(0, repaint=False, init=False)
    """Position of the cursor."""

    def __init__(self, *, name: str | None = None, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(name=name, id=id, classes=classes)
        self._lanes: Lanes | None = None
        self._candidates: tuple[int, ...] = ()
        self._steps: NDArray[np.uint8] = np.zeros((0, 0), dtype=np.uint8)
        self._made_for = (-1, 0)
        self._serial = 0
        self._heights: NDArray[np.uint8] = np.zeros((0, 0), dtype=np.uint8)
        self._colours: NDArray[np.uint8] = np.zeros((0, 0), dtype=np.uint8)

    def show(self, lanes: Lanes, shown: list[bool] | None = None) -> None:
        """Show a prompt.

        Args:
            lanes: What to draw.
            shown: Per lane whether it is drawn; all of them when None.
        """
        self._lanes = lanes
        self._steps = kl_bucket(lanes.kl)
        self.show_lanes([True] * len(lanes.labels) if shown is None else shown)

    def show_lanes(self, shown: list[bool]) -> None:
        """Show or hide lanes."""
        before = len(self._candidates)
        self._candidates = tuple(lane for lane in range(1, len(shown)) if shown[lane])
        self._serial += 1
        self.refresh(layout=len(self._candidates) != before)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """A line per candidate and a ruler; two lines on a low terminal."""
        return min(len(self._candidates), 1 if viewport.height < ROOMY_FROM else LANES) + 1

    def on_mount(self) -> None:
        """Follow the theme."""
        self.app.theme_changed_signal.subscribe(self, lambda _theme: self.refresh())

    def watch_cursor(self, old: int, new: int) -> None:
        """Repaint the ruler, when the cursor left its column."""
        if self._column(old) != self._column(new):
            self.refresh(Region(0, self.size.height - 1, self.size.width, 1))

    def on_click(self, event: events.Click) -> None:
        """Travel to the place that was clicked."""
        columns = self._columns
        if self._lanes is None or not len(self._lanes) or columns <= 0:
            return
        column = min(max(event.x - self._text_offset, 0), columns - 1)
        event.stop()
        self.post_message(PositionChosen(self._nearest_flip(column)))

    def render_line(self, y: int) -> Strip:
        """One line: candidates from the top, the ruler last."""
        width, height = self.size
        base = self.rich_style
        if self._lanes is None or not len(self._lanes) or self._columns <= 0:
            return Strip.blank(width, base)
        if y >= height - 1:
            return self._ruler(base)
        if height - 1 >= len(self._candidates):
            return self._bars((self._candidates[y],), base) if y < len(self._candidates) else Strip.blank(width, base)
        return self._bars(self._candidates, base) if y == 0 else Strip.blank(width, base)

    @property
    def _text_offset(self) -> int:
        labels = self._lanes.labels if self._lanes else ()
        return min(max([LABEL_CELLS[0], *(cell_len(safe_text(label)[0]) for label in labels)]), LABEL_CELLS[1]) + 2

    @property
    def _columns(self) -> int:
        return max(self.size.width - self._text_offset - 1, 0)

    def _column(self, position: int) -> int:
        n = len(self._lanes) if self._lanes else 0
        return position * self._columns // n if n else 0

    def _starts(self) -> NDArray[np.int64]:
        """First position of every column, int64 `[columns]`."""
        n = len(self._lanes) if self._lanes else 0
        # Rounded up, so that it is the inverse of `_column`; a column without a position repeats its neighbour's.
        return np.minimum(-(-np.arange(self._columns, dtype=np.int64) * n // self._columns), n - 1)

    def _summarise(self) -> None:
        """Bars of every candidate for this width: one `reduceat` per number, 4 ms for 5 lanes of 100,000."""
        wanted = (self._columns, self._serial)
        lanes = self._lanes
        if lanes is None or self._made_for == wanted:
            return
        starts = self._starts()
        counts = np.maximum(np.diff(np.append(starts, len(lanes))), 1)
        share = np.add.reduceat(lanes.flip.astype(np.int32), starts, axis=1) / counts
        # By the root: one flip in 64 still shows, and half of all does not yet fill the cell.
        self._heights = np.ceil(np.sqrt(share) * (len(_BARS) - 1)).astype(np.uint8)
        steps = np.where(self._steps == NO_BUCKET, 0, self._steps)
        worst = np.maximum.reduceat(np.where(lanes.flip, steps, 0), starts, axis=1)
        moved = np.maximum.reduceat(steps, starts, axis=1)
        self._colours = np.where(self._heights > 0, worst, moved).astype(np.uint8)
        self._made_for = wanted

    def _bars(self, lanes: tuple[int, ...], base: Style) -> Strip:
        assert self._lanes is not None
        self._summarise()
        brush = Brush(self.size.width)
        one = len(lanes) == 1
        name = safe_text(self._lanes.labels[lanes[0]])[0] if one else "flips"
        style = self.get_component_rich_style(f"overview--lane-{lanes[0] % LANES}" if one else "overview--label")
        self._label(brush, name, style, base)
        reason = self._lanes.missing[lanes[0]] if one and lanes[0] < len(self._lanes.missing) else ""
        if reason:
            note = clip(safe_text(reason)[0], self._columns)
            brush.put(note, cell_len(note), self.get_component_rich_style("overview--missing"))
            return brush.strip(base)
        heights = self._heights[list(lanes)].max(axis=0).tolist()
        flipped = np.where(self._heights[list(lanes)] > 0, self._colours[list(lanes)], 0).max(axis=0)
        colours = np.where(np.asarray(heights) > 0, flipped, self._colours[list(lanes)].max(axis=0)).tolist()
        inks = [self.get_component_rich_style(f"overview--flip-{step}") for step in range(FLIP_STEPS)]
        quiet = self.get_component_rich_style("overview--rule")
        for height, colour in zip(heights, colours, strict=True):
            brush.put(_BARS[height] if height else _QUIET, 1, inks[colour] if height else quiet)
        return brush.strip(base)

    def _ruler(self, base: Style) -> Strip:
        """Prompt and output as two kinds of line, named spans above them, the cursor on top."""
        lanes = self._lanes
        assert lanes is not None
        columns = self._columns
        rule = self.get_component_rich_style("overview--rule")
        output = self.get_component_rich_style("overview--output")
        boundary = self._column(min(lanes.prompt_length, len(lanes))) if lanes.prompt_length < len(lanes) else columns
        cells = ["╌"] * boundary + ["━"] * (columns - boundary)
        inks = [rule] * boundary + [output] * (columns - boundary)
        span_ink = self.get_component_rich_style("overview--range")
        for span in lanes.ranges[:64]:
            left = self._column(min(max(span.start, 0), len(lanes) - 1))
            right = self._column(min(max(span.stop - 1, 0), len(lanes) - 1))
            cells[left] = "├" if right > left else "┼"
            cells[right] = "┤" if right > left else "┼"
            inks[left] = inks[right] = span_ink
        here = min(self._column(self.cursor), columns - 1)
        cells[here] = "▲"
        inks[here] = self.get_component_rich_style("overview--here")
        brush = Brush(self.size.width)
        self._label(brush, f"{len(lanes):,}", rule, base)
        for cell, ink in zip(cells, inks, strict=True):
            brush.put(cell, 1, ink)
        return brush.strip(base)

    def _label(self, brush: Brush, text: str, style: Style, base: Style) -> None:
        brush.put(" ", 1, base)
        cells = self._text_offset - 2
        text = clip(text, cells)
        used = cell_len(text)
        brush.put(text, used, style)
        brush.put(" " * (cells - used + 1), cells - used + 1, base)

    def _nearest_flip(self, column: int) -> int:
        """The first flip in a column, else the column's first position."""
        assert self._lanes is not None
        starts = self._starts()
        start = int(starts[column])
        stop = int(starts[column + 1]) if column + 1 < len(starts) else len(self._lanes)
        flips = np.flatnonzero(self._lanes.flip[list(self._candidates), start : max(stop, start + 1)].any(axis=0))
        return start + int(flips[0]) if len(flips) else start
