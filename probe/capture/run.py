"""A whole capture: connect, check, agree on the text, record every runtime in parallel."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from probe.capture.options import CaptureOptions, Observer, Target
from probe.capture.runtime import Outcome, Recording, Runtime, leaves
from probe.capture.slots import Slots
from probe.capture.texts import Text, TextBoard, resolve, texts_of
from probe.capture.tokenizing import Tokenizing, token_table
from probe.errors import DeadlineError, FlipscopeError, InputError, NotComparableError
from probe.prompts import PromptSet
from probe.records import Header, PromptSetFacts, TokenizerFacts
from probe.store.library import capture_path
from probe.store.reader import Capture
from probe.store.writer import CaptureWriter
from probe.tokens import PieceList
from probe.version import __version__
from probe.wire.connect import connect
from probe.wire.limits import Limits

T = TypeVar("T")
Continuations = dict[str, tuple[int, ...]]
"""What a runtime wrote after each prompt, by prompt id."""
PATIENCE_S = 5.0
"""Silence of a server after which the user is told what is waited for."""


async def run_capture(
    targets: Sequence[Target],
    options: CaptureOptions,
    observer: Observer,
    *,
    prompts: PromptSet | None = None,
    reference: Capture | None = None,
) -> list[Outcome]:
    """Capture several runtimes over the same texts.

    The first target writes the text unless `reference` is given, whose text every target then scores. Each target
    also records its own greedy answers. Files that exist are resumed.

    Args:
        targets: The runtimes.
        options: Protocol, folder and limits.
        observer: Who watches.
        prompts: The prompt set; required without `reference`.
        reference: A capture whose texts are scored.

    Returns:
        One outcome per target, in order. A server that failed on the way is in its outcome, not an exception.

    Raises:
        FlipscopeError: before anything is written: a server that cannot be reached or refuses the protocol, a prompt
            set that does not fit, a file made under other conditions.
    """
    limits = Limits(request_s=options.request_timeout, run_s=options.deadline)
    if reference is not None:
        _keep_reference(reference, targets, options)
    try:
        async with asyncio.timeout(options.deadline), AsyncExitStack() as stack:
            runtimes = await _connect(targets, options, limits, observer, stack)
            texts, facts = await _texts(runtimes, options, observer, prompts, reference)
            texts = await _preflight(runtimes, texts, options, observer)
            return await _record(runtimes, texts, facts, options, observer, reference)
    except TimeoutError as error:
        raise DeadlineError(
            f"the run took longer than {options.deadline:g} s", hint="what was recorded is kept; run it again to go on"
        ) from error


def _keep_reference(reference: Capture, targets: Sequence[Target], options: CaptureOptions) -> None:
    """Refuse to write over the capture whose texts are scored."""
    for target in targets:
        path = capture_path(target.label, options.folder)
        if _exists(path) and path.samefile(reference.path):
            raise InputError(
                f"{path} is the reference, and {target.label!r} would be written there",
                hint="capture under another label",
            )


async def _connect(
    targets: Sequence[Target], options: CaptureOptions, limits: Limits, observer: Observer, stack: AsyncExitStack
) -> list[Runtime]:
    async def one(target: Target) -> Runtime:
        def notice(message: str) -> None:
            observer.notice(target.label, message)

        def progress(done: int, total: int) -> None:
            observer.loading(target.label, done, total)

        with _naming(target.label):
            client = await stack.enter_async_context(
                connect(target.address, limits=limits, notice=notice, progress=progress)
            )
            waiting = asyncio.get_running_loop().call_later(
                PATIENCE_S, notice, f"still waiting for {target.address} to answer"
            )
            try:
                await client.facts()
            finally:
                waiting.cancel()
            table, words = await token_table(client, options.tokenizer, notice)
        return Runtime(target, client, table, words)

    return await _together(one(target) for target in targets)


@contextmanager
def _naming(label: str) -> Iterator[None]:
    """Errors inside say which runtime they are about: two servers may fail in the same words."""
    try:
        yield
    except FlipscopeError as error:
        error.detail = f"{label}: {error.detail}"
        error.args = (error.detail,)
        raise


async def _texts(
    runtimes: Sequence[Runtime],
    options: CaptureOptions,
    observer: Observer,
    prompts: PromptSet | None,
    reference: Capture | None,
) -> tuple[list[Text], PromptSetFacts]:
    """The texts, and which prompt set they are."""
    if reference is not None:
        _one_vocabulary(f"the reference {reference.header.label}", reference.header.tokenizer, runtimes)
        chosen = None if prompts is None else {prompt.id for prompt in prompts.prompts}
        for shortcoming in _shortcomings(reference, chosen):
            observer.notice(reference.header.label, shortcoming)
        records = (reference.record(name) for name in reference.prompt_ids if chosen is None or name in chosen)
        budgets = {p.id: p.max_tokens for p in (prompts.prompts if prompts else ()) if p.max_tokens}
        texts = texts_of(records, options.protocol.max_tokens, budgets)
        header = reference.header.prompts
        return [replace(text, index=n) for n, text in enumerate(texts)], msgspec.structs.replace(
            header, count=len(texts)
        )
    if prompts is None:
        raise ValueError("a capture needs prompts or a reference")
    leader = runtimes[0]
    _one_vocabulary(leader.label, leader.table.facts, runtimes[1:])
    tokenizing = Tokenizing(leader.client, leader.table)
    texts = await resolve(
        prompts.prompts,
        encode=tokenizing.prompt,
        encode_text=tokenizing.text,
        table=leader.table,
        max_tokens=options.protocol.max_tokens,
    )
    return texts, PromptSetFacts(name=prompts.name, sha256=prompts.sha256, count=len(prompts))


def _shortcomings(reference: Capture, chosen: set[str] | None) -> list[str]:
    """What a reference does not have, though one would think so.

    Raises:
        NotComparableError: it has none of the texts.
    """
    held, facts = set(reference.prompt_ids), reference.header.prompts
    if not held & (held if chosen is None else chosen):
        raise NotComparableError(
            f"the reference {reference.header.label} has none of these prompts: it was captured over {facts.name} "
            f"and holds {len(held)} of {facts.count}",
            hint="leave --prompts out to score all its texts, or capture the reference over this set",
        )
    found = [f"the reference is damaged: {damage}" for damage in reference.damage]
    if chosen is None and len(held) < facts.count:
        found.append(f"the reference is not finished: it holds {len(held)} of {facts.count} prompts; only those count")
    if lacking := sorted((chosen or set()) - held):
        found.append(f"the reference lacks {len(lacking)} of the chosen prompts, which are left out: {_some(lacking)}")
    return found


def _one_vocabulary(name: str, facts: TokenizerFacts, others: Sequence[Runtime]) -> None:
    """Refuse runtimes whose token ids mean other text than those of the one called `name`."""
    for other in others:
        own = other.table.facts.fingerprint
        if facts.fingerprint and own and facts.fingerprint != own:
            raise NotComparableError(
                f"{other.label} has the vocabulary {own}, {name} {facts.fingerprint}",
                hint="token ids mean different text there; only runtimes of one tokenizer compare",
            )


async def _preflight(
    runtimes: Sequence[Runtime], texts: list[Text], options: CaptureOptions, observer: Observer
) -> list[Text]:
    """Fit budgets to the shortest context among the servers, and probe each with the protocol's own request."""
    contexts = {runtime.label: (await runtime.client.facts()).max_model_len for runtime in runtimes}
    shortest = min((length for length in contexts.values() if length), default=0)
    fitted = []
    for text in texts:
        # The longest text a server can score has max_model_len - 1 tokens, since it must generate one more.
        room = shortest - 1 - len(text.ids)
        if shortest and text.continuation is None and 0 < room < text.max_tokens:
            observer.notice(
                runtimes[0].label, f"prompt {text.prompt_id!r}: answer cut to {room} tokens by a context of {shortest}"
            )
            text = replace(text, max_tokens=room)
        fitted.append(text)

    async def one(runtime: Runtime) -> None:
        longest = contexts[runtime.label] - 1
        too_long = [text.prompt_id for text in fitted if contexts[runtime.label] and text.forced_tokens > longest]
        if too_long:
            observer.notice(runtime.label, f"too long for this server's {longest} scorable tokens: {_some(too_long)}")
        # With nothing that fits, the probe of the shortest text says what the server needs.
        sizes = [text.forced_tokens for text in fitted if text.prompt_id not in too_long]
        with _naming(runtime.label):
            warnings = await runtime.client.preflight(
                k=options.protocol.top_k,
                longest=max(sizes, default=min(text.forced_tokens for text in fitted)),
                max_tokens=0,
                vocabulary=len(runtime.table) if isinstance(runtime.table, PieceList) else 0,
            )
        for warning in warnings:
            observer.notice(runtime.label, warning)

    await _together(one(runtime) for runtime in runtimes)
    return fitted


