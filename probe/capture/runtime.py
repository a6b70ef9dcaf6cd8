"""One runtime being captured: asks its server, writes its file."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from probe.capture.options import Observer, Target
from probe.capture.slots import Slots
from probe.capture.texts import Text, TextBoard
from probe.errors import DeadlineError, FlipscopeError, ServerAnswerError, ServerError, ServerRefusedError
from probe.records import Header, Piece, PromptRecord, Protocol, Timing
from probe.store.writer import CaptureWriter
from probe.stream import NO_TOKEN, TokenStream
from probe.tokens import ServerWords, TokenTable
from probe.wire.client import RuntimeClient


@dataclass
class Runtime:
    """A server that answered its preflight, and what is known about it.

    Attributes:
        target: Label, address and dims.
        client: The connection.
        table: Where token bytes come from.
        words: The same table when it has to learn the server's own words, else None.
    """

    target: Target
    client: RuntimeClient
    table: TokenTable
    words: ServerWords | None = None

    @property
    def label(self) -> str:
        """Name of the runtime."""
        return self.target.label


@dataclass
class Outcome:
    """What became of one runtime's capture."""

    label: str
    path: Path
    recorded: int = 0
    kept: int = 0
    positions: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    error: ServerError | None = None


class Recording:
    """The capture of one runtime over all texts.

    Args:
        runtime: The server.
        header: What the capture file begins with.
        writer: The capture file.
        board: Where the reference's text is posted.
        slots: Places for requests at this server.
        leads: Whether this runtime writes the text.
        observer: Who watches.
    """

    def __init__(
        self,
        runtime: Runtime,
        header: Header,
        writer: CaptureWriter,
        board: TextBoard,
        slots: Slots,
        *,
        leads: bool,
        observer: Observer,
    ) -> None:
        self._runtime = runtime
        self._protocol: Protocol = header.protocol
        self._writer = writer
        self._board = board
        self._leads = leads
        self._observer = observer
        self._slots = slots
        self._writing = asyncio.Lock()
        self.outcome = Outcome(runtime.label, writer.path)

    async def run(self, texts: list[Text], written: Mapping[str, tuple[int, ...]]) -> None:
        """Capture every text that is not on disk yet. Never raises for a server's failure: `outcome` holds it.

        Args:
            texts: All texts of the run.
            written: Continuations this file holds already, by prompt id; a leading runtime posts them.
        """
        done = self._writer.done
        todo = [text for text in texts if text.prompt_id not in done]
        self.outcome.kept = len(texts) - len(todo)
        self._observer.planned(
            self._runtime.label, len(texts), self.outcome.kept, sum(text.expected_tokens for text in todo)
        )
        if self._leads:
            for text in texts:
                if text.prompt_id in written:
                    self._board.post(text.index, written[text.prompt_id])
        queue = iter(todo)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._slots.workers, len(todo))):
                    group.create_task(self._work(queue))
            self._writer.finish()
        except* ServerError as errors:
            self._stop(_first(errors))
        finally:
            if self._leads:
                self._board.close(f"{self._runtime.label} stopped before it wrote this text")
            self._writer.close()

    def close(self) -> None:
        """Let go of the file; what is on disk stays resumable."""
        self._writer.close()

    def _stop(self, error: ServerError) -> None:
        self.outcome.error = error
        self._observer.stopped(self._runtime.label, f"{error.title}: {error.detail}")

    async def _work(self, queue: Iterator[Text]) -> None:
        for text in queue:
            record = await self._capture(text)
            await self._write(text, record)

    async def _capture(self, text: Text) -> PromptRecord:
        """Ask the server about one text. A refusal becomes a record that says so."""
        started = datetime.now(UTC).isoformat(timespec="milliseconds")
        parts = _Parts(text, started)
        try:
            await self._ask(text, parts)
        except (ServerRefusedError, ServerAnswerError) as error:
            parts.failure = f"{error.title}: {error.detail}"
            if self._leads:
                self._board.post(text.index, f"the reference could not write it ({error.detail})")
        return parts.record()

    async def _ask(self, text: Text, parts: _Parts) -> None:
        client, protocol = self._runtime.client, self._protocol
        words = self._runtime.words
        async with self._slots.generate():
            answer = await client.generate(text.ids, text.max_tokens, protocol.top_k, seed=protocol.seed)
        parts.generated, parts.finish_reason, parts.generate_s = answer.stream, answer.finish_reason, answer.seconds
        if answer.cut:
            parts.evidence["generation cut"] = f"the server's context ended it after {len(answer.stream)} tokens"
        parts.evidence |= answer.evidence
        continuation: tuple[int, ...] | str
        if text.continuation is not None:
            continuation = text.continuation
        elif self._leads:
            continuation = tuple(int(token) for token in answer.stream.ids)
        else:
            continuation = await self._board.read(text.index)
        if isinstance(continuation, str):
            parts.failure = continuation
            return
        if self._leads:
            self._board.post(text.index, continuation)
        async with self._slots.score():
            scored = await client.score([*text.ids, *continuation], protocol.top_k, words=words is not None)
        parts.forced, parts.score_s = scored.stream, scored.seconds
        parts.evidence |= scored.evidence
        if words is not None:
            words.learn(scored.words)
            await self._settle(words, scored.stream, answer.stream)

    async def _settle(self, words: ServerWords, *streams: TokenStream) -> None:
        """Ask for the words of ids on their own: of those that only a generation lists, and of parts of characters."""
        try:
            words.settle(await self._runtime.client.words(words.doubtful(_tokens(streams))))
        except* ServerRefusedError:
            pass  # no /detokenize: they stay as they are, and are shown as inexact

    async def _write(self, text: Text, record: PromptRecord) -> None:
        """Put a record on disk, then tell: progress never runs ahead of the file."""
        pieces = self._pieces(record)
        async with self._writing:
            await asyncio.to_thread(self._writer.append, record, pieces)
        if record.failure:
            self.outcome.failed[record.prompt_id] = record.failure
            self._observer.failed(self._runtime.label, record.prompt_id, record.failure)
        else:
            self.outcome.recorded += 1
            self.outcome.positions += sum(len(s) for s in (record.forced, record.generated) if s is not None)
        self._observer.recorded(self._runtime.label, record.prompt_id, text.expected_tokens)

    def _pieces(self, record: PromptRecord) -> dict[int, Piece]:
        streams = [s for s in (record.forced, record.generated) if s is not None]
        return {token: self._runtime.table.piece(token) for token in _tokens(streams)}


