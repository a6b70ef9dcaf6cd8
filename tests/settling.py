"""Waiting for the app without guessing at seconds."""

from __future__ import annotations

from typing import Any

from textual.pilot import Pilot


async def settle(pilot: Pilot[Any]) -> None:
    """Return when nothing is being read, scored or painted. Workers that wait for an answer are left alone."""
    for _ in range(50):
        await pilot.pause()
        busy = [worker for worker in pilot.app.workers if worker.group != "ask" and not worker.is_finished]
        if not busy:
            break
        await pilot.app.workers.wait_for_complete(busy)
    await pilot.pause()


async def press(pilot: Pilot[Any], *keys: str) -> None:
    """Press keys one after the other, each when the one before is done."""
    for key in keys:
        await pilot.press(key)
        await settle(pilot)


def text_of(widget: Any) -> list[str]:
    """The lines that a widget shows."""
    return [widget.render_line(y).text for y in range(widget.size.height)]
