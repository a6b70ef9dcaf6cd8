"""One line of cells, built from left to right: what the small panels draw with."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size
from rich.style import Style

from tui.widgets.brush import Brush

CLIPPED = "…"
"""Ends a text that had no room."""


def clip(text: str, width: int) -> str:
    """The text in at most `width` cells, with a mark where something was cut off."""
    if cell_len(text) <= width:
        return text
    if width <= 0:
        return ""
    return set_cell_size(text, width - 1).rstrip() + CLIPPED


def ground(style: Style) -> Style:
    """What a style lays under and does to a text, without its colour: for rows that are marked as a whole."""
    return Style(bgcolor=style.bgcolor, bold=style.bold or None, underline=style.underline or None)


class Line(Brush):
    """A line in the making. Text must be free of control characters: it goes to the terminal as it is."""

    __slots__ = ()

    @property
    def room(self) -> int:
        """Cells that are left."""
        return self.width - self.used

    def add(self, text: str, style: Style, *, width: int | None = None, right: bool = False) -> Line:
        """Append text, clipped to the room that is left.

        Args:
            text: What to write.
            style: How.
            width: Cells to fill exactly; as wide as the text when None.
            right: Whether a text shorter than `width` stands at its right end.
        """
        cells = cell_len(text)
        wanted = min(self.room, cells if width is None else width)
        if wanted <= 0:
            return self
        if cells > wanted:
            text = clip(text, wanted)
            cells = cell_len(text)
        padding = " " * (wanted - cells)
        self.put(padding + text if right else text + padding, wanted, style)
        return self

    def fill(self, style: Style, *, leaving: int = 0) -> Line:
        """Append blanks until only `leaving` cells are left."""
        return self.add("", style, width=self.room - leaving)
