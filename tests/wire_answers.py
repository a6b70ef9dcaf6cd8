"""Recorded answers, a second and slow decoder for them, and a server made of answers."""

from __future__ import annotations

import gzip
import json
import math
import struct
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from probe.stream import NO_TOKEN, StreamKind, TokenStream
from probe.wire.address import Address, parse_address
from probe.wire.client import RuntimeClient
from probe.wire.limits import Limits

RECORDINGS = Path(__file__).resolve().parent / "data" / "recordings"
REF: dict[str, Any] = json.loads((RECORDINGS / "ref.json").read_text())
CONFIGS = ["f32", "bf16", "w8a8-int8", "w4a16-g64", "bf16-kvfp8", "f32-eager"]
PROMPTS = list(REF)
FINGERPRINT = "vllm-0.32.0-69a31f44"
MODELS = {"object": "list", "data": [{"id": "smol", "owned_by": "vllm", "root": "ckpt", "max_model_len": 4096}]}
QUICK = Limits(busy_tries=4, busy_first_s=0.001, busy_longest_s=0.01)

Handler = Callable[[httpx.Request], httpx.Response]


@cache
def recorded(config: str, prompt: str, kind: str) -> bytes:
    """The bytes vLLM sent."""
    return gzip.decompress((RECORDINGS / config / f"{prompt}.{kind}.json.gz").read_bytes())


def prompt_ids(prompt: str) -> list[int]:
    ids: list[int] = REF[prompt]["prompt_token_ids"]
    return ids


def text_ids(prompt: str) -> list[int]:
    continuation: list[int] = REF[prompt]["continuation_token_ids"]
    return prompt_ids(prompt) + continuation


class Pairs(list[tuple[str, Any]]):
    """A JSON object with its repeated keys."""


def single(value: float | None) -> float:
    """The float32 nearest to a number, by way of its bytes."""
    return math.nan if value is None else float(struct.unpack("<f", struct.pack("<f", value))[0])


def naive_stream(
    kind: StreamKind, start: int, ids: Sequence[int], rows: Sequence[Sequence[tuple[int, float | None, int]]], k: int
) -> TokenStream:
    """A stream built one entry at a time with sorted() on tuples."""
    logprob, rank, top_ids, top_logprobs = [], [], [], []
    for token, row in zip(ids, rows, strict=True):
        entries = {key: (single(value), place) for key, value, place in row}

        def likely(key: int, entries: dict[int, tuple[float, int]] = entries, token: int = token) -> tuple[Any, ...]:
            value = entries[key][0]
            return (math.isnan(value), -value if not math.isnan(value) else 0, key == token, key)

        kept = sorted(entries, key=likely)[:k] if len(entries) > k else list(entries)
        kept.sort(key=lambda key: (*likely(key)[:2], key))
        logprob.append(entries[token][0] if token in entries else math.nan)
        rank.append(entries[token][1] if token in entries and token not in kept else 0)
        top_ids.append(kept + [NO_TOKEN] * (k - len(kept)))
        top_logprobs.append([entries[key][0] for key in kept] + [math.nan] * (k - len(kept)))
    n = len(ids)
    return TokenStream(
        kind,
        start,
        np.asarray(ids, np.int32).reshape(n),
        np.asarray(logprob, np.float32).reshape(n),
        np.asarray(rank, np.int32).reshape(n),
        np.asarray(top_ids, np.int32).reshape(n, k),
        np.asarray(top_logprobs, np.float32).reshape(n, k),
    )


def lenient(body: bytes, **options: Any) -> Any:
    """json.loads that, like msgspec, does not mind broken text in fields that nobody reads."""
    return json.loads(body.decode("utf-8", "replace"), strict=False, **options)


def naive_score(body: bytes, ids: Sequence[int], k: int) -> TokenStream:
    """decode_score without its speed."""
    choice = dict(dict(lenient(body, object_pairs_hook=Pairs))["choices"][0])
    assert choice["prompt_token_ids"] == list(ids)
    rows: list[list[tuple[int, float | None, int]]] = [[]]
    for row in choice["prompt_logprobs"][1:]:
        pairs = [(int(key), dict(entry)) for key, entry in row or ()]
        rows.append([(key, entry["logprob"], max(entry.get("rank") or 0, 0)) for key, entry in pairs])
    return naive_stream("forced", 0, ids, rows, k)


def naive_generate(body: bytes, prompt: Sequence[int], k: int) -> TokenStream:
    """decode_generate without its speed."""
    choice = lenient(body)["choices"][0]
    assert choice["prompt_token_ids"] == list(prompt)
    rows = [
        [(int(key.removeprefix("token_id:")), value, 0) for key, value in (row or {}).items()]
        for row in choice["logprobs"]["top_logprobs"]
    ]
    return naive_stream("generated", len(prompt), choice["token_ids"], rows, k)


