"""Captures of any length for the benchmarks: random words, lanes that flip about as often as real ones do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from probe.records import Header, Piece, PromptRecord, PromptSetFacts, Protocol, ServerFacts, TokenizerFacts
from probe.store.writer import CaptureWriter
from probe.stream import TokenStream, sort_rows

NOISE = {"f32": 0.0, "bf16": 0.01, "kv-fp8": 0.15, "int8": 0.25, "int4": 1.0}
"""Runtimes, and the standard deviation of what each adds to the reference's log-probabilities."""

WORDS = 32_000
TOP_K = 20


def vocabulary(seed: int = 7) -> list[Piece]:
    """Words as long as real tokens; some line ends, wide characters and byte fragments."""
    rng = np.random.default_rng(seed)
    letters = ["".join(map(chr, rng.integers(97, 123, size))) for size in rng.integers(1, 9, WORDS)]
    pieces = [Piece((" " * bool(rng.random() < 0.6) + word).encode()) for word in letters]
    pieces[10], pieces[11], pieces[12] = Piece(b"\n"), Piece("日本語".encode()), Piece(b"\xe6")
    return pieces


def write_captures(folder: Path, positions: int, *, seed: int = 7) -> list[Path]:
    """Write one capture per runtime over one text.

    Args:
        folder: Where.
        positions: Length of the text in tokens, a third of them prompt.
        seed: Other seeds, other texts.

    Returns:
        The files, the reference's first.
    """
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, WORDS, positions, dtype=np.int32)
    ids[rng.random(positions) < 0.03] = 10
    # Distinct by construction: an offset per rank, never 0, so that the actual token is always rank 1 of the text.
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 1_500, TOP_K - 1))])
    top = ((ids[:, None] + offsets) % WORDS).astype(np.int32)
    fall = np.concatenate(
        [np.zeros((positions, 1)), np.cumsum(rng.exponential(0.8, (positions, TOP_K - 1)), axis=1)], 1
    )
    scores = -fall - np.log(np.exp(-fall).sum(axis=1, keepdims=True)) - 0.02
    pieces = vocabulary(seed)
    paths = []
    for label, noise in NOISE.items():
        moved = (scores + rng.normal(0, 1, scores.shape) * noise).astype(np.float32)
        moved -= np.float32(0.02) + np.log(np.exp(moved).sum(axis=1, keepdims=True))
        path = folder / f"{label}.msgpack"
        writer = CaptureWriter.create(path, _header(label))
        record = PromptRecord(
            prompt_id="made-up",
            category="benchmark",
            index=0,
            prompt_length=positions // 3,
            output=((positions // 3, positions),),
            forced=_stream(ids, top, moved),
        )
        writer.append(record, dict(enumerate(pieces)))
        writer.finish()
        writer.close()
        paths.append(path)
    return paths


def _stream(ids: NDArray[np.int32], top: NDArray[np.int32], logprobs: NDArray[np.float32]) -> TokenStream:
    actual = logprobs[:, 0].copy()
    top_ids, top_logprobs = sort_rows(top, logprobs)
    top_ids[0], top_logprobs[0], actual[0] = -1, np.nan, np.nan
    return TokenStream("forced", 0, ids, actual, np.zeros(len(ids), dtype=np.int32), top_ids, top_logprobs)


def _header(label: str) -> Header:
    return Header(
        label=label,
        created="2026-01-02T03:04:05Z",
        facts=ServerFacts(url="http://127.0.0.1:8000", engine="vllm", model="made-up"),
        protocol=Protocol(top_k=TOP_K, max_tokens=64),
        prompts=PromptSetFacts(name="benchmark", sha256="ab" * 32, count=1),
        tokenizer=TokenizerFacts(source="benchmark", fingerprint="cd" * 16),
        dims={"runtime": label},
    )
