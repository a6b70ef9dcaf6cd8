"""CPU time of a key in the app against an empty Textual app, at 1,000 and at 100,000 positions in five lanes.

Run: `python -m benchmarks.keys [--keys 200] [--positions 1000 100000] [--size 200x50] [--json]`

What is measured is the whole app over real capture files: title, overview, prompt list, streams, alternatives, status
line, footer; "bare" is without the alternatives. The clock is the process's CPU time, from the key until the last
frame's bytes exist: the meter replaces `_display`, since the headless driver would skip making them. Wall time on a
shared machine measures the neighbours. The first keys of every case are thrown away; medians and 99th percentiles are
of the rest.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TEXTUAL_COLOR_SYSTEM", "truecolor")
os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")

import numpy as np
from textual import events
from textual._compositor import CompositorUpdate
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Footer, Static

from benchmarks.made_captures import write_captures
from probe.comparison import Comparison
from probe.store.reader import Capture
from tui.app import FlipscopeApp
from tui.widgets.flow import FlowView

WARM_UP = 15
"""Keys per case before counting starts: caches, style objects, first collections."""

QUIET_S = 0.03
"""A burst of frames is over when this long nothing was painted."""


class Sample(NamedTuple):
    """What one key cost."""

    cpu_ms: float
    bytes_made: int
    frames: int


class Meter:
    """Makes the bytes that a terminal would get from an app, and notes when they exist."""

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self._painted = asyncio.Event()
        self._painted_at = 0.0
        self._bytes_made = 0
        self._frames = 0
        app._display = self._display  # type: ignore[method-assign]

    async def press(self, key: str) -> Sample:
        """Send a key as the driver would, and wait until nothing more is painted."""
        driver = self._app._driver
        assert driver is not None
        self._painted.clear()
        self._bytes_made = self._frames = 0
        start = time.process_time()
        driver.send_message(events.Key(key, None))
        await asyncio.wait_for(self._painted.wait(), 10)
        while True:
            self._painted.clear()
            try:
                await asyncio.wait_for(self._painted.wait(), QUIET_S)
            except TimeoutError:
                return Sample((self._painted_at - start) * 1000, self._bytes_made, self._frames)

    def _display(self, screen: Screen[Any], renderable: object) -> None:
        if isinstance(renderable, CompositorUpdate):
            self._bytes_made += len(renderable.render_segments(self._app.console).encode("utf-8"))
            self._frames += 1
            self._painted_at = time.process_time()
            self._painted.set()


class Empty(App[None]):
    """A line of text that changes on a key, and a footer: what no Textual app can undercut."""

    BINDINGS = [Binding("right", "step", "Step")]

    def compose(self) -> ComposeResult:
        """The least there is."""
        self.line = Static("0")
        self.count = 0
        yield self.line
        yield Footer()

    def action_step(self) -> None:
        """Change the line."""
        self.count += 1
        self.line.update(str(self.count), layout=False)


async def measure(
    app: App[Any], cases: dict[str, Iterator[str]], count: int, size: tuple[int, int], first: Sequence[str] = ()
) -> dict[str, dict[str, float]]:
    """Medians and 99th percentiles of every case, in one app."""
    results: dict[str, dict[str, float]] = {}
    meter = Meter(app)
    async with app.run_test(size=size) as pilot:
        await settle(app, pilot)
        for key in first:
            await meter.press(key)
        gc.collect()
        gc.freeze()
        for case, keys in cases.items():
            samples = [await meter.press(next(keys)) for _ in range(count + WARM_UP)][WARM_UP:]
            results[case] = {
                "median_ms": statistics.median(sample.cpu_ms for sample in samples),
                "p99_ms": float(np.percentile([sample.cpu_ms for sample in samples], 99)),
                "bytes": statistics.median(sample.bytes_made for sample in samples),
                "frames": statistics.median(sample.frames for sample in samples),
            }
    gc.unfreeze()
    return results


async def settle(app: App[Any], pilot: Pilot[Any]) -> None:
    """Wait until the captures are read, scored and shown, and go to the first token."""
    if isinstance(app, FlipscopeApp):
        while not (found := app.screen.query(FlowView)) or found.first().lanes is None:
            await pilot.pause(0.05)
        await pilot.pause(1.0)
        found.first().move_to(0)
    await pilot.pause(0.3)


def there_and_back(forward: str, backward: str, steps: int) -> Iterator[str]:
    """Keys that never run into an end."""
    return cycle([forward] * steps + [backward] * steps)


async def run(positions: list[int], count: int, size: tuple[int, int]) -> dict[str, dict[str, dict[str, float]]]:
    """The floor, then every length."""
    results = {"empty": await measure(Empty(), {"key": cycle(["right"])}, count, size)}
    for n in positions:
        with tempfile.TemporaryDirectory() as folder:
            captures = [Capture.open(path) for path in write_captures(Path(folder), n)]
            for name, first in ((f"{n:,}", ()), (f"{n:,} bare", ("a",))):
                cases = {
                    "step": there_and_back("right", "left", 400),
                    "flip": there_and_back("n", "N", 60),
                    "line": there_and_back("down", "up", 5),
                    "page": there_and_back("pagedown", "pageup", 2),
                    "far": cycle(["ctrl+end", "ctrl+home"]),
                }
                results[name] = await measure(FlipscopeApp(Comparison.of(captures)), cases, count, size, first)
            for capture in captures:
                capture.close()
    return results


def report(results: dict[str, dict[str, dict[str, float]]]) -> None:
    """Print a table."""
    floor = results["empty"]["key"]["median_ms"]
    print(f"{'positions':>13} {'case':<6} {'median ms':>10} {'p99 ms':>8} {'x empty':>8} {'bytes':>7} {'frames':>7}")
    for name, cases in results.items():
        for case, numbers in cases.items():
            print(
                f"{name:>13} {case:<6} {numbers['median_ms']:>10.2f} {numbers['p99_ms']:>8.2f} "
                f"{numbers['median_ms'] / floor:>8.1f} {numbers['bytes']:>7.0f} {numbers['frames']:>7.0f}"
            )


def main() -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=200, help="keys per case")
    parser.add_argument("--positions", type=int, nargs="+", default=[1_000, 100_000], help="lengths of the text")
    parser.add_argument("--size", default="200x50", help="of the terminal")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    arguments = parser.parse_args()
    width, _, height = arguments.size.partition("x")
    results = asyncio.run(run(arguments.positions, arguments.keys, (int(width), int(height))))
    if arguments.json:
        json.dump(results, sys.stdout, indent=2)
    else:
        report(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
