"""Captures that never were on disk: seeded random streams over a small vocabulary, enough for any screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from probe.comparison import Comparison
from probe.errors import CaptureFormatError
from probe.records import Header, Piece, PromptRecord, PromptSetFacts, Protocol, Range, ServerFacts, TokenizerFacts
from probe.store.index import PromptSummary
from probe.stream import TokenStream, sort_rows
from tui.session import Session

WORDS = (
    " the", " port", " of", " is", " set", ",", ".", "\n", " a", " router", " interface", " Gi0/0/1", "=", "\"", " 42",
    " SELECT", " FROM", " orders", " WHERE", " id", " and", " to", " in", "{", "}", ":", " name", " value", "_", "(",
    ")", " return", " if", " not", " None", " for", " x", " y", "er", "ing", "ed", "s", " un", " re", " config",
    " show",
)  # fmt: skip

HOSTILE = (
    b"[/INST]", b"[red]", b"[INST]", b"[@click=app.bell]x[/]", b"\x1b[31m", b"\x1b]0;title\x07", b"\x00", b"\r\n",
    "\u202egnp".encode(), "\u2066x".encode(), "Z\u0301\u0302\u0303\u0304\u0305\u0306\u0307".encode(), "漢字".encode(),
    "👩\u200d👩\u200d👧".encode(), b"\xe6\xbc", b"", b"x" * 2000, "\u0301".encode(), "\u200b".encode(), "שלום".encode(),
    b"\xed\xa0\x80",
)  # fmt: skip

PROMPTS = {"facts-capital": "facts", "facts-river": "facts", "sql-orders": "code", "cisco-acl": "config"}
"""Ids and categories of the default set."""


class MemoryVocabulary:
    """Pieces by index."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = pieces

    def piece(self, token_id: int) -> Piece:
        return self._pieces[token_id] if 0 <= token_id < len(self._pieces) else Piece(b"", exact=False)

    def ids(self) -> NDArray[np.int32]:
        return np.arange(len(self._pieces), dtype=np.int32)


@dataclass
class MemoryCapture:
    """What `probe.store.reader.Capture` offers, from memory."""

    header: Header
    records: Mapping[str, PromptRecord]
    vocabulary: MemoryVocabulary
    damage: tuple[str, ...] = ()
    broken: frozenset[str] = frozenset()
    path: Path = field(default_factory=lambda: Path("memory.msgpack"))
    complete: bool = True

    @property
    def prompt_ids(self) -> tuple[str, ...]:
        return tuple(self.records)

    def record(self, prompt_id: str) -> PromptRecord:
        if prompt_id in self.broken:
            raise CaptureFormatError(f"{prompt_id}: the record's checksum does not fit", hint="Capture it again.")
        return self.records[prompt_id]

    def summary(self, prompt_id: str) -> PromptSummary:
        record = self.records[prompt_id]
        positions = len(record.forced) if record.forced is not None else 0
        return PromptSummary(
            prompt_id, record.category, record.index, positions, record.prompt_length, 0, record.failure, 0, 0
        )


def header(label: str) -> Header:
    return Header(
        label=label,
        created="2026-01-02T03:04:05Z",
        facts=ServerFacts(
            url="http://127.0.0.1:8000", engine="vllm", model="smol", version="0.32.0", fingerprint="fp_1"
        ),
        protocol=Protocol(top_k=20, max_tokens=64),
        prompts=PromptSetFacts(name="memory", sha256="ab" * 32, count=len(PROMPTS)),
        tokenizer=TokenizerFacts(source="memory", fingerprint="cd" * 16),
        dims={"weights": label},
        written_by="flipscope 0.1.0",
    )


def vocabulary(hostile: bool = False) -> MemoryVocabulary:
    pieces = [Piece(word.encode()) for word in WORDS]
    pieces += [Piece(b"<|im_start|>", special=True), Piece(b"<|im_end|>", special=True)]
    if hostile:
        pieces = [Piece(data) for data in HOSTILE] + pieces
    return MemoryVocabulary(pieces)


def forced(logits: NDArray[np.float64], ids: NDArray[np.int32], k: int = 20) -> TokenStream:
    """A forced stream whose rows are the `k` best of each line of `logits`."""
    logprobs = (logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))).astype(np.float32)
    order = np.argsort(-logprobs, axis=1, kind="stable")[:, :k].astype(np.int32)
    top_ids, top_logprobs = sort_rows(order, np.take_along_axis(logprobs, order, axis=1))
    actual = np.take_along_axis(logprobs, ids[:, None].astype(np.int64), axis=1)[:, 0]
    better = (logprobs > actual[:, None]).sum(axis=1) + 1
    inside = (top_ids == ids[:, None]).any(axis=1)
    rank = np.where(inside, 0, better).astype(np.int32)
    actual = actual.copy()
    top_ids[0], top_logprobs[0], actual[0], rank[0] = -1, np.nan, np.nan, 0
    return TokenStream("forced", 0, ids, actual, rank, top_ids, top_logprobs)


def captures(
    labels: Sequence[str] = ("f32", "bf16", "int4"),
    *,
    prompts: Mapping[str, str] | None = None,
    positions: int = 200,
    hostile: bool = False,
    noise: Sequence[float] = (0.0, 0.15, 0.9, 0.4, 0.6),
    quiet: frozenset[str] = frozenset(),
) -> list[MemoryCapture]:
    """One capture per label over the same texts; lane `i` differs from the first by `noise[i]`.

    Args:
        labels: Names of the runtimes.
        prompts: Ids and categories.
        positions: Length of every text.
        hostile: Whether tokens, labels and names try to break the screen.
        noise: Standard deviation of what is added to the logits.
        quiet: Prompts in which no lane differs.
    """
    prompts = PROMPTS if prompts is None else prompts
    words = vocabulary(hostile)
    size = len(words.ids())
    records: list[dict[str, PromptRecord]] = [{} for _ in labels]
    for index, (prompt_id, category) in enumerate(prompts.items()):
        rng = np.random.default_rng(1000 + index)
        ids = rng.integers(0, size, positions).astype(np.int32)
        logits = rng.normal(0, 1.6, (positions, size))
        logits[np.arange(positions), ids] += rng.choice([2.0, 6.0, 9.0], positions)
        for lane in range(len(labels)):
            moved = 0.0 if prompt_id in quiet else noise[lane]
            stream = forced(logits + np.random.default_rng(7 * index + lane).normal(0, 1, logits.shape) * moved, ids)
            records[lane][prompt_id] = PromptRecord(
                prompt_id=prompt_id,
                category=category,
                index=index,
                prompt_length=positions * 3 // 10,
                ranges=(Range(positions // 2, positions // 2 + 20, "tool call"),),
                output=((positions * 3 // 10, positions),),
                forced=stream,
            )
    return [MemoryCapture(header(label), records[lane], words) for lane, label in enumerate(labels)]


def comparison(made: Sequence[MemoryCapture] | None = None) -> Comparison:
    """The comparison of some captures, by default three lanes over four prompts."""
    return Comparison.of(captures() if made is None else made)


def opened_session(made: Comparison) -> Session:
    """A session that stands in its first prompt."""
    session = Session(made)
    session.enter(session.prompt_id, session.read(session.prompt_id))
    return session
