"""One line of input at the bottom of the screen, the streams still in sight."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static


class AskScreen(ModalScreen[str | None]):
    """Asks for one short text; None when the user thinks better of it.

    Args:
        question: What is asked, a few words.
        hint: What an answer may look like.
        value: Answer to start with, selected so that typing replaces it.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Cancel", id="ask.cancel", tooltip="Close without an answer."),
    ]

    DEFAULT_CSS = """
    AskScreen {
        align: left bottom;
        background: $background 0%;
        #question {
            height: 3;
            padding: 1 2;
            background: $boost;
            border-left: thick $primary;
        }
        #label { width: auto; color: $primary; text-style: bold; }
        Input { width: 1fr; background: $boost; border: none; height: 1; padding: 0 1; }
        Input:focus { border: none; background-tint: $foreground 0%; }
    }
    """

    def __init__(self, question: str, *, hint: str, value: str = "") -> None:
        super().__init__()
        self._question = question
        self._hint = hint
        self._value = value

    def compose(self) -> ComposeResult:
        """Question and input."""
        with Horizontal(id="question"):
            yield Static(Content(self._question), id="label")
            yield Input(self._value, placeholder=self._hint, select_on_focus=True)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """The answer is in."""
        self.dismiss(event.value.strip() or None)
