"""Score and generate on an engine, answered in the shape of vLLM's /v1/completions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probe.wire.embedded.engine import Engine, EngineFacts
from probe.wire.embedded.refusal import RefusalError
from probe.wire.embedded.requests import CompletionRequest, alternatives, check_completion, check_model, prompt_ids
from probe.wire.embedded.rows import log_softmax, rank_of, top_row
from probe.wire.embedded.words import Words

LOWEST = -9999.0
"""What vLLM writes for minus infinity."""
TOO_MANY_ENTRIES = 2_000_000
"""Alternatives in one answer: 70 bytes of JSON and 300 of Python objects each, so 0.7 GB."""


@dataclass
class _Generation:
    """Greedy tokens and, where asked for, their rows."""

    ids: list[int] = field(default_factory=list)
    rows: list[tuple[NDArray[np.int64], list[float]]] = field(default_factory=list)
    chosen: list[float] = field(default_factory=list)
    finish: str = "length"


def complete(engine: Engine, words: Words, request: CompletionRequest) -> dict[str, Any]:
    """Answer a completion request, without the fields that name the answer (id, object, created).

    Raises:
        RefusalError: The request cannot be answered.
        InterruptedWorkError: It was called off.
    """
    facts = engine.facts
    check_model(request.model, facts)
    check_completion(request, facts)
    prompts = prompt_ids(request.prompt, facts, lambda text: engine.tokenise(text, special=request.add_special_tokens))
    k = alternatives(request.prompt_logprobs, facts)
    if k is not None and sum(len(ids) for ids in prompts) * k > TOO_MANY_ENTRIES:
        raise RefusalError(f"prompt_logprobs {request.prompt_logprobs} over this prompt would take too much memory")
    choices, generated = [], 0
    for index, ids in enumerate(prompts):
        choice, tokens = _choice(engine, words, request, ids)
        choices.append({"index": index, **choice})
        generated += tokens
    count = sum(len(ids) for ids in prompts)
    return {
        "model": facts.name,
        "choices": choices,
        "service_tier": None,
        "system_fingerprint": facts.fingerprint,
        "usage": {
            "prompt_tokens": count,
            "total_tokens": count + generated,
            "completion_tokens": generated,
            "prompt_tokens_details": None,
            "completion_tokens_details": None,
        },
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "metrics": None,
    }


def _choice(engine: Engine, words: Words, request: CompletionRequest, ids: list[int]) -> tuple[dict[str, Any], int]:
    facts = engine.facts
    room = facts.context - len(ids)
    budget = min(room, request.max_tokens if request.max_tokens is not None else room)
    k = _prompt_alternatives(request, facts)
    rows: list[dict[str, Any] | None] | None = None if k is None else [None]
    position, pending = 0, b""
    last: NDArray[np.float32] | None = None
    for block in engine.prefill(ids, every=k is not None):
        logprobs = log_softmax(block)
        if rows is not None and k is not None:
            for row in logprobs:
                pending = words.after(ids[position], pending)
                position += 1
                if position < len(ids):
                    rows.append(_prompt_row(row, ids[position], k, words, pending))
        last = logprobs[-1]
    if last is None:
        raise RuntimeError("the engine gave no logits")
    generation = _generate(engine, request, last, budget)
    return {
        "text": words.text(generation.ids),
        "logprobs": _decode_logprobs(generation, ids, request, words),
        "finish_reason": generation.finish,
        "stop_reason": None,
        "token_ids": generation.ids if request.return_token_ids or request.stream else None,
        "prompt_logprobs": rows,
        "prompt_token_ids": ids if request.return_token_ids else None,
        "routed_experts": None,
    }, len(generation.ids)


def _prompt_alternatives(request: CompletionRequest, facts: EngineFacts) -> int | None:
    """K of the prompt's rows; a stream silently has none, as on vLLM."""
    return None if request.stream else alternatives(request.prompt_logprobs, facts)


def _prompt_row(row: NDArray[np.float32], actual: int, k: int, words: Words, pending: bytes) -> dict[str, Any]:
    """One element of prompt_logprobs: the actual token first, then the top k; K or K + 1 keys."""
    _refuse_nan(row)
    top = top_row(row, k).tolist()
    values = _plain(row[top])
    listed: dict[str, Any] = {}
    if actual not in top:
        listed[str(actual)] = {
            "logprob": _plain(row[[actual]])[0],
            "rank": rank_of(row, actual),
            "decoded_token": words.word(actual, pending),
        }
    else:
        listed[str(actual)] = None  # keeps the first place; filled in below with its rank among the top k
    for rank, (token, value) in enumerate(zip(top, values, strict=True), start=1):
        listed[str(token)] = {"logprob": value, "rank": rank, "decoded_token": words.word(token, pending)}
    return listed


def _generate(engine: Engine, request: CompletionRequest, first: NDArray[np.float32], budget: int) -> _Generation:
    """Greedy decoding from the row after the prompt: the lowest id of an exact tie, as vLLM decodes."""
    k = alternatives(request.logprobs, engine.facts)
    stops = frozenset(request.stop_token_ids or ())
    generation = _Generation()
    row = first
    while True:
        token = int(np.argmax(row))
        generation.ids.append(token)
        if k is not None:
            _refuse_nan(row)
            top = top_row(row, k)
            generation.rows.append((top, _plain(row[top])))
            generation.chosen.append(_plain(row[[token]])[0])
        if token in stops or (engine.ends(token) and not request.ignore_eos):
            generation.finish = "stop"
            return generation
        if len(generation.ids) >= budget:
            return generation
        row = log_softmax(engine.step(token)[None])[0]


def _decode_logprobs(
    generation: _Generation, ids: Sequence[int], request: CompletionRequest, words: Words
) -> dict[str, Any] | None:
    """`logprobs` of a choice: keyed by text, in which equal texts overwrite each other, or by `token_id:N`."""
    if not generation.rows:
        return None
    pending = b""
    for token in ids:
        pending = words.after(token, pending)
    tokens: list[str] = []
    tables: list[dict[str, float]] = []
    offsets: list[int] = []
    offset = 0
    for token, chosen, (top, values) in zip(generation.ids, generation.chosen, generation.rows, strict=True):
        names = [
            f"token_id:{each}" if request.return_tokens_as_token_ids else words.word(each, pending)
            for each in (token, *top.tolist())
        ]
        tokens.append(names[0])
        tables.append(dict(zip(names, (chosen, *values), strict=True)))
        offsets.append(offset)
        offset += len(names[0])
        pending = words.after(token, pending)
    return {
        "text_offset": offsets,
        "token_logprobs": generation.chosen,
        "tokens": tokens,
        "top_logprobs": tables,
    }


def _plain(values: NDArray[np.float32]) -> list[float]:
    """Float32 as the doubles that print to round-trip exactly; minus infinity as vLLM writes it."""
    return [max(value, LOWEST) for value in values.tolist()]


def _refuse_nan(row: NDArray[np.float32]) -> None:
    # A softmax with one NaN is NaN throughout, so one element tells.
    if math.isnan(row[0]):
        raise RefusalError("Out of range float values are not JSON compliant")
