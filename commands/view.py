"""`flipscope view`: captures side by side in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from probe.errors import InputError

BUNDLED = ("f32", "bf16", "kv-fp8", "int8", "int4")
"""The sample captures in the order they are shown: the reference, then from the smallest damage to the largest."""


def view(
    captures: Annotated[
        list[str], typer.Argument(metavar="A B [C D E]", help="Labels or paths; the first is the reference.")
    ],
    prompt: Annotated[str | None, typer.Option(help="Open at this prompt.")] = None,
    position: Annotated[int | None, typer.Option(help="Open at this position.", min=0)] = None,
    theme: Annotated[str | None, typer.Option(help="Colour theme.")] = None,
) -> None:
    """Show 2–5 captures side by side; the first is the reference."""
    from probe.store.library import resolve

    open_captures([resolve(name) for name in captures], prompt=prompt, position=position, theme=theme)


def open_bundled() -> None:
    """Open the captures that ship with flipscope."""
    from probe import paths

    files = [paths.bundled_captures() / f"{label}.msgpack" for label in BUNDLED]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise InputError(
            f"{paths.bundled_captures()} lacks {', '.join(missing)}",
            hint="reinstall flipscope, or name captures to view",
        )
    open_captures(files)


def open_captures(
    files: Sequence[Path], *, prompt: str | None = None, position: int | None = None, theme: str | None = None
) -> None:
    """Run the app on some capture files.

    Raises:
        FlipscopeError: files that cannot be read or compared, or no terminal to draw on.
    """
    from probe.comparison import MAX_CAPTURES, Comparison

    if not 2 <= len(files) <= MAX_CAPTURES:
        raise InputError(
            f"{len(files)} capture{'s' if len(files) != 1 else ''} given",
            hint=f"name 2 to {MAX_CAPTURES}: the reference first, then what to compare with it",
        )
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):  # Textual draws on stderr
        raise InputError("the app needs a terminal on stdin, stdout and stderr", hint="run it without pipes")
    from probe.store.reader import Capture
    from tui.app import FlipscopeApp

    with ExitStack() as stack:

        def load() -> Comparison:
            return Comparison.of([stack.enter_context(Capture.open(file)) for file in files])

        failure = FlipscopeApp(load, theme=theme, prompt=prompt, position=position).run()
        if failure is not None:
            raise failure
