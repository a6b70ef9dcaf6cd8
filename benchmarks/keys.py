"""CPU time of a key in the streams against an empty Textual app, at 1,000 and at 100,000 positions.

Run: `python -m benchmarks.keys [--keys 200] [--positions 1000 100000] [--size 200x50]`

The clock is the process's CPU time, from the key until the last frame's bytes exist: the apps override `_display`,
since the headless driver would skip making them. Wall time on a shared machine measures the neighbours.
The first rounds of every case are thrown away; medians and 99th percentiles are of the rest.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from itertools import cycle

os.environ.setdefault("TEXTUAL_COLOR_SYSTEM", "truecolor")
os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")

import numpy as np
from textual import events
from textual._compositor import CompositorUpdate
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.screen import Screen
from textual.widgets import Footer, Static

from probe.records import Piece
from tui.glyphs import Glyphs
from tui.lanes import Lanes
from tui.palette import DEFAULT_DARK, themes, variable_defaults
from tui.widgets.flow import FlowView
from tui.widgets.overview import Overview

WARM_UP = 15
"""Keys per case before counting starts: caches, style objects, first collections."""

QUIET_S = 0.03
"""A burst of frames is over when this long nothing was painted."""

LANES = 5


class Measured(App[None]):
    """An app that makes the bytes a terminal would get and notes when."""

    def __init__(self) -> None:
        super().__init__()
        for theme in themes():
            self.register_theme(theme)
        self.theme = DEFAULT_DARK
        self.painted = asyncio.Event()
        self.painted_at = 0.0
        self.bytes_made = 0
        self.frames = 0

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Our variables."""
        return variable_defaults()

    def _display(self, screen: Screen[object], renderable: object) -> None:
        if isinstance(renderable, CompositorUpdate):
            self.bytes_made += len(renderable.render_segments(self.console).encode("utf-8"))
            self.frames += 1
            self.painted_at = time.process_time()
            self.painted.set()


class Empty(Measured):
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


class Streams(Measured):
    """The flow and the overview over made-up lanes."""

    def __init__(self, lanes: Lanes, glyphs: Glyphs) -> None:
        super().__init__()
        self.lanes, self.glyphs = lanes, glyphs

    def compose(self) -> ComposeResult:
        """Overview, streams, keys."""
        self.overview = Overview()
        self.flow = FlowView(on_cursor=self.follow)
        yield self.overview
        yield self.flow
        yield Footer()

    def on_mount(self) -> None:
        """Show the lanes."""
        self.flow.show(self.lanes, self.glyphs)
        self.overview.show(self.lanes)
        self.flow.focus()

    def follow(self, position: int, lane: int) -> None:
        """Paint the overview in the same frame."""
        self.overview.cursor = position


