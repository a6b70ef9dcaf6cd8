"""A line of cells whose widths are known: what the flow and the overview draw with."""

from __future__ import annotations

from rich.cells import set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip


class Brush:
    """One line in the making; neighbours of one style become one segment."""

    __slots__ = ("_segments", "_style", "_texts", "used", "width")

    def __init__(self, width: int) -> None:
        self.width = width
        self.used = 0
        self._segments: list[Segment] = []
        self._texts: list[str] = []
        self._style: Style | None = None

    def put(self, text: str, cells: int, style: Style) -> None:
        """Append text that is `cells` wide; what has no room is cut off."""
        if self.used + cells > self.width:
            cells = self.width - self.used
            if cells <= 0:
                return
            text = set_cell_size(text, cells)
        if style is not self._style:
            self._flush()
            self._style = style
        self._texts.append(text)
        self.used += cells

    def strip(self, style: Style) -> Strip:
        """The line, filled up to its width."""
        if self.used < self.width:
            self.put(" " * (self.width - self.used), self.width - self.used, style)
        self._flush()
        return Strip(self._segments, self.width)

    def _flush(self) -> None:
        if self._texts:
            self._segments.append(Segment("".join(self._texts), self._style))
            self._texts = []