class _Parts:
    """A record in the making."""

    def __init__(self, text: Text, started: str) -> None:
        self.text = text
        self.started = started
        self.forced: TokenStream | None = None
        self.generated: TokenStream | None = None
        self.finish_reason = ""
        self.score_s = 0.0
        self.generate_s = 0.0
        self.failure = ""
        self.evidence: dict[str, str] = {}

    def record(self) -> PromptRecord:
        text = self.text
        length = len(self.forced) if self.forced is not None else len(text.ids) + len(text.continuation or ())
        return PromptRecord(
            prompt_id=text.prompt_id,
            category=text.category,
            index=text.index,
            prompt_length=len(text.ids),
            ranges=text.ranges,
            output=text.output(length),
            forced=self.forced,
            generated=self.generated,
            finish_reason=self.finish_reason,
            timing=Timing(started=self.started, score_s=self.score_s, generate_s=self.generate_s),
            failure=self.failure,
            evidence=self.evidence,
        )


def _tokens(streams: Sequence[TokenStream]) -> list[int]:
    """Every id that occurs in some streams, rising."""
    arrays = [array for stream in streams for array in (stream.ids, stream.top_ids.ravel())]
    return [token for token in np.unique(np.concatenate(arrays)).tolist() if token != NO_TOKEN] if arrays else []


def leaves(group: BaseExceptionGroup[FlipscopeError]) -> Iterator[FlipscopeError]:
    """The errors of a group whose tasks ran groups of their own."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error


def _first(errors: BaseExceptionGroup[ServerError]) -> ServerError:
    """The error that tells most: a deadline before its echoes."""
    flat = [error for error in leaves(errors) if isinstance(error, ServerError)]
    return next((e for e in flat if isinstance(e, DeadlineError)), flat[0])
