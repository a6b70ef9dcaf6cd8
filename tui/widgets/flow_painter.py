"""Draws single lines of the flow: lanes in, strips out. Knows nothing of scrolling or keys."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len
from rich.style import Style
from textual.strip import Strip

from probe.records import Range
from tui import triage
from tui.glyphs import BLANK, BREAK, LEAD, SPECIAL, Glyphs, safe_text
from tui.lanes import Lanes
from tui.layout import FOLD, Layout, cell_widths
from tui.painting import CLIPPED, clip
from tui.palette import NO_BUCKET, kl_bucket
from tui.widgets.brush import Brush
from tui.widgets.flow_ink import Ink

LOUD_STEP = 5
"""From this step of the ramp (0.1 nats) agreement is drawn as a bullet: the choice stands, the odds do not."""

MAX_RANGES = 16
"""Brackets drawn on one ruler; a file may hold any number."""

# How the text is drawn: index into what `_text_inks` gives.
_TEXT, _CONTESTED, _PROMPT, _PROMPT_CONTESTED, _SPECIAL = range(5)


@dataclass(frozen=True, slots=True)
class Marks:
    """The characters that say what happened at a position."""

    flips: str
    """By triage: unknown, noise, near-tie, uncertain, strong."""
    dot: str
    """Agreement."""
    loud: str
    """Agreement although the distribution moved far."""
    loose: str
    """Agreement where too little is listed to say how far it moved."""
    tie: str
    """Equal first choices, of which greedy decoding takes another."""
    join: str
    """Fills between tokens that touch in the text."""
    here: str
    down: str
    rule: str
    open: str
    close: str


MARKS = Marks("△" + "".join(triage.MARKS[1:]), "·", "•", "◦", "≈", "┈", "▸", "▾", "─", "╭", "╮")
ASCII_MARKS = Marks("+~-+!", ".", "o", ",", "=", "~", ">", "v", "-", "[", "]")


@dataclass(frozen=True, slots=True)
class View:
    """What a line's pixels depend on besides its prompt."""

    layout: Layout
    width: int
    text_offset: int
    cursor: int
    lane: int
    ink: Ink


