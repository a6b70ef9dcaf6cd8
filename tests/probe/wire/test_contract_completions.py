"""The same assertions over recorded vLLM answers and over the embedded engine: a client cannot tell them apart."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from probe.stream import NO_TOKEN, TokenStream
from probe.wire.answers import decode_generate, decode_score
from probe.wire.embedded import EmbeddedTransport
from probe.wire.facts import choose_model, read_cache_info, read_fingerprint, read_version

RECORDINGS = Path(__file__).parents[2] / "data" / "recordings"
REF = json.loads((RECORDINGS / "ref.json").read_text())
MANIFEST = json.loads((RECORDINGS / "manifest.json").read_text())
K = 20
RUNTIMES = ("vllm:f32", "vllm:bf16", "vllm:w4a16-g64", "embedded:", "embedded:?kv=q4_0", "embedded:?weights=Q2_K")
PROMPTS = ("chat-howto", "emoji")
KINDS = ("score", "generate")


@dataclass
class Answers:
    """What one runtime said about one prompt.

    Attributes:
        name: Which prompt.
        ids: The scored text.
        prompt: The part of it that generation started from.
        score: Body of the answer to scoring it.
        generate: Body of the answer to generating from the prompt.
        budget: Most tokens it could generate.
    """

    name: str
    ids: list[int]
    prompt: list[int]
    score: bytes
    generate: bytes
    budget: int


_asked: dict[tuple[str, str], Answers] = {}


@pytest.fixture(params=[(runtime, prompt) for runtime in RUNTIMES for prompt in PROMPTS], ids="/".join)
def answers(request: pytest.FixtureRequest) -> Answers:
    """Answers of every runtime, asked once."""
    runtime, prompt = request.param
    if request.param not in _asked:
        ids, budget = REF[prompt]["prompt_token_ids"], 128
        text = [*ids, *REF[prompt]["continuation_token_ids"]]
        if runtime.startswith("vllm:"):
            folder = RECORDINGS / runtime.removeprefix("vllm:")
            scored, made = (gzip.decompress((folder / f"{prompt}.{kind}.json.gz").read_bytes()) for kind in KINDS)
        else:
            budget = 40  # a third of vLLM's, to keep this test short
            transport = request.getfixturevalue("make_transport")(runtime)
            score = {"prompt": text, "max_tokens": 1, "temperature": 0, "prompt_logprobs": K, "return_token_ids": True}
            generate = {
                "prompt": ids,
                "max_tokens": budget,
                "temperature": 0,
                "logprobs": K,
                "return_token_ids": True,
                "return_tokens_as_token_ids": True,
                "ignore_eos": REF[prompt]["ignore_eos"],
                "seed": 0,
            }
            scored, made = asyncio.run(ask(transport, score, generate))
        _asked[request.param] = Answers(prompt, text, ids, scored, made, budget)
    return _asked[request.param]


async def ask(transport: EmbeddedTransport, *questions: dict[str, Any]) -> list[bytes]:
    http = httpx.AsyncClient(transport=transport, base_url="http://embedded")
    got = [await http.post("/v1/completions", json=question) for question in questions]
    assert [answer.status_code for answer in got] == [200] * len(got)
    return [answer.content for answer in got]


def names(value: Any) -> Any:
    """The names in a body, without the values: what must be the same for every runtime."""
    return {name: names(inner) for name, inner in value.items()} if isinstance(value, dict) else None


def test_bodies_have_exactly_the_fields_of_vllm(answers: Answers) -> None:
    folder = RECORDINGS / "f32"
    for kind, body in zip(KINDS, (answers.score, answers.generate), strict=True):
        recorded = json.loads(gzip.decompress((folder / f"chat-howto.{kind}.json.gz").read_bytes()))
        answer = json.loads(body)
        assert list(answer) == list(recorded)
        assert list(answer["choices"][0]) == list(recorded["choices"][0])
        assert names(answer["usage"]) == names(recorded["usage"])
        assert answer["object"] == "text_completion"
        assert answer["id"].startswith("cmpl-")


def test_a_score_has_a_row_per_token_and_null_for_the_first(answers: Answers) -> None:
    choice = json.loads(answers.score)["choices"][0]
    assert choice["prompt_token_ids"] == answers.ids
    rows = choice["prompt_logprobs"]
    assert len(rows) == len(answers.ids)
    assert rows[0] is None
    assert all(isinstance(row, dict) for row in rows[1:])
    assert choice["logprobs"] is None
    assert len(choice["token_ids"]) == 1


def test_rows_put_the_actual_token_first_then_fall(answers: Answers) -> None:
    rows = json.loads(answers.score)["choices"][0]["prompt_logprobs"]
    for token, row in zip(answers.ids[1:], rows[1:], strict=True):
        listed = list(row.items())
        assert listed[0][0] == str(token)
        others = [entry["logprob"] for _, entry in listed[1:]]
        assert others == sorted(others, reverse=True)
        assert len(row) in (K, K + 1)
        ranks = [entry["rank"] for _, entry in listed[1:]]
        if len(row) == K + 1:
            assert ranks == list(range(1, K + 1))
            assert listed[0][1]["rank"] > K
            assert listed[0][1]["logprob"] <= others[-1]
        else:
            assert sorted([listed[0][1]["rank"], *ranks]) == list(range(1, K + 1))


def test_numbers_are_float32_and_probabilities(answers: Answers) -> None:
    rows = json.loads(answers.score)["choices"][0]["prompt_logprobs"]
    for row in rows[1:]:
        values = [entry["logprob"] for entry in row.values()]
        assert all(float(np.float32(value)) == value for value in values)
        assert max(values) <= 0
        assert np.exp(values).sum() <= 1 + 1e-5
        assert all(isinstance(entry["decoded_token"], str) for entry in row.values())


def test_words_of_whole_tokens_are_the_same_everywhere(answers: Answers) -> None:
    """Every runtime has the same words for the text itself, whatever its numbers are."""
    recorded = json.loads(gzip.decompress((RECORDINGS / "f32" / f"{answers.name}.score.json.gz").read_bytes()))
    rows = json.loads(answers.score)["choices"][0]["prompt_logprobs"][1:]
    others = recorded["choices"][0]["prompt_logprobs"][1:]
    for token, row, other in zip(answers.ids[1:], rows, others, strict=True):
        assert row[str(token)]["decoded_token"] == other[str(token)]["decoded_token"]


def test_a_generation_names_ids_and_lists_the_chosen_first(answers: Answers) -> None:
    choice = json.loads(answers.generate)["choices"][0]
    steps = choice["logprobs"]
    assert choice["prompt_token_ids"] == answers.prompt
    assert choice["prompt_logprobs"] is None
    assert steps["tokens"] == [f"token_id:{token}" for token in choice["token_ids"]]
    for name, chosen, table in zip(steps["tokens"], steps["token_logprobs"], steps["top_logprobs"], strict=True):
        assert next(iter(table)) == name
        assert table[name] == chosen
        assert len(table) in (K, K + 1)
    assert list(steps) == ["text_offset", "token_logprobs", "tokens", "top_logprobs"]
    lengths = [len(name) for name in steps["tokens"]]
    assert steps["text_offset"] == [sum(lengths[:place]) for place in range(len(lengths))]


def test_greedy_decoding_takes_the_lowest_id_of_the_best(answers: Answers) -> None:
    choice = json.loads(answers.generate)["choices"][0]
    for token, table in zip(choice["token_ids"], choice["logprobs"]["top_logprobs"], strict=True):
        best = max(table.values())
        assert token == min(int(name.removeprefix("token_id:")) for name, value in table.items() if value == best)


def test_a_generation_ends_at_the_budget_or_at_the_end_of_the_turn(answers: Answers) -> None:
    answer = json.loads(answers.generate)
    choice = answer["choices"][0]
    count = len(choice["token_ids"])
    assert choice["stop_reason"] is None
    if choice["finish_reason"] == "stop":
        assert choice["token_ids"][-1] == 2  # <|im_end|> is listed, not shown
        assert "<|im_end|>" not in choice["text"]
    else:
        assert choice["finish_reason"] == "length"
        assert count == answers.budget
    assert "\ufffd" not in choice["text"]
    assert answer["usage"]["prompt_tokens"] == len(answers.prompt)
    assert answer["usage"]["completion_tokens"] == count
    assert answer["usage"]["total_tokens"] == len(answers.prompt) + count


def test_the_client_reads_both_without_a_complaint(answers: Answers) -> None:
    scored = decode_score(answers.score, answers.ids, K, words=True)
    made = decode_generate(answers.generate, answers.prompt, answers.budget, K)
    assert scored.evidence == {}
    assert made.evidence == {}
    assert scored.fingerprint == made.fingerprint == read_fingerprint(answers.score) != ""
    for stream, length, start in ((scored.stream, len(answers.ids), 0), (made.stream, None, len(answers.prompt))):
        assert stream.k == K
        assert stream.start == start
        assert length in (None, len(stream))
        assert not (whole(stream).top_ids == NO_TOKEN).any()


def whole(stream: TokenStream) -> TokenStream:
    """The stream without position 0, which nothing predicts."""
    return stream.rows(1, stream.stop)


def test_fingerprints_tell_configurations_apart(make_transport: Callable[[str], EmbeddedTransport]) -> None:
    seen = {runtime: set[str]() for runtime in RUNTIMES}
    question = {"prompt": [1, 2], "temperature": 0, "max_tokens": 1}
    for runtime in RUNTIMES:
        if runtime.startswith("vllm:"):
            seen[runtime] |= set(MANIFEST["configs"][runtime.removeprefix("vllm:")]["system_fingerprint"])
        else:
            for body in asyncio.run(ask(make_transport(runtime), question, question)):
                seen[runtime].add(read_fingerprint(body))
    assert all(len(fingerprints) == 1 for fingerprints in seen.values())
    assert len(set.union(*seen.values())) == len(RUNTIMES)


@pytest.mark.parametrize("runtime", ["vllm", "embedded:", "embedded:?kv=q4_0"])
def test_small_routes_are_read_alike(make_transport: Callable[[str], EmbeddedTransport], runtime: str) -> None:
    if runtime == "vllm":
        recorded = MANIFEST["configs"]["f32"]
        version, models = json.dumps(recorded["version"]).encode(), json.dumps(recorded["models"]).encode()
        metrics = "\n".join(recorded["cache_config_info"]).encode()
    else:
        version, models, metrics = asyncio.run(small(make_transport(runtime)))
    assert read_version(version)
    assert choose_model(models, "").max_model_len == 4096
    assert read_cache_info(metrics)["cache_dtype"] in ("auto", "f16", "q4_0")
    expected = set(MANIFEST["configs"]["f32"]["models"]["data"][0])
    assert set(json.loads(models)["data"][0]) == expected


async def small(transport: EmbeddedTransport) -> list[bytes]:
    http = httpx.AsyncClient(transport=transport, base_url="http://embedded")
    return [(await http.get(path)).content for path in ("/version", "/v1/models", "/metrics")]
