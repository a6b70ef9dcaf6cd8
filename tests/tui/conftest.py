"""What the tests of the app share: nothing blinks, and a comparison that was never on disk."""

from __future__ import annotations

import memory_captures
import pytest

from probe.comparison import Comparison
from tui.session import Session


@pytest.fixture(autouse=True)
def nothing_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """No animation, and colours whatever the environment of the tests says."""
    monkeypatch.setattr("textual.constants.TEXTUAL_ANIMATIONS", "none")
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.fixture
def comparison() -> Comparison:
    """Three lanes over four prompts of 200 positions."""
    return memory_captures.comparison()


@pytest.fixture
def session(comparison: Comparison) -> Session:
    """The same, its first prompt open."""
    return memory_captures.opened_session(comparison)