class FlowPainter:
    """One prompt, ready to be drawn: all that depends on neither width, theme nor cursor is worked out here.

    Args:
        lanes: What to draw.
        glyphs: How tokens look.

    Attributes:
        flips: bool `[L, n]`, flips that name a token.
        line_starts: bool `[n]`, positions right after a line end of the text.
        word_starts: bool `[n]`, positions that do not continue the word before them.
        present: bool `[L]`, lanes that have predictions here.
    """

    def __init__(self, lanes: Lanes, glyphs: Glyphs) -> None:
        self.lanes = lanes
        self.glyphs = glyphs
        self.marks = ASCII_MARKS if glyphs.ascii_only else MARKS
        self.labels = tuple(safe_text(label, glyphs.ascii_only)[0] for label in lanes.labels)
        self.flips = lanes.flip & (lanes.top1 >= 0)
        self._steps = kl_bucket(lanes.kl)
        flags = glyphs.flags(lanes.ids)
        self._own_cells = glyphs.cells(lanes.ids)
        self._flip_cells = np.zeros(lanes.top1.shape, dtype=np.uint8)
        self._flip_cells[self.flips] = glyphs.cells(lanes.top1[self.flips])
        self._leads = (flags & LEAD) != 0
        apart_after = (flags & (BLANK | BREAK | SPECIAL)) != 0
        apart_before = (flags & (LEAD | BLANK | SPECIAL)) != 0
        self._joined = np.zeros(len(lanes), dtype=np.bool_)
        self._joined[:-1] = ~apart_after[:-1] & ~apart_before[1:]
        self.word_starts = np.ones(len(lanes), dtype=np.bool_)
        self.word_starts[1:] = ~self._joined[:-1]
        self.line_starts = np.zeros(len(lanes), dtype=np.bool_)
        self.line_starts[1:] = (flags[:-1] & BREAK) != 0
        self._text_kinds = self._kinds(flags)
        self._range_starts = np.array([span.start for span in lanes.ranges], dtype=np.int64)
        self._range_stops = np.array([span.stop for span in lanes.ranges], dtype=np.int64)
        self._missing = "   ".join(
            safe_text(f"{label}: {reason}", glyphs.ascii_only)[0]
            for label, reason in zip(lanes.labels, lanes.missing, strict=False)
            if reason
        )
        self.present = np.ones(len(lanes.labels), dtype=np.bool_)
        self.present[: len(lanes.missing)] = [not reason for reason in lanes.missing]

    @property
    def sections(self) -> tuple[int, ...]:
        """Positions at which a new block starts in any case: where the continuation begins."""
        return (self.lanes.prompt_length,) if 0 < self.lanes.prompt_length < len(self.lanes) else ()

    def widths(self, shown: NDArray[np.bool_]) -> NDArray[np.int64]:
        """int64 `[n]`, cells of every position when only the lanes marked in `shown` (bool `[L]`) are drawn."""
        return cell_widths(self._own_cells, self._flip_cells, self.flips & shown[:, None])

    def line(self, view: View, block: int, offset: int) -> Strip:
        """One line of a block, counted from its ruler."""
        if offset == 0:
            return self._ruler(view, block)
        if offset == 1:
            return self._reference(view, block)
        row = view.layout.rows(block)[offset - 2]
        return self._folded(view, block) if row == FOLD else self._lane(view, block, row)

    def _kinds(self, flags: NDArray[np.uint8]) -> NDArray[np.uint8]:
        positions = np.arange(len(self.lanes))
        kinds = np.where(positions < self.lanes.prompt_length, _PROMPT, _TEXT)
        kinds = kinds + self.flips.any(axis=0)
        kinds[(flags & (SPECIAL | BLANK)) != 0] = _SPECIAL
        return kinds.astype(np.uint8)

    def _clipped(self, text: str, cells: int) -> str:
        text = clip(text, cells)
        return text.replace(CLIPPED, ">") if self.glyphs.ascii_only else text

    def _label(self, view: View, text: str, style: Style, here: bool) -> Brush:
        brush = Brush(view.width)
        ink = view.ink
        brush.put(self.marks.here if here else " ", 1, ink.here if here else ink.base)
        cells = view.text_offset - 2
        text = self._clipped(text, cells)
        used = cell_len(text)
        brush.put(text, used, style)
        brush.put(" " * (cells - used + 1), cells - used + 1, ink.base)
        return brush

    def _ruler(self, view: View, block: int) -> Strip:
        """Section, named spans, what is missing, and the cursor's own number; later ones cover earlier ones."""
        layout, ink = view.layout, view.ink
        start, stop = layout.span(block)
        room = max(view.width - view.text_offset, 0)
        cells = [" "] * room
        inks = [ink.base] * room

        def write(at: int, text: str, style: Style) -> None:
            # Cells count, not characters: text with wide ones is left out rather than pushed aside.
            text = text[: room - at]
            if cell_len(text) == len(text):
                cells[at : at + len(text)] = text
                inks[at : at + len(text)] = [style] * len(text)

        origin = int(layout.edges[start])
        number, x = "", 0
        if start <= view.cursor < stop:
            x = int(layout.edges[view.cursor]) - origin
            number = f"{self.marks.down}{view.cursor}"
            if x + len(number) > room:
                number = number[1:] + self.marks.down
                x = max(min(x, room - 1) - len(number) + 1, 0)
        taken = 0
        if start == 0 or start in self.sections:
            name = "output " if start >= self.lanes.prompt_length else "prompt "
            name = " " * (x + len(number) + 1 if number and x <= len(name) else 0) + name
            write(0, self.marks.rule * room, ink.ruler)
            write(0, name, ink.section)
            taken = len(name)
        spans = np.flatnonzero((self._range_starts < stop) & (self._range_stops > start))
        for at in spans[:MAX_RANGES].tolist():
            span = self.lanes.ranges[at]
            left = max(int(layout.edges[max(span.start, start)]) - origin, taken)
            right = min(int(layout.edges[min(span.stop, stop)]) - origin, room)
            if right - left >= 2:
                bracket = self._bracket(span, right - left, begins=span.start >= start, ends=span.stop <= stop)
                write(left, bracket, ink.range)
        note = self._clipped(self._missing, room)
        free = all(cell in f" {self.marks.rule}" for cell in cells[room - len(note) :])
        if note and (free or start == 0 or start in self.sections):
            write(room - len(note), note, ink.missing)
        write(x, number, ink.here)
        brush = self._label(view, str(start), ink.ruler, False)
        for cell, style in zip(cells, inks, strict=True):
            brush.put(cell, 1, style)
        return brush.strip(ink.base)

    def _bracket(self, span: Range, cells: int, *, begins: bool, ends: bool) -> str:
        """A span's part in one block, named where there is room."""
        name = safe_text(span.name, self.glyphs.ascii_only)[0]
        named = f" {name} " if len(name) + 4 <= cells and cell_len(name) == len(name) else ""
        left = self.marks.open if begins else self.marks.rule
        right = self.marks.close if ends else self.marks.rule
        return (left + named).ljust(cells - 1, self.marks.rule) + right

    def _reference(self, view: View, block: int) -> Strip:
        """The text itself."""
        layout, ink = view.layout, view.ink
        start, stop = layout.span(block)
        inks = (ink.text, ink.contested, ink.prompt, ink.text, ink.special)
        brush = self._label(view, self.labels[0], ink.lanes[0], view.lane == 0 and start <= view.cursor < stop)
        texts = self.glyphs.flows(self.lanes.ids[start:stop].tolist())
        own = self._own_cells[start:stop].tolist()
        kinds = self._text_kinds[start:stop].tolist()
        joined = self._joined[start:stop].tolist()
        edges = layout.edges[start : stop + 1].tolist()
        here = view.cursor - start
        last = stop - start - 1
        for at, (left, right) in enumerate(pairwise(edges)):
            style = inks[kinds[at]]
            gap = right - left - own[at]
            if at == here:
                brush.put(texts[at], own[at], ink.cursor)
                if gap:
                    brush.put(" " * gap, gap, ink.column)
                continue
            brush.put(texts[at], own[at], style)
            if gap:
                if joined[at] and at != last:
                    brush.put(self.marks.join * gap, gap, ink.quiet)
                else:
                    brush.put(" " * gap, gap, style)
        return brush.strip(ink.base)

    def _lane(self, view: View, block: int, lane: int) -> Strip:
        """What one runtime would have said."""
        layout, ink, lanes = view.layout, view.ink, self.lanes
        start, stop = layout.span(block)
        within = slice(start, stop)
        on_cursor = view.lane == lane and start <= view.cursor < stop
        brush = self._label(view, self.labels[lane], ink.lanes[lane % len(ink.lanes)], on_cursor)
        ground = ink.cursor if on_cursor else ink.column
        steps = self._steps[lane, within].tolist()
        flips = self.flips[lane, within].tolist()
        choices = lanes.top1[lane, within].tolist()
        ties = lanes.tie[lane, within].tolist()
        own = self._flip_cells[lane, within].tolist()
        gravity = np.minimum(lanes.triage[lane, within], triage.STRONG).tolist()
        loose = lanes.loose[within].tolist()
        leads = self._leads[within].tolist()
        edges = layout.edges[start : stop + 1].tolist()
        here = view.cursor - start
        for at, (left, right) in enumerate(pairwise(edges)):
            cells = right - left
            step = steps[at]
            if flips[at]:
                mark = self.marks.flips[gravity[at]]
                style = ink.flips[0 if step == NO_BUCKET else step]
                brush.put(mark, 1, ink.strong if gravity[at] == triage.STRONG else style)
                brush.put(self.glyphs.flow(choices[at]), own[at], style)
                gap = cells - own[at] - 1
                if gap:
                    brush.put(" " * gap, gap, ground if at == here else ink.quiet)
                continue
            if ties[at]:
                mark, style = self.marks.tie, ink.tie
            elif choices[at] < 0:
                mark, style = " ", ink.base
            else:
                mark, style = self._agreement(ink, step, loose[at])
            if at == here:
                style = ground if on_cursor else ink.on_column(style)
            self._dot(brush, mark, cells, leads[at], style)
        return brush.strip(ink.base)

    def _folded(self, view: View, block: int) -> Strip:
        """All lanes that never flip in this block: their agreement, coloured by the one that moved furthest."""
        layout, ink, lanes = view.layout, view.ink, self.lanes
        start, stop = layout.span(block)
        within = slice(start, stop)
        quiet = ~layout.active[:, block] & layout.shown
        quiet[0] = False
        here = view.cursor - start
        on_cursor = bool(0 <= here < stop - start and view.lane < len(quiet) and quiet[view.lane])
        brush = self._label(view, f"{int(quiet.sum())} agree", ink.special, on_cursor)
        steps = self._steps[quiet, within]
        known = np.where(steps == NO_BUCKET, 0, steps).max(axis=0, initial=0).tolist()
        ties = np.logical_or.reduce(lanes.tie[quiet, within], axis=0).tolist()
        listed = np.logical_or.reduce(lanes.top1[quiet, within] >= 0, axis=0).tolist()
        loose = lanes.loose[within].tolist()
        leads = self._leads[within].tolist()
        edges = layout.edges[start : stop + 1].tolist()
        for at, (left, right) in enumerate(pairwise(edges)):
            if ties[at]:
                mark, style = self.marks.tie, ink.tie
            elif not listed[at]:
                mark, style = " ", ink.base
            else:
                mark, style = self._agreement(ink, known[at], loose[at])
            self._dot(brush, mark, right - left, leads[at], ink.on_column(style) if at == here else style)
        return brush.strip(ink.base)

    def _agreement(self, ink: Ink, step: int, loose: bool) -> tuple[str, Style]:
        if step == NO_BUCKET:
            return "?", ink.quiet
        if loose:
            return self.marks.loose, ink.dots[step]
        return (self.marks.loud if step >= LOUD_STEP else self.marks.dot), ink.dots[step]

    @staticmethod
    def _dot(brush: Brush, mark: str, cells: int, lead: bool, style: Style) -> None:
        """A mark under the first letter of its token."""
        before = 1 if lead and cells > 1 else 0
        brush.put(" " * before + mark + " " * (cells - before - 1), cells, style)
