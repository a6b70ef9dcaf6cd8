"""Small captures for the tests of the capture file."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from probe.records import (
    Header,
    Piece,
    PromptRecord,
    PromptSetFacts,
    Protocol,
    Range,
    ServerFacts,
    Timing,
    TokenizerFacts,
)
from probe.store.writer import CaptureWriter
from probe.stream import NO_TOKEN, StreamKind, TokenStream, sort_rows

VOCABULARY = 500


def a_header(label: str = "f32", count: int = 3, fingerprint: str = "vllm-0.32.0-69a31f44") -> Header:
    return Header(
        label=label,
        created="2026-11-29T12:00:00Z",
        facts=ServerFacts(
            url="http://127.0.0.1:8101", engine="vllm", model="smol", version="0.32.0", fingerprint=fingerprint
        ),
        protocol=Protocol(top_k=5, max_tokens=8),
        prompts=PromptSetFacts(name="sample", sha256="ab" * 32, count=count),
        tokenizer=TokenizerFacts(source="smol", fingerprint="cd" * 32),
        dims={"weights": "f32"},
    )


@lru_cache(maxsize=512)  # nobody changes them: the tests copy before they bend
def a_stream(seed: int, n: int, kind: StreamKind = "forced", start: int = 0, k: int = 5) -> TokenStream:
    """Rows like a server's: log-softmax of float32 logits, the actual token sometimes outside the list."""
    random = np.random.default_rng(seed)
    logits = random.normal(16, 3, (n, VOCABULARY)).astype(np.float32)
    scores = logits - logits.max(axis=1, keepdims=True)
    scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True, dtype=np.float32))
    order = np.argsort(-scores, axis=1, kind="stable")
    top_ids = order[:, :k].astype(np.int32)
    top = np.take_along_axis(scores, order[:, :k], axis=1).astype(np.float32)
    choice = random.integers(0, k + 2, n)
    ids = order[np.arange(n), choice].astype(np.int32)
    logprob = scores[np.arange(n), ids].astype(np.float32)
    rank = np.where(choice >= k, choice + 1, 0).astype(np.int32)
    if kind == "forced" and n:
        top_ids[0], top[0], logprob[0], rank[0] = NO_TOKEN, np.nan, np.nan, 0
    top_ids, top = sort_rows(top_ids, top)
    return TokenStream(kind, start, ids, logprob, rank, top_ids, top)


def a_record(index: int, n: int = 12, failure: str = "") -> PromptRecord:
    prompt_length = n // 2
    return PromptRecord(
        prompt_id=f"prompt-{index}",
        category="chat",
        index=index,
        prompt_length=prompt_length,
        ranges=(Range(0, 3, "system"), Range(3, prompt_length, "user")),
        output=((prompt_length, n),),
        forced=None if failure else a_stream(index, n),
        generated=None if failure else a_stream(index + 100, 7, "generated", prompt_length),
        finish_reason="" if failure else "length",
        timing=Timing(started="2026-11-29T12:00:01Z", score_s=0.25 * index),
        failure=failure,
        evidence={"prefill": "agrees"},
    )


PIECES = {
    each: Piece(f" w{each}".encode() if each % 7 else b"\xf0\x9f", special=each % 50 == 0) for each in range(VOCABULARY)
}


def write_capture(path: Path, count: int = 3, *, finish: bool = True, header: Header | None = None) -> Path:
    with CaptureWriter.create(path, header or a_header(count=count)) as writer:
        for index in range(count):
            writer.append(a_record(index), PIECES)
        if finish:
            writer.finish()
    return path