def make_lanes(n: int, seed: int = 7) -> tuple[Lanes, Glyphs]:
    """Lanes that flip as real ones do: 0.1, 2, 4 and 19 % of positions; words as long as real tokens."""
    rng = np.random.default_rng(seed)
    words = ["".join(map(chr, rng.integers(97, 123, size))) for size in rng.integers(1, 9, 32_000)]
    spaced = rng.random(len(words)) < 0.6
    table = [Piece((" " * bool(lead) + word).encode()) for lead, word in zip(spaced, words, strict=True)]
    table[10], table[11], table[12] = Piece(b"\n"), Piece("日本語".encode()), Piece(b"\xe6")
    ids = rng.integers(0, len(table), n, dtype=np.int32)
    ids[rng.random(n) < 0.03] = 10
    flip = rng.random((LANES, n)) < np.array([0.0, 0.001, 0.02, 0.04, 0.19])[:, None]
    flip[:, 0] = False
    top1 = np.where(flip, rng.integers(0, len(table), (LANES, n)), ids).astype(np.int32)
    kl = rng.lognormal(-5, 2, (LANES, n)).astype(np.float32)
    kl[0] = 0
    triage = np.where(flip, rng.integers(1, 5, (LANES, n)), 0).astype(np.uint8)
    tie = ~flip & (rng.random((LANES, n)) < 0.01)
    loose = rng.random(n) < 0.2
    labels = ("f32", "bf16", "kv fp8", "int8", "int4")
    lanes = Lanes("made up", labels, ids, top1, kl, flip, tie, triage, loose, n // 3)
    return lanes, Glyphs(lambda token_id: table[token_id])


async def press(app: Measured, key: str) -> tuple[float, int, int]:
    """Send a key as the driver would; CPU milliseconds to the last paint, bytes, frames."""
    assert app._driver is not None
    app.painted.clear()
    app.bytes_made = app.frames = 0
    start = time.process_time()
    app._driver.send_message(events.Key(key, None))
    await asyncio.wait_for(app.painted.wait(), 10)
    while True:
        app.painted.clear()
        try:
            await asyncio.wait_for(app.painted.wait(), QUIET_S)
        except TimeoutError:
            return (app.painted_at - start) * 1000, app.bytes_made, app.frames


async def measure(
    make: Callable[[], Measured],
    cases: dict[str, Iterator[str]],
    count: int,
    size: tuple[int, int],
    before: Callable[[Measured, str], None] = lambda app, case: None,
) -> dict[str, dict[str, float]]:
    """Medians and 99th percentiles of every case, in one app."""
    results: dict[str, dict[str, float]] = {}
    app = make()
    async with app.run_test(size=size) as pilot:
        await pilot.pause(0.2)
        gc.collect()
        gc.freeze()
        for case, keys in cases.items():
            taken = []
            for turn in range(count + WARM_UP):
                before(app, case)
                sample = await press(app, next(keys))
                if turn >= WARM_UP:
                    taken.append(sample)
            times = [sample[0] for sample in taken]
            results[case] = {
                "median_ms": statistics.median(times),
                "p99_ms": float(np.percentile(times, 99)),
                "bytes": statistics.median(sample[1] for sample in taken),
                "frames": statistics.median(sample[2] for sample in taken),
            }
    gc.unfreeze()
    return results


def there_and_back(forward: str, backward: str, steps: int) -> Iterator[str]:
    """Keys that never run into an end."""
    return cycle([forward] * steps + [backward] * steps)


async def run(positions: list[int], count: int, size: tuple[int, int]) -> dict[str, dict[str, dict[str, float]]]:
    """The floor, then every length."""
    floor = await measure(Empty, {"key": cycle(["right"])}, count, size)
    results = {"empty": floor}
    for n in positions:
        lanes, glyphs = make_lanes(n)

        def make(lanes: Lanes = lanes, glyphs: Glyphs = glyphs) -> Streams:
            return Streams(lanes, glyphs)

        cases = {
            "step": there_and_back("right", "left", 400),
            "line": there_and_back("down", "up", 5),
            "page": there_and_back("pagedown", "pageup", 2),
            "far": cycle(["ctrl+end", "ctrl+home"]),
        }
        results[f"{n:,}"] = await measure(make, cases, count, size)
    return results


def report(results: dict[str, dict[str, dict[str, float]]]) -> None:
    floor = results["empty"]["key"]["median_ms"]
    print(f"{'positions':>10} {'case':<6} {'median ms':>10} {'p99 ms':>8} {'x empty':>8} {'bytes':>7} {'frames':>7}")
    for name, cases in results.items():
        for case, numbers in cases.items():
            print(
                f"{name:>10} {case:<6} {numbers['median_ms']:>10.2f} {numbers['p99_ms']:>8.2f} "
                f"{numbers['median_ms'] / floor:>8.1f} {numbers['bytes']:>7.0f} {numbers['frames']:>7.0f}"
            )


def main() -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=200)
    parser.add_argument("--positions", type=int, nargs="+", default=[1_000, 100_000])
    parser.add_argument("--size", default="200x50")
    parser.add_argument("--json", action="store_true")
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