def score_body(
    ids: Sequence[int], rows: Sequence[Any], fingerprint: str | None = FINGERPRINT, **more: Any
) -> dict[str, Any]:
    """A scoring answer as vLLM shapes it. A row is a list of (id, logprob) or (id, logprob, rank), the actual first."""
    listed = [
        None
        if row is None
        else {
            str(entry[0]): {
                "logprob": entry[1],
                "rank": entry[2] if len(entry) > 2 else place + 1,
                "decoded_token": f"t{entry[0]}",
            }
            for place, entry in enumerate(row)
        }
        for row in rows
    ]
    choice = {"index": 0, "text": "x", "logprobs": None, "prompt_logprobs": listed, "prompt_token_ids": list(ids)}
    return {"choices": [choice | more], "system_fingerprint": fingerprint}


def generate_body(prompt: Sequence[int], ids: Sequence[int], rows: Sequence[Any], **more: Any) -> dict[str, Any]:
    """A generation as vLLM shapes it. A row is a list of (id, logprob), the sampled one first."""
    logprobs = {
        "text_offset": [0] * len(ids),
        "tokens": [f"token_id:{token}" for token in ids],
        "token_logprobs": [row[0][1] for row in rows],
        "top_logprobs": [{f"token_id:{key}": value for key, value in row} for row in rows],
    }
    choice = {
        "text": "made",
        "logprobs": logprobs,
        "token_ids": list(ids),
        "prompt_token_ids": list(prompt),
        "finish_reason": "length",
    }
    return {"choices": [choice | more], "system_fingerprint": FINGERPRINT}


def likely_answer(question: dict[str, Any]) -> dict[str, Any]:
    """What an honest server of 100 tokens would answer to a completion."""
    ids, k = question["prompt"], question.get("prompt_logprobs")
    row = [(10 + place, -0.5 * (place + 1)) for place in range(20)]
    if k is not None:
        return score_body(ids, [None, *([(token, -20.0, 77), *row[:k]] for token in ids[1:])])
    k = question.get("logprobs")
    n = question["max_tokens"]
    if k is None:
        return {"choices": [{"text": "x"}], "system_fingerprint": FINGERPRINT}
    return generate_body(ids, [10] * n, [row[: max(k, 1)]] * n)


class ScriptedServer:
    """Answers vLLM's routes; completions through `answer`, which may be replaced, everything is recorded."""

    def __init__(self, completions: Handler | None = None, **routes: Any) -> None:
        self.requests: list[httpx.Request] = []
        self.routes: dict[str, Any] = {"/v1/models": MODELS, "/version": {"version": "0.32.0"}} | {
            f"/{name}": answer for name, answer in routes.items()
        }
        self.completions = completions

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        path = request.url.path
        if path == "/v1/completions":
            question = json.loads(request.content)
            logprobs_wanted = "logprobs" in question or "prompt_logprobs" in question
            if self.completions is not None and logprobs_wanted:
                return self.completions(request)
            return httpx.Response(200, json=likely_answer(question))
        answer = self.routes.get(path)
        if answer is None:
            return httpx.Response(404, json={"detail": "Not Found"})
        if callable(answer):
            made: httpx.Response = answer(request)
            return made
        return (
            httpx.Response(200, json=answer) if not isinstance(answer, bytes) else httpx.Response(200, content=answer)
        )

    def questions(self) -> list[dict[str, Any]]:
        """Bodies of the completions that asked for log-probabilities."""
        asked = [json.loads(request.content) for request in self.requests if request.url.path == "/v1/completions"]
        return [question for question in asked if "logprobs" in question or "prompt_logprobs" in question]


def client_of(
    server: Handler, *, limits: Limits = QUICK, address: Address | None = None, notices: list[str] | None = None
) -> RuntimeClient:
    """A client whose server is a function."""
    return RuntimeClient(
        address or parse_address("http://server:8000", environ={}),
        http=httpx.AsyncClient(transport=httpx.MockTransport(server)),
        limits=limits,
        notice=(lambda _: None) if notices is None else notices.append,
    )


def always(status: int = 200, body: Any = None, content: bytes | None = None, **headers: str) -> Handler:
    """The same answer to everything."""

    def answer(_: httpx.Request) -> httpx.Response:
        if content is not None:
            return httpx.Response(status, content=content, headers=headers)
        return httpx.Response(status, json=body, headers=headers)

    return answer
