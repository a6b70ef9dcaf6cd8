"""`flipscope demo`: capture three embedded configurations now, and open them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RUNTIMES = ("q4_1=embedded:", "kv-q4=embedded:?kv=q4_0", "q2_k=embedded:?weights=Q2_K")
"""The model as shipped, the same with a 4-bit KV cache, the same with 2-bit weights: small, middling, large damage."""


def demo(
    prompts: Annotated[str, typer.Option(help="Prompt set: a JSONL file or a bundled name.")] = "demo",
    limit: Annotated[int | None, typer.Option(help="Only the first N prompts.", min=1)] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the captures; default: the user cache.")] = None,
    show: Annotated[bool, typer.Option("--view/--no-view", help="Open the captures when done.")] = True,
) -> None:
    """Capture three configurations of a small model and open them.

    No server, no GPU: llama.cpp runs them in this process.

    The model (94 MB) is fetched once. A capture that is complete is opened again without capturing.
    """
    from commands.capture import capture_targets, raise_stopped
    from commands.view import open_captures
    from probe import paths
    from probe.capture.options import DEFAULT_TOP_K, parse_target
    from probe.prompts import read_prompts
    from probe.records import Protocol

    folder = out if out is not None else paths.cache() / "demo"
    chosen = read_prompts(prompts).choose(limit=limit)
    outcomes = capture_targets(
        [parse_target(text) for text in RUNTIMES],
        prompts=chosen,
        protocol=Protocol(top_k=DEFAULT_TOP_K, max_tokens=48),
        folder=folder / chosen.sha256[:12],
    )
    raise_stopped(outcomes)
    if show:
        open_captures([outcome.path for outcome in outcomes])
