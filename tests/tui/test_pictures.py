"""Pictures of the screens, few: one per screen, dark and light, at a common and at the smallest size.

After a change that is meant: `pytest tests/tui/test_pictures.py --snapshot-update`, then look at them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import memory_captures
import pytest
from settling import press, settle
from textual.pilot import Pilot

from tui.app import FlipscopeApp

Snap = Callable[..., bool]


def keys(*names: str) -> Callable[[Pilot[Any]], Any]:
    async def run(pilot: Pilot[Any]) -> None:
        await settle(pilot)
        await press(pilot, *names)

    return run


@pytest.mark.parametrize("theme", ["flipscope-dark", "flipscope-light"])
@pytest.mark.parametrize("size", [(120, 36), (80, 24)])
def test_streams(snap_compare: Snap, theme: str, size: tuple[int, int]) -> None:
    app = FlipscopeApp(memory_captures.comparison(), theme=theme, prompt="sql-orders")
    assert snap_compare(app, terminal_size=size, run_before=keys("n"))


def test_alternatives_below_the_streams(snap_compare: Snap) -> None:
    app = FlipscopeApp(memory_captures.comparison(), prompt="sql-orders")
    assert snap_compare(app, terminal_size=(80, 24), run_before=keys("n", "a"))


def test_help(snap_compare: Snap) -> None:
    app = FlipscopeApp(memory_captures.comparison())
    assert snap_compare(app, terminal_size=(120, 36), run_before=keys("question_mark"))
