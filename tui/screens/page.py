"""A sheet over the streams: titled lists of a name and a text each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from rich.console import RenderableType
from rich.padding import Padding
from rich.style import Style
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

NAME_CELLS = 13


class Page(ModalScreen[None]):
    """Scrolls with the arrow keys, closes with Escape. Subclasses say what stands on it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "dismiss", "Close", id="page.close", tooltip="Go back to the streams."),
        Binding("up,k", "scroll(-1)", "Up", id="page.up", tooltip="Scroll up.", show=False),
        Binding("down,j", "scroll(1)", "Down", id="page.down", tooltip="Scroll down.", show=False),
    ]

    DEFAULT_CSS = """
    Page {
        align: center middle;
        #sheet {
            width: 92;
            max-width: 100%;
            height: auto;
            max-height: 96%;
            padding: 1 3;
            background: $surface;
            border-left: outer $primary;
            scrollbar-size-vertical: 1;
            scrollbar-background: $surface;
            scrollbar-color: $primary 50%;
        }
        Static { width: 100%; background: $surface; }
        & > .page--title { color: $primary; text-style: bold; background: $surface; }
        & > .page--name { color: $foreground; text-style: bold; background: $surface; }
        & > .page--text { color: $foreground 75%; background: $surface; }
        & > .page--warning { color: $warning; text-style: bold; background: $surface; }
    }
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {"page--title", "page--name", "page--text", "page--warning"}

    def compose(self) -> ComposeResult:
        """The sheet."""
        with VerticalScroll(id="sheet"):
            for part in self.parts():
                yield Static(part)

    def on_mount(self) -> None:
        """Take the keys."""
        self.query_one("#sheet").focus()

    def parts(self) -> Iterable[RenderableType]:
        """What stands on the sheet, from top to bottom."""
        raise NotImplementedError

    def action_scroll(self, by: int) -> None:
        """Move the sheet."""
        self.query_one("#sheet").scroll_relative(y=by, animate=False)

    def section(self, title: Text | str, rows: Sequence[tuple[str, str]]) -> RenderableType:
        """A titled list.

        Args:
            title: What stands above it.
            rows: Name and text of each entry; both free of control characters, neither is markup.
        """
        table = Table.grid(padding=(0, 1), expand=True)
        table.add_column(width=NAME_CELLS, no_wrap=True)
        table.add_column(ratio=1, overflow="fold")
        for name, text in rows:
            table.add_row(Text(name, self.ink("name")), Text(text, self.ink("text")))
        grid = Table.grid(expand=True)
        grid.add_row(Text(title, self.ink("title")) if isinstance(title, str) else title)
        grid.add_row(Padding(table, (0, 0, 1, 2)))
        return grid

    def ink(self, name: str) -> Style:
        """Style of a component of the page."""
        return self.get_component_rich_style(f"page--{name}")
