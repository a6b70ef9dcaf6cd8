"""What happened, told upwards: frozen facts in the past tense."""

from __future__ import annotations

from dataclasses import dataclass

from textual.message import Message


@dataclass
class CursorMoved(Message):
    """The cursor stands on another position or lane."""

    position: int
    lane: int

    def can_replace(self, message: Message) -> bool:
        """A later place makes an earlier one moot."""
        return isinstance(message, CursorMoved)


@dataclass
class PromptChosen(Message):
    """A prompt was picked in the list."""

    prompt_id: str


@dataclass
class PositionChosen(Message):
    """A place in the overview was clicked."""

    position: int
