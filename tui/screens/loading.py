"""What stands on the screen while captures are opened."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static


class LoadingScreen(Screen[None]):
    """A quiet line in the middle. Captures open in well under a second, so nothing moves."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,escape", "app.quit", "Quit", id="loading.quit", tooltip="Leave before the captures are open."),
    ]

    DEFAULT_CSS = """
    LoadingScreen {
        align: center middle;
        Static { width: auto; text-align: center; color: $text-muted; }
    }
    """

    def compose(self) -> ComposeResult:
        """The line."""
        yield Static(Content.assemble(("flipscope", "bold $primary"), "\n\nopening captures …"))