async def _record(
    runtimes: Sequence[Runtime],
    texts: list[Text],
    prompts: PromptSetFacts,
    options: CaptureOptions,
    observer: Observer,
    reference: Capture | None,
) -> list[Outcome]:
    board = TextBoard(len(texts))
    for text in texts:
        if text.continuation is not None:
            board.post(text.index, text.continuation)
    leader = reference.header.label if reference is not None else runtimes[0].label
    recordings: dict[str, Recording] = {}
    # Labels that name one server share its places: side by side their generations would change each other's numbers.
    slots: dict[str, Slots] = {}
    written: dict[str, Continuations] = {}
    # Files that exist come first: a conflict must show before any new file is made.
    by_file = sorted(runtimes, key=lambda runtime: not _exists(capture_path(runtime.label, options.folder)))
    try:
        for runtime in by_file:
            leads = reference is None and runtime is runtimes[0]
            header = Header(
                label=runtime.label,
                created=datetime.now(UTC).isoformat(timespec="seconds"),
                facts=await runtime.client.facts(),
                protocol=options.protocol,
                prompts=prompts,
                tokenizer=runtime.table.facts,
                dims=dict(runtime.target.dims),
                reference="" if leads else leader,
                written_by=f"flipscope {__version__}",
            )
            writer, written[runtime.label] = open_writer(options.folder, header, options.overwrite, leads=leads)
            for damage in writer.damage:
                observer.notice(runtime.label, damage)
            place = runtime.label if runtime.target.address.embedded else runtime.target.address.url
            slots.setdefault(place, Slots(options.protocol.concurrency, options.protocol.generate_concurrency))
            recordings[runtime.label] = Recording(
                runtime, header, writer, board, slots[place], leads=leads, observer=observer
            )
        await _together(recording.run(texts, written[label]) for label, recording in recordings.items())
    finally:
        for recording in recordings.values():
            recording.close()
    return [recordings[runtime.label].outcome for runtime in runtimes]


