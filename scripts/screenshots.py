"""Draw README's pictures from the bundled captures: `python scripts/screenshots.py [FOLDER]` (default docs/)."""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # a script's own folder is what Python would look in

from commands.view import BUNDLED  # noqa: E402
from probe import paths  # noqa: E402
from probe.comparison import Comparison  # noqa: E402
from probe.store.reader import Capture  # noqa: E402
from tui.app import FlipscopeApp  # noqa: E402

SHOTS = {
    "streams-dark": ("flipscope-dark", (132, 38), "tool-ping", ["n", "n"]),
    "streams-light": ("flipscope-light", (132, 38), "agent-incident", ["n"]),
    "streams-small": ("flipscope-dark", (80, 24), "sql-update", ["n"]),
}
"""Picture → theme, columns and lines, prompt, keys pressed."""


async def draw(folder: Path) -> None:
    """Write one SVG per shot."""
    for name, (theme, size, prompt, keys) in SHOTS.items():
        with ExitStack() as stack:
            files = [paths.bundled_captures() / f"{label}.msgpack" for label in BUNDLED]
            captures = [stack.enter_context(Capture.open(file)) for file in files]
            app = FlipscopeApp(Comparison.of(captures), theme=theme, prompt=prompt)
            async with app.run_test(size=size) as pilot:
                await app.workers.wait_for_complete()
                await pilot.pause()
                for key in keys:
                    await pilot.press(key)
                await pilot.pause()
                target = folder / f"{name}.svg"
                target.write_text(app.export_screenshot(title="flipscope"))
                print(target, target.stat().st_size)


if __name__ == "__main__":
    asyncio.run(draw(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs"))
