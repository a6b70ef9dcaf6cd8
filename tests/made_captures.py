"""Streams and captures made in memory, for tests of everything that reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from probe.records import Header, Piece, PromptRecord, PromptSetFacts, Protocol, ServerFacts, TokenizerFacts
from probe.stream import NO_TOKEN, StreamKind, TokenStream, sort_rows

Row = Mapping[int, float]


def stream_of(
    rows: Sequence[Row],
    actual: Sequence[int] | None = None,
    *,
    k: int | None = None,
    start: int = 1,
    kind: StreamKind = "generated",
) -> TokenStream:
    """A stream whose row `i` lists exactly `rows[i]`, id to log-probability.

    Args:
        rows: What is listed per position.
        actual: The text; 0 everywhere when not given. A token that a row lists takes its log-prob from there.
        k: Alternatives a row has room for; the longest row's length when None. The least likely of a row of `k + 1`
            must be the actual token.
        start: Position of the first row.
        kind: What the stream is said to be.
    """
    n = len(rows)
    ids = np.array(actual if actual is not None else [0] * n, np.int32)
    room = max((len(row) for row in rows), default=0) if k is None else k
    top_ids = np.full((n, room), NO_TOKEN, np.int32)
    top_logprobs = np.full((n, room), np.nan, np.float32)
    logprob = np.full(n, np.nan, np.float32)
    for at, row in enumerate(rows):
        if int(ids[at]) in row:
            logprob[at] = row[int(ids[at])]
        listed = sorted(row.items(), key=lambda entry: (-entry[1], entry[0]))
        if len(listed) > room:
            listed = [entry for entry in listed if entry[0] != ids[at]][:room]
        top_ids[at, : len(listed)] = [token for token, _ in listed]
        top_logprobs[at, : len(listed)] = [value for _, value in listed]
    top_ids, top_logprobs = sort_rows(top_ids, top_logprobs)
    return TokenStream(kind, start, ids, logprob, np.zeros(n, np.int32), top_ids, top_logprobs)


def random_rows(
    n: int, rng: np.random.Generator, *, vocabulary: int = 400, k: int = 20, noise: float = 0.3
) -> tuple[list[dict[int, float]], list[dict[int, float]], list[int]]:
    """Top-k rows of two runtimes over one text, cut from full distributions, the actual token always listed.

    Returns:
        Rows of the reference, rows of the candidate (its logits move by `noise`), and the text.
    """
    logits = rng.normal(0, 2.5, (n, vocabulary))
    actual = rng.integers(0, vocabulary, n)
    likely = rng.random(n) < 0.9
    actual[likely] = logits[likely].argmax(axis=1)
    text = [int(token) for token in actual]
    sides = []
    for full in (logits, logits + rng.normal(0, noise, logits.shape)):
        logprobs = (full - np.logaddexp.reduce(full, axis=1, keepdims=True)).astype(np.float32)
        best = np.argsort(-logprobs, axis=1, kind="stable")[:, :k]
        sides.append(
            [
                {int(token): float(row[token]) for token in [*chosen.tolist(), own]}
                for row, chosen, own in zip(logprobs, best, text, strict=True)
            ]
        )
    return sides[0], sides[1], text


def forced(rows: Sequence[Row], actual: Sequence[int], *, k: int | None = None) -> TokenStream:
    """A forced stream from position 0: the first row is put before `rows`, `actual` is the whole text."""
    return stream_of([{}, *rows], actual, k=k, start=0, kind="forced")


def header_of(
    label: str,
    *,
    root: str = "weights",
    settings: Mapping[str, str] | None = None,
    dims: Mapping[str, str] | None = None,
    tokenizer: str = "",
    top_k: int = 20,
    concurrency: int = 1,
    mode: str = "raw_logprobs",
    version: str = "0.32.0",
) -> Header:
    """A header that differs from another one only in what is named."""
    return Header(
        label=label,
        created="2026-11-29T12:00:00+00:00",
        facts=ServerFacts(
            url="http://127.0.0.1:8000",
            engine="vllm",
            model="smol",
            root=root,
            version=version,
            settings=dict(settings or {}),
        ),
        protocol=Protocol(top_k=top_k, max_tokens=32, logprobs_mode=mode, concurrency=concurrency),
        prompts=PromptSetFacts(name="set", sha256="0" * 64, count=1),
        tokenizer=TokenizerFacts(source="test", fingerprint=tokenizer),
        dims=dict(dims or {}),
    )


@dataclass(frozen=True)
class MadeSummary:
    """What an index says of a record."""

    category: str
    positions: int
    prompt_length: int
    failure: str


class MadeVocabulary:
    """Every id is its own number."""

    def piece(self, token_id: int) -> Piece:
        return Piece(f"<{token_id}>".encode())


@dataclass
class MadeCapture:
    """A capture that was never a file. `asked` remembers which records were read."""

    header: Header
    records: Mapping[str, PromptRecord]
    damage: tuple[str, ...] = ()
    complete: bool = True
    path: Path = Path("made.msgpack")
    vocabulary: MadeVocabulary = field(default_factory=MadeVocabulary)
    asked: list[str] = field(default_factory=list)

    @property
    def prompt_ids(self) -> tuple[str, ...]:
        return tuple(self.records)

    def record(self, prompt_id: str) -> PromptRecord:
        self.asked.append(prompt_id)
        return self.records[prompt_id]

    def summary(self, prompt_id: str) -> MadeSummary:
        record = self.records[prompt_id]
        length = len(record.forced) if record.forced is not None else 0
        return MadeSummary(record.category, length, record.prompt_length, record.failure)


def record_of(
    prompt_id: str,
    stream: TokenStream | None,
    *,
    prompt_length: int = 2,
    output: tuple[tuple[int, int], ...] = (),
    failure: str = "",
    category: str = "prose",
    index: int = 0,
    generated: TokenStream | None = None,
) -> PromptRecord:
    """One prompt's record around a forced stream."""
    return PromptRecord(
        prompt_id,
        category,
        index,
        prompt_length,
        output=output,
        forced=stream,
        failure=failure,
        generated=generated,
    )