def open_writer(folder: Path, header: Header, overwrite: bool, *, leads: bool) -> tuple[CaptureWriter, Continuations]:
    """Create a capture file, or resume the one that is there.

    Returns:
        The writer, and for a leading runtime the continuations it holds already.

    Raises:
        CaptureConflictError: the file was made under other conditions, or another process is writing it.
        FlipscopeError: the file cannot be read or written.
    """
    path = capture_path(header.label, folder)
    if overwrite and _exists(path):
        CaptureWriter.discard(path)
    if not _exists(path):
        return CaptureWriter.create(path, header), {}
    writer = CaptureWriter.resume(path, header)
    written: Continuations = {}
    if leads:
        with Capture.open(path) as capture:
            for prompt_id in writer.done:
                record = capture.record(prompt_id)
                if record.forced is not None:
                    written[prompt_id] = tuple(int(t) for t in record.forced.ids[record.prompt_length :])
    return writer, written


def _some(prompt_ids: Sequence[str]) -> str:
    """The first few prompts by name."""
    return ", ".join(map(repr, prompt_ids[:5])) + (" …" if len(prompt_ids) > 5 else "")


def _exists(path: Path) -> bool:
    """Whether something lies there. What cannot even be looked at is left to the writer, which says why."""
    try:
        return path.exists()
    except OSError:  # a name too long for the system, a folder that may not be entered
        return False


async def _together(jobs: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run jobs side by side; the first failure ends the others and is raised as itself, not as a group."""
    tasks: list[asyncio.Task[T]] = []
    failure: FlipscopeError | None = None
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(job) for job in jobs]
    except* FlipscopeError as errors:
        failure = next(leaves(errors))
    if failure is not None:  # raised in the handler, Python before 3.11.4 would wrap it into a group again
        raise failure
    return [task.result() for task in tasks]
