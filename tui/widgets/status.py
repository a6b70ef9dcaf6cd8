"""The two lines under the streams: where the cursor is and what every candidate did there."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len
from rich.style import Style
from textual.strip import Strip

from probe.stream import NO_TOKEN
from tui import figures, triage
from tui.glyphs import safe_text
from tui.opened import OpenPrompt
from tui.painting import Line, clip
from tui.palette import FLIP_STEPS, LANES, NO_BUCKET, kl_bucket
from tui.session import Session
from tui.widgets.flow_painter import MARKS
from tui.widgets.inked import Inked


class StatusBar(Inked):
    """Position, part of the text, token; then per candidate KL, change of probability, flip or tie."""

    DEFAULT_CSS = """
    StatusBar {
        height: 2;
        background: $panel;
        & > .status--position { color: $primary; text-style: bold; }
        & > .status--notice { color: $accent; }
        & > .status--text { color: $foreground; }
        & > .status--token { color: $foreground; text-style: bold; }
        & > .status--lane-0 { color: $lane-0; }
        & > .status--lane-1 { color: $lane-1; }
        & > .status--lane-2 { color: $lane-2; }
        & > .status--lane-3 { color: $lane-3; }
        & > .status--lane-4 { color: $lane-4; }
        & > .status--quiet { color: $text-muted; }
        & > .status--absent { color: $text-disabled; }
        & > .status--flip-0 { background: $flip-0; color: $flip-text-0; text-style: bold; }
        & > .status--flip-1 { background: $flip-1; color: $flip-text-1; text-style: bold; }
        & > .status--flip-2 { background: $flip-2; color: $flip-text-2; text-style: bold; }
        & > .status--flip-3 { background: $flip-3; color: $flip-text-3; text-style: bold; }
        & > .status--flip-4 { background: $flip-4; color: $flip-text-4; text-style: bold; }
        & > .status--flip-5 { background: $flip-5; color: $flip-text-5; text-style: bold; }
        & > .status--flip-6 { background: $flip-6; color: $flip-text-6; text-style: bold; }
        & > .status--flip-7 { background: $flip-7; color: $flip-text-7; text-style: bold; }
    }
    """

    INK_PREFIX = "status"

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "status--position",
        "status--notice",
        "status--text",
        "status--token",
        "status--quiet",
        "status--absent",
        *(f"status--lane-{lane}" for lane in range(LANES)),
        *(f"status--flip-{step}" for step in range(FLIP_STEPS)),
    }

    def __init__(self, session: Session, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._session = session
        self._notice = ""

    def show_cursor(self) -> None:
        """Draw the session's cursor; a notice has been read by then."""
        self._notice = ""
        self.refresh()

    def say(self, notice: str) -> None:
        """Tell something at the right end until the cursor moves. Free of control characters."""
        self._notice = notice
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Where, or what the candidates did."""
        opened = self._session.opened
        line = Line(self.size.width)
        if opened is None or not len(opened.lanes):
            return line.strip(self.ink("text"))
        if y == 0:
            notice = clip(self._notice, line.width - 12)
            line.width -= cell_len(notice) + 3 if notice else 0
            self._place(line, opened)
            line.fill(self.ink("text"))
            line.width = self.size.width
            line.add(f"  {notice}", self.ink("notice"))
        else:
            self._candidates(line, opened)
        return line.strip(self.ink("text"))

    def _place(self, line: Line, opened: OpenPrompt) -> None:
        session, lanes, position = self._session, opened.lanes, self._session.position
        text, quiet = self.ink("text"), self.ink("quiet")
        line.add(f" {position}", self.ink("position")).add(f"/{len(lanes) - 1}  ", quiet)
        line.add("output" if opened.output[position] else "prompt", text)
        for name in (span.name for span in lanes.ranges if span.start <= position < span.stop):
            line.add(f" · {safe_text(name)[0]}", text)
        token_id = int(lanes.ids[position])
        line.add("   token ", quiet).add(session.glyphs.text(token_id), self.ink("token")).add(f" #{token_id}", quiet)
        first = int(lanes.top1[0, position])
        if first == NO_TOKEN:
            line.add("   nothing is predicted here", quiet)
            return
        probability = opened.probability(position)
        line.add(f"   p {figures.probability(probability)} in {session.labels[0]}", quiet)
        if first != token_id:
            line.add(", which prefers ", quiet)
            line.add(session.glyphs.text(first), self.ink("token"))
        if lanes.loose[position]:
            line.add("   loose: KL is a low floor here" if line.room > 32 else "   loose", quiet)

    def _candidates(self, line: Line, opened: OpenPrompt) -> None:
        shown = [lane for lane in range(1, len(self._session.labels)) if self._session.shown[lane]]
        for place, lane in enumerate(shown):
            cells = (line.room - 1) // (len(shown) - place)
            self._candidate(line, opened, lane, cells)

    def _candidate(self, line: Line, opened: OpenPrompt, lane: int, cells: int) -> None:
        lanes, position = opened.lanes, self._session.position
        quiet, text = self.ink("quiet"), self.ink("text")
        label = self._session.labels[lane]
        stop = line.used + cells
        kl, delta = float(lanes.kl[lane, position]), float(opened.delta_p[lane, position])
        worth = int(lanes.triage[lane, position])
        mark = triage.MARKS[worth] if worth else MARKS.tie if lanes.tie[lane, position] else " "
        line.add(" ", text)
        if math.isnan(kl):
            line.add(" ", text).add(
                f"{label} {lanes.missing[lane] if lanes.missing else ''}", self.ink("absent"), width=cells - 2
            )
            return
        numbers, name = self._fitting(label, kl, delta, worth, bool(lanes.tie[lane, position]), cells - 3)
        line.add(f"{mark} ", self._ground(lanes.kl[lane, position : position + 1]) if worth else text)
        line.add(f"{name} ", self.ink(f"lane-{lane % LANES}") + Style(bold=bool(worth)))
        line.add(numbers, quiet)
        line.add("", text, width=stop - line.used)

    def _fitting(self, label: str, kl: float, delta: float, worth: int, tie: bool, cells: int) -> tuple[str, str]:
        """The most that can be said in so many cells, and the label beside it."""
        word = "flip" if worth else "tie" if tie else ""
        long = f"{triage.NAMES[worth]} flip" if worth else word
        both = f"KL {figures.nats(kl)} Δp {figures.change(delta)}"
        forms = (f"{both} {long}", f"{both} {word}", both, f"KL {figures.nats(kl)} {word}", f"KL {figures.nats(kl)}")
        for form in forms:
            if cell_len(label) + 2 + cell_len(form.rstrip()) <= cells:
                return form.rstrip(), label
        shortest = figures.nats(kl)
        return shortest, clip(label, max(cells - 2 - cell_len(shortest), 2))

    def _ground(self, kl: NDArray[np.float32]) -> Style:
        step = int(kl_bucket(kl)[0])
        return self.ink("token" if step == NO_BUCKET else f"flip-{step}")
