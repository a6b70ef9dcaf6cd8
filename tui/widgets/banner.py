"""One line that says that something about these captures should be known before their numbers are read."""

from __future__ import annotations

from typing import ClassVar

from textual.strip import Strip
from textual.widget import Widget

from tui.painting import Line
from tui.session import Session

_POINTER = "i shows all "


class Banner(Widget):
    """The first note, and how many there are; gone when there is none."""

    DEFAULT_CSS = """
    Banner {
        height: 1;
        background: $warning-muted;
        & > .banner--mark { color: $text-warning; text-style: bold; }
        & > .banner--text { color: $foreground; }
    }
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {"banner--mark", "banner--text"}

    def __init__(self, session: Session, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._session = session
        self.display = bool(session.notes)

    async def on_click(self) -> None:
        """Show all of them."""
        await self.run_action("screen.info")

    def render_line(self, y: int) -> Strip:
        """The line."""
        notes = self._session.notes
        mark, text = (self.get_component_rich_style(f"banner--{name}") for name in ("mark", "text"))
        line = Line(self.size.width).add(f" ! {len(notes)} {'note' if len(notes) == 1 else 'notes'}  ", mark)
        if notes:
            line.add(notes[0], text, width=max(line.room - len(_POINTER) - 1, 0))
        return line.add(" " + _POINTER, mark).strip(text)
