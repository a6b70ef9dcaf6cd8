"""`flipscope capture`: record runtimes over one prompt set."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from probe.errors import InputError, ServerError

if TYPE_CHECKING:
    from commands.progress import CaptureProgress
    from probe.capture.options import CaptureOptions, Target
    from probe.capture.runtime import Outcome
    from probe.prompts import PromptSet
    from probe.records import Protocol
    from probe.store.reader import Capture


def capture(
    targets: Annotated[list[str], typer.Argument(metavar="LABEL=URL …", help="Runtimes; the first writes the text.")],
    ref: Annotated[str | None, typer.Option(help="Score the texts of this capture (label or path) instead.")] = None,
    prompts: Annotated[str | None, typer.Option(help="Prompt set: a JSONL file or a bundled name. [samples]")] = None,
    limit: Annotated[int | None, typer.Option(help="Only the first N prompts.", min=1)] = None,
    category: Annotated[list[str] | None, typer.Option(help="Only prompts of this category; repeatable.")] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Budget of a greedy answer, in tokens. [128]", min=1, max=1 << 20)
    ] = None,
    top_k: Annotated[int | None, typer.Option(help="Alternatives per position. [20]", min=1, max=1000)] = None,
    concurrency: Annotated[int, typer.Option(help="Scoring requests in flight per server.", min=1)] = 1,
    generate_concurrency: Annotated[
        int, typer.Option(help="Generations in flight per server; above 1 a server may change its own tokens.", min=1)
    ] = 1,
    dim: Annotated[list[str] | None, typer.Option(help="What was turned: kv=fp8, or LABEL:kv=fp8; repeatable.")] = None,
    seed: Annotated[
        int,
        typer.Option(
            help="Sent with every generation; greedy decoding should not need it.", min=-(1 << 63), max=(1 << 63) - 1
        ),
    ] = 0,
    tokenizer: Annotated[str, typer.Option(help="Folder or hub id, for exact token bytes. [the server's model]")] = "",
    out: Annotated[Path | None, typer.Option(help="Folder for the capture files. [./captures]")] = None,
    api_key_file: Annotated[Path | None, typer.Option(help="File with the API key. [FLIPSCOPE_API_KEY]")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start existing captures anew.")] = False,
    deadline: Annotated[float | None, typer.Option(help="Seconds the whole run may take.", min=0.1)] = None,
    request_timeout: Annotated[float | None, typer.Option(help="Seconds one request may take.", min=0.1)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Record runtimes over one prompt set.

    The first runtime writes the text (its own greedy answers, or what the prompts give), the others score exactly
    those tokens; each records its own greedy answers too. Run the same command again to resume.
    """
    from probe import paths
    from probe.capture.options import DEFAULT_MAX_TOKENS, DEFAULT_TOP_K, check_labels, parse_target
    from probe.prompts import read_prompts
    from probe.records import Protocol
    from probe.store.library import resolve
    from probe.store.reader import Capture

    dims = dim or []
    parsed = [parse_target(text, dims, key_file=api_key_file) for text in targets]
    check_labels(parsed, dims)
    reference = Capture.open(resolve(ref)) if ref is not None else None
    chosen = None
    if reference is None or prompts is not None:
        chosen = read_prompts("samples" if prompts is None else prompts).choose(category or (), limit)
    elif limit or category:
        raise InputError("--limit and --category choose from --prompts", hint="with --ref alone every text is scored")
    known = reference.header.protocol if reference else None
    protocol = Protocol(
        top_k=top_k or (known.top_k if known else DEFAULT_TOP_K),
        max_tokens=max_tokens or (known.max_tokens if known else DEFAULT_MAX_TOKENS),
        seed=seed,
        concurrency=concurrency,
        generate_concurrency=generate_concurrency,
    )
    outcomes = capture_targets(
        parsed,
        prompts=chosen,
        reference=reference,
        protocol=protocol,
        folder=out or paths.captures(),
        tokenizer=tokenizer,
        overwrite=overwrite,
        deadline=deadline,
        request_timeout=request_timeout,
    )
    _report(outcomes, as_json)
    raise_stopped(outcomes)
    if any(outcome.failed for outcome in outcomes):
        raise typer.Exit(ServerError.exit_code)
    if not as_json:
        names = [*([ref] if ref else []), *(_name(outcome) for outcome in outcomes)]
        if len(names) > 1:
            typer.echo(f"next: flipscope view {shlex.join(names)}", err=True)


def capture_targets(
    targets: Sequence[Target],
    *,
    protocol: Protocol,
    folder: Path,
    prompts: PromptSet | None = None,
    reference: Capture | None = None,
    tokenizer: str = "",
    overwrite: bool = False,
    deadline: float | None = None,
    request_timeout: float | None = None,
) -> list[Outcome]:
    """Capture with a progress display on stderr. A server that stopped on the way is in its outcome."""
    from commands.progress import CaptureProgress
    from probe.capture.options import CaptureOptions

    options = CaptureOptions(
        protocol=protocol,
        folder=folder,
        tokenizer=tokenizer,
        overwrite=overwrite,
        deadline=deadline,
        request_timeout=request_timeout,
    )
    with CaptureProgress() as progress:
        try:
            outcomes = asyncio.run(_interruptible(targets, options, progress, prompts, reference))
        except (KeyboardInterrupt, asyncio.CancelledError):
            progress.say("interrupted: what was recorded is kept; run the same command again to go on")
            raise typer.Exit(130) from None
    return outcomes


async def _interruptible(
    targets: Sequence[Target],
    options: CaptureOptions,
    progress: CaptureProgress,
    prompts: PromptSet | None,
    reference: Capture | None,
) -> list[Outcome]:
    """Run a capture; SIGTERM and SIGHUP end it as Ctrl-C does, with every file closed."""
    from probe.capture.run import run_capture

    task = asyncio.current_task()
    if task is not None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await run_capture(targets, options, progress, prompts=prompts, reference=reference)


def raise_stopped(outcomes: Sequence[Outcome]) -> None:
    """Raise the first error that stopped a runtime, with how to go on.

    Raises:
        ServerError: a server stopped; everything it recorded is kept.
    """
    for outcome in outcomes:
        if outcome.error is not None:
            kept = outcome.kept + outcome.recorded
            raise ServerError(
                f"{outcome.label}: {outcome.error.detail}",
                hint=f"{kept} prompts are kept in {outcome.path}; run the same command again to go on"
                + (f" ({outcome.error.hint})" if outcome.error.hint else ""),
                title=outcome.error.title,
            )


def _name(outcome: Outcome) -> str:
    """What `flipscope view` calls a capture: its label where labels are looked up, else its path."""
    from probe.store.library import capture_path

    return outcome.label if outcome.path == capture_path(outcome.label) else str(outcome.path)


def _report(outcomes: Sequence[Outcome], as_json: bool) -> None:
    rows = [
        {
            "label": o.label,
            "path": str(o.path),
            "recorded": o.recorded,
            "kept": o.kept,
            "failed": o.failed,
            "stopped": o.error.detail if o.error else "",
            "positions": o.positions,
            "bytes": o.path.stat().st_size,
        }
        for o in outcomes
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        for o, row in zip(outcomes, rows, strict=True):
            kept = f", {o.kept} kept from before" if o.kept else ""
            failed = f", {len(o.failed)} FAILED" if o.failed else ""
            failed += ", STOPPED" if o.error else ""
            prompts = f"{o.recorded} prompt{'' if o.recorded == 1 else 's'}"
            typer.echo(f"{o.label}: {prompts} recorded{kept}{failed}, {row['bytes']:,} bytes  {o.path}")
