"""The streams as interlinear blocks: the reference reads as text, the other lanes show where they would differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tui.glyphs import Glyphs
from tui.lanes import Lanes
from tui.layout import Layout, lay_out, wrap
from tui.messages import CursorMoved
from tui.widgets import flow_ink
from tui.widgets.flow_ink import Ink
from tui.widgets.flow_painter import FlowPainter, View

LABEL_CELLS = (7, 12)
"""Least and most cells of a lane's label."""


class FlowView(ScrollView, can_focus=True):
    """Parallel token streams in blocks as wide as the terminal, with a cursor that stands on one position."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "step(-1)", "Token", id="move.left", show=False, tooltip="Move one token back."),
        Binding("right,l", "step(1)", "Token", id="move.right", show=False, tooltip="Move one token on."),
        Binding("up,k", "block(-1)", "Line", id="move.up", show=False, tooltip="Move one line of text up."),
        Binding("down,j", "block(1)", "Line", id="move.down", show=False, tooltip="Move one line of text down."),
        Binding("shift+up,K", "lane(-1)", "Lane", id="move.lane-up", show=False, tooltip="Move to the runtime above."),
        Binding(
            "shift+down,J", "lane(1)", "Lane", id="move.lane-down", show=False, tooltip="Move to the runtime below."
        ),
        Binding("pageup", "page(-1)", "Page", id="move.page-up", show=False, tooltip="Move one screen up."),
        Binding("pagedown", "page(1)", "Page", id="move.page-down", show=False, tooltip="Move one screen down."),
        Binding(
            "home", "line_edge(-1)", "Start", id="move.line-start", show=False, tooltip="Move to the line's start."
        ),
        Binding("end", "line_edge(1)", "End", id="move.line-end", show=False, tooltip="Move to the line's end."),
        Binding("ctrl+home", "text_edge(-1)", "First", id="move.first", show=False, tooltip="Move to the first token."),
        Binding("ctrl+end", "text_edge(1)", "Last", id="move.last", show=False, tooltip="Move to the last token."),
    ]

    DEFAULT_CSS = flow_ink.CSS

    COMPONENT_CLASSES: ClassVar[set[str]] = set(flow_ink.COMPONENTS)

    cursor: reactive[int] = reactive(0, repaint=False, init=False)
    """Position of the cursor."""

    cursor_lane: reactive[int] = reactive(0, repaint=False, init=False)
    """Lane of the cursor; 0 is the reference."""

    fold: reactive[bool] = reactive(True, repaint=False, init=False)
    """Whether lanes that do not flip in a block share one line."""

    def __init__(
        self,
        *,
        on_cursor: Callable[[int, int], None] | None = None,
        name: str | None = None,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        """Make an empty view.

        Args:
            on_cursor: Called with position and lane at once when the cursor moves, so that linked panes paint in the
                same frame; the message comes one frame later.
            name: As for any widget.
            id: As for any widget.
            classes: As for any widget.
        """
        super().__init__(name=name, id=id, classes=classes)
        self.on_cursor = on_cursor
        self.rendered_lines = 0
        """Lines drawn so far; tests count them."""
        self._painter: FlowPainter | None = None
        self._shown: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._edges: NDArray[np.int64] = np.zeros(1, dtype=np.int64)
        self._current: Layout | None = None
        self._laid_for = (-1, 0)
        self._serial = 0
        self._flips: tuple[NDArray[np.int64], ...] = ()
        self._any_flip: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._text_offset = LABEL_CELLS[0] + 2
        self._goal_x: int | None = None
        self._ink: Ink | None = None

    # -- what is shown -----------------------------------------------------------------------------------------

    @property
    def lanes(self) -> Lanes | None:
        """What is shown; None before the first `show`."""
        return self._painter.lanes if self._painter else None

    @property
    def text_offset(self) -> int:
        """Cells in front of the text, for panes that want to line up with it."""
        return self._text_offset

    def show(
        self, lanes: Lanes, glyphs: Glyphs, *, position: int = 0, lane: int = 0, shown: Sequence[bool] | None = None
    ) -> None:
        """Show a prompt.

        Args:
            lanes: What to draw.
            glyphs: How tokens look.
            position: Where the cursor goes.
            lane: Which lane it stands in.
            shown: Per lane whether it is drawn; all of them when None.
        """
        self._painter = FlowPainter(lanes, glyphs)
        self._flips = tuple(np.flatnonzero(row) for row in self._painter.flips)
        labels = [cell_len(label) for label in self._painter.labels]
        self._text_offset = min(max([LABEL_CELLS[0], *labels]), LABEL_CELLS[1]) + 2
        position = min(max(position, 0), max(len(lanes) - 1, 0))
        self.set_reactive(FlowView.cursor, position)
        self.set_reactive(FlowView.cursor_lane, min(max(lane, 0), max(len(lanes.labels) - 1, 0)))
        self._goal_x = None
        self.show_lanes([True] * len(lanes.labels) if shown is None else shown)

    def show_lanes(self, shown: Sequence[bool]) -> None:
        """Show or hide lanes; the reference always shows."""
        if self._painter is None:
            return
        self._shown = np.asarray([True, *shown[1:]], dtype=np.bool_)
        self._edges = np.concatenate([[0], np.cumsum(self._painter.widths(self._shown))])
        drawn = self._painter.flips & self._shown[:, None]
        self._any_flip = np.flatnonzero(drawn.any(axis=0))
        self._rearrange()
        if len(self._shown) and not self._shown[self.cursor_lane]:
            self.cursor_lane = 0

    def next_flip(self, after: int, lane: int | None = None) -> int | None:
        """First position past `after` where a lane (any shown one when None) flips; None past the last."""
        flips = self._flips_of(lane)
        at = int(np.searchsorted(flips, after, side="right"))
        return int(flips[at]) if at < len(flips) else None

    def previous_flip(self, before: int, lane: int | None = None) -> int | None:
        """Last position ahead of `before` where a lane (any shown one when None) flips; None ahead of the first."""
        flips = self._flips_of(lane)
        at = int(np.searchsorted(flips, before, side="left")) - 1
        return int(flips[at]) if at >= 0 else None

    def move_to(self, position: int, lane: int | None = None) -> None:
        """Put the cursor on a position (the nearest there is), and into a lane when one is named."""
        self._goal_x = None
        if lane is not None:
            self.cursor_lane = lane
        self.cursor = position

    def line_of(self, position: int) -> int:
        """The line, counted from the top of everything, on which the reference's token of a position stands."""
        layout = self._laid_out()
        return int(layout.lines[layout.block_of(position)]) + 1 if layout and layout.blocks else 0

    # -- reactions ---------------------------------------------------------------------------------------------

    def on_mount(self) -> None:
        """Follow the theme."""
        self.app.theme_changed_signal.subscribe(self, self._forget_ink)

    def on_resize(self) -> None:
        """Wrap again for the new width and keep the cursor in view."""
        self._laid_out()
        self._keep_in_view(1)

    def validate_cursor(self, position: int) -> int:
        """Keep the cursor inside the text."""
        return min(max(position, 0), max(len(self.lanes) - 1, 0)) if self.lanes else 0

    def validate_cursor_lane(self, lane: int) -> int:
        """Keep the cursor inside the lanes."""
        return min(max(lane, 0), max(len(self.lanes.labels) - 1, 0)) if self.lanes else 0

    def watch_cursor(self, old: int, new: int) -> None:
        """Repaint the block that was left and the one that was entered."""
        layout = self._laid_out()
        if layout is None or not layout.blocks:
            return
        blocks = {layout.block_of(old), layout.block_of(new)}
        if not self._keep_in_view(1 if new > old else -1):
            for block in blocks:
                self._refresh_block(layout, block)
        self._tell()

    def watch_cursor_lane(self) -> None:
        """Repaint the cursor's block."""
        layout = self._laid_out()
        if layout is not None and layout.blocks:
            self._refresh_block(layout, layout.block_of(self.cursor))
        self._tell()

    def watch_fold(self) -> None:
        """Lay out again."""
        self._rearrange()

    def on_click(self, event: events.Click) -> None:
        """Go to the token that was clicked."""
        layout = self._laid_out()
        if layout is None or not layout.blocks:
            return
        line = event.y + self.scroll_offset.y
        if not 0 <= line < layout.height:
            return
        event.stop()
        block = layout.block_at(line)
        offset = line - layout.line_span(block)[0]
        rows = layout.rows(block)
        lane = rows[offset - 2] if 2 <= offset < len(rows) + 2 else 0 if offset == 1 else None
        self.move_to(
            layout.position_at(block, event.x - self._text_offset), lane if lane is not None and lane >= 0 else None
        )

    # -- actions -----------------------------------------------------------------------------------------------

    def action_step(self, by: int) -> None:
        """Move by tokens."""
        self.move_to(self.cursor + by)

    def action_block(self, by: int) -> None:
        """Move by lines of text, staying in the column as far as tokens allow."""
        layout = self._laid_out()
        if layout is not None and layout.blocks:
            self._move_to_block(layout, layout.block_of(self.cursor) + by)

    def action_lane(self, by: int) -> None:
        """Move to another shown lane."""
        if self.lanes is None:
            return
        lanes = np.flatnonzero(self._shown)
        at = int(np.searchsorted(lanes, self.cursor_lane)) + by
        self.cursor_lane = int(lanes[min(max(at, 0), len(lanes) - 1)])

    def action_page(self, by: int) -> None:
        """Move by screens; the cursor keeps its height on the screen."""
        layout = self._laid_out()
        if layout is None or not layout.blocks:
            return
        block = layout.block_of(self.cursor)
        top = int(layout.lines[block])
        target = layout.block_at(top + by * max(self.size.height, 1))
        if target == block:
            target = block + by
        target = min(max(target, 0), layout.blocks - 1)
        row = top - self.scroll_offset.y
        self._scroll_to_block(layout, int(layout.lines[target]) - row)
        self._move_to_block(layout, target)

    def action_line_edge(self, side: int) -> None:
        """Move to the start or end of this line of text."""
        layout = self._laid_out()
        if layout is not None and layout.blocks:
            start, stop = layout.span(layout.block_of(self.cursor))
            self.move_to(start if side < 0 else stop - 1)

    def action_text_edge(self, side: int) -> None:
        """Move to the first or last token."""
        self.move_to(0 if side < 0 else len(self.lanes or ()) - 1)

    # -- drawing -----------------------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        """One line of the window, `y` counted from its top."""
        width = self.size.width
        layout = self._laid_out()
        ink = self._inks()
        line = y + self.scroll_offset.y
        self.rendered_lines += 1
        if layout is None or self._painter is None or not 0 <= line < layout.height:
            return Strip.blank(width, ink.base)
        block = layout.block_at(line)
        view = View(layout, width, self._text_offset, self.cursor, self.cursor_lane, ink)
        return self._painter.line(view, block, line - int(layout.lines[block]))

    # -- private -----------------------------------------------------------------------------------------------

    def _flips_of(self, lane: int | None) -> NDArray[np.int64]:
        if lane is None:
            return self._any_flip
        return self._flips[lane] if 0 <= lane < len(self._flips) else self._any_flip[:0]

    def _laid_out(self) -> Layout | None:
        """The layout for the present width; made here because a line may be asked for before the first resize."""
        if self._painter is None or self.size.width <= 0:
            return None
        wanted = (self.size.width, self._serial)
        if self._current is None or self._laid_for != wanted:
            painter = self._painter
            starts = wrap(
                self._edges,
                max(self.size.width - self._text_offset, 1),
                line_starts=painter.line_starts,
                word_starts=painter.word_starts,
                forced=painter.sections,
            )
            self._current = lay_out(self._edges, starts, painter.flips, self._shown & painter.present, fold=self.fold)
            self._laid_for = wanted
            # As much room below as it takes for a block to start at the top of the last screen.
            self.virtual_size = Size(self.size.width, self._last_top(self._current) + self.size.height)
        return self._current

    def _rearrange(self) -> None:
        self._serial += 1
        self._laid_out()
        self._keep_in_view(1)
        self.refresh()

    def _keep_in_view(self, direction: int) -> bool:
        """Scroll when the cursor's block is not wholly in view; whether it did.

        The block goes a third into the window in the direction of travel, so that one key in many pays for a page.
        """
        layout = self._laid_out()
        height = self.size.height
        if layout is None or not layout.blocks or height <= 0:
            return False
        top, bottom = layout.line_span(layout.block_of(self.cursor))
        seen = self.scroll_offset.y
        if seen <= top and bottom <= seen + height:
            return False
        wanted = top - height // 3 if direction > 0 else bottom - height * 2 // 3
        self._scroll_to_block(layout, min(wanted, top), least=bottom - height)
        return True

    def _scroll_to_block(self, layout: Layout, line: int, *, least: int = 0) -> None:
        """Put the block that holds `line` at the window's top; the next one when that leaves `least` unseen."""
        block = layout.block_at(max(line, 0))
        if layout.line_span(block)[0] < least:
            block += 1
        y = min(layout.line_span(min(block, layout.blocks - 1))[0], self._last_top(layout))
        self.scroll_to(y=y, animate=False)

    def _last_top(self, layout: Layout) -> int:
        """The first block's start from which the rest fits into the window."""
        line = max(layout.height - self.size.height, 0)
        return int(layout.lines[np.searchsorted(layout.lines, line, side="left")])

    def _move_to_block(self, layout: Layout, block: int) -> None:
        if not 0 <= block < layout.blocks:
            return
        goal = layout.x_of(self.cursor) if self._goal_x is None else self._goal_x
        self.cursor = layout.position_at(block, goal)
        self._goal_x = goal

    def _refresh_block(self, layout: Layout, block: int) -> None:
        top, bottom = layout.line_span(block)
        self.refresh_lines(top, bottom - top)

    def _tell(self) -> None:
        if self.on_cursor is not None:
            self.on_cursor(self.cursor, self.cursor_lane)
        self.post_message(CursorMoved(self.cursor, self.cursor_lane))

    def _inks(self) -> Ink:
        if self._ink is None:
            self._ink = Ink.mix(self.rich_style, self.get_component_rich_style)
        return self._ink

    def _forget_ink(self, _theme: object) -> None:
        self._ink = None
        self.refresh()
