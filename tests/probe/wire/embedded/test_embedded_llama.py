from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import log_softmax, rel_entr

from probe.errors import InputError
from probe.wire.address import parse_address
from probe.wire.embedded import EmbeddedTransport, open_embedded
from probe.wire.embedded.engine import InterruptedWorkError
from probe.wire.embedded.rows import log_softmax as rows_log_softmax
from probe.wire.embedded.template import render_chat

if TYPE_CHECKING:
    from probe.wire.embedded.llama import LlamaEngine

REF = json.loads((Path(__file__).parents[3] / "data" / "recordings" / "ref.json").read_text())
Make = Callable[..., "LlamaEngine"]
Transports = Callable[[str], EmbeddedTransport]


def text_of(prompt: str) -> list[int]:
    return [*REF[prompt]["prompt_token_ids"], *REF[prompt]["continuation_token_ids"]]


def logits(engine: LlamaEngine, ids: list[int]) -> NDArray[np.float32]:
    return np.concatenate(list(engine.prefill(ids, every=True)))


async def post(transport: EmbeddedTransport, path: str, question: dict[str, Any]) -> Any:
    http = httpx.AsyncClient(transport=transport, base_url="http://embedded")
    answer = await http.post(path, json=question)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("prompt", sorted(REF))
async def test_prompts_become_the_ids_that_vllm_made(make_transport: Transports, prompt: str) -> None:
    source = REF[prompt]["source"]
    question = {"prompt": source} if isinstance(source, str) else {"messages": source["messages"]}
    answer = await post(make_transport("embedded:"), "/tokenize", question)
    assert answer["tokens"] == REF[prompt]["prompt_token_ids"]


def test_the_template_adds_its_own_system_message_only_where_none_is(engine: LlamaEngine) -> None:
    facts = engine.facts
    user = {"role": "user", "content": "hi"}
    alone = render_chat(facts.template, [user], specials=facts.specials)
    assert alone.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    led = render_chat(facts.template, [{"role": "system", "content": "S"}, user], specials=facts.specials)
    assert led == "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def test_pieces_are_bytes_that_join_to_the_text(engine: LlamaEngine) -> None:
    pieces = engine.pieces()
    text = "Kevät ❄️ 🦙🇫🇮 \t\r\n\x00\x1b[0m 日本 <|im_start|>"
    ids = engine.tokenise(text, special=False)
    assert b"".join(pieces[token].data for token in ids) == text.encode()
    assert len(pieces) == engine.facts.vocabulary == 49152
    assert all(piece.exact for piece in pieces)
    assert [token for token, piece in enumerate(pieces) if piece.special] == list(range(17))


async def test_scored_rows_are_the_float64_log_softmax_of_the_logits(
    engine: LlamaEngine, make_transport: Transports
) -> None:
    ids = text_of("emoji")
    expected = log_softmax(logits(engine, ids).astype(np.float64), axis=1)
    question = {"prompt": ids, "temperature": 0, "max_tokens": 1, "prompt_logprobs": 20}
    choice = (await post(make_transport("embedded:"), "/v1/completions", question))["choices"][0]
    for position, row in enumerate(choice["prompt_logprobs"][1:], start=1):
        truth = expected[position - 1]
        order = np.lexsort((np.arange(len(truth)), -truth.astype(np.float32)))
        listed = [int(token) for token in row]
        assert listed[0] == ids[position]
        inside = [token for token in order[:20].tolist() if token != ids[position]]
        assert listed[1:] == inside
        for token, entry in row.items():
            value = truth[int(token)]
            assert np.float32(entry["logprob"]) == entry["logprob"]
            assert abs(entry["logprob"] - value) <= np.spacing(np.float32(abs(value)))
            assert entry["rank"] == 1 + int(np.count_nonzero(truth.astype(np.float32) > np.float32(value)))


async def test_generation_is_argmax_of_the_decode_path(engine: LlamaEngine, make_transport: Transports) -> None:
    prompt = REF["chat-howto"]["prompt_token_ids"]
    question = {"prompt": prompt, "temperature": 0, "max_tokens": 24, "return_token_ids": True}
    made = (await post(make_transport("embedded:"), "/v1/completions", question))["choices"][0]["token_ids"]
    row = list(engine.prefill(prompt, every=False))[-1][0]
    for token in made:
        best = np.flatnonzero(rows_log_softmax(row[None])[0] == rows_log_softmax(row[None]).max())
        assert token == best[0]
        row = engine.step(token)


def test_prefill_and_decode_are_two_paths_that_agree_closely(engine: LlamaEngine) -> None:
    """Below 64 tokens in a batch llama.cpp's kernels do the same sums for both, so the text must be longer."""
    ids = text_of("prose-en")[:100]
    together = log_softmax(logits(engine, ids)[60:].astype(np.float64), axis=1)
    list(engine.prefill(ids[:60], every=False))
    apart = log_softmax(np.stack([engine.step(token) for token in ids[60:]]).astype(np.float64), axis=1)
    kl = rel_entr(np.exp(together), np.exp(apart)).sum(axis=1).mean()
    assert 0 < kl < 0.02


def test_the_same_request_gives_the_same_bits_whatever_was_asked_before(engine: LlamaEngine) -> None:
    ids = text_of("cisco")[:100]
    first = logits(engine, ids)
    logits(engine, text_of("finnish")[:100])
    engine.step(17)
    assert np.array_equal(first, logits(engine, ids))
    assert np.array_equal(first[-1], list(engine.prefill(ids, every=False))[-1][0])


def test_a_text_longer_than_a_batch_sees_its_beginning(engine: LlamaEngine) -> None:
    secret = engine.tokenise("The password is heliotrope. ", special=False)
    filler = engine.tokenise("Nothing happened on that day. ", special=False) * 50
    ids = [*secret, *filler, *engine.tokenise("The password is heliot", special=False)]
    assert len(ids) > int(engine.facts.settings["batch"])
    row = list(engine.prefill(ids, every=False))[-1][0]
    assert engine.pieces()[int(row.argmax())].data == b"ro"


def test_configurations_differ_and_their_divergence_is_graded(make_engine: Make) -> None:
    texts = [text_of(prompt)[:70] for prompt in ("python", "cisco")]

    def rows(**options: str) -> NDArray[np.float64]:
        engine = make_engine(**options)
        return np.concatenate([log_softmax(logits(engine, ids).astype(np.float64), axis=1) for ids in texts])

    reference = rows()
    kl = {
        name: float(rel_entr(np.exp(reference), np.exp(rows(**options))).sum(axis=1).mean())
        for name, options in {
            "fa=off": {"fa": "off"},
            "kv=q8_0": {"kv": "q8_0"},
            "kv=q4_0": {"kv": "q4_0"},
            "Q8_0": {"weights": "Q8_0"},
            "Q4_0": {"weights": "Q4_0"},
            "Q2_K": {"weights": "Q2_K"},
        }.items()
    }
    for small in ("fa=off", "kv=q8_0", "Q8_0"):
        assert 0 < kl[small] < 0.02, kl
        assert kl[small] < kl["kv=q4_0"] < kl["Q4_0"] < kl["Q2_K"], kl
    assert kl["Q2_K"] > 0.1


def test_every_configuration_has_its_own_fingerprint_and_threads_do_not_count(make_engine: Make) -> None:
    base = make_engine().facts
    others = [make_engine(kv="q8_0").facts, make_engine(weights="Q2_K").facts, make_engine(fa="off").facts]
    assert len({facts.fingerprint for facts in (base, *others)}) == 4
    assert make_engine(threads="2").facts.fingerprint == base.fingerprint
    ids = text_of("finnish")[:100]
    assert np.array_equal(logits(make_engine(threads="2"), ids), logits(make_engine(), ids))
    assert others[1].settings["weights"] == "Q2_K"
    assert base.settings["weights"] == "Q4_1"


async def test_two_transports_compute_at_once_and_give_what_each_gives_alone(make_transport: Transports) -> None:
    question = {
        "prompt": text_of("python")[:80],
        "temperature": 0,
        "max_tokens": 8,
        "prompt_logprobs": 5,
        "logprobs": 5,
    }
    both = [make_transport("embedded:"), make_transport("embedded:?kv=q4_0")]
    alone = [(await post(transport, "/v1/completions", question))["choices"] for transport in both]
    together = await asyncio.gather(*(post(both[turn % 2], "/v1/completions", question) for turn in range(4)))
    assert [answer["choices"] for answer in together] == [*alone, *alone]
    assert alone[0] != alone[1]


async def test_the_event_loop_goes_on_while_the_engine_computes(make_transport: Transports) -> None:
    transport = make_transport("embedded:")
    await transport.ready()
    question = {"prompt": text_of("python"), "temperature": 0, "max_tokens": 1, "prompt_logprobs": 20}
    task = asyncio.create_task(post(transport, "/v1/completions", question))
    ticks = 0
    while not task.done():
        await asyncio.sleep(0.005)
        ticks += 1
    assert ticks > 10


def test_an_interrupt_ends_a_long_prefill_early(engine: LlamaEngine) -> None:
    ids = (text_of("cisco") * 20)[:3000]
    began = time.monotonic()
    timer = threading.Timer(0.2, engine.interrupt)
    timer.start()
    try:
        with pytest.raises(InterruptedWorkError):
            list(engine.prefill(ids, every=False))
        took = time.monotonic() - began
        with pytest.raises(InterruptedWorkError):
            engine.step(1)
    finally:
        timer.join()
        engine.resume()
    assert took < 3
    assert np.isfinite(list(engine.prefill([1, 2, 3], every=False))[-1]).all()


def test_a_context_longer_than_the_model_was_trained_for_is_refused(make_engine: Make) -> None:
    with pytest.raises(InputError, match="ctx=9000, but .* knows 8192 positions"):
        make_engine(ctx="9000")


async def test_a_broken_model_file_is_an_error_that_names_it(model: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(model.read_bytes()[:5_000_000])
    for options in ("", "?weights=Q8_0"):
        transport = open_embedded(parse_address(f"embedded:{broken}{options}"))
        with pytest.raises(InputError, match="broken.gguf"):
            await transport.ready()
        await transport.aclose()


async def test_a_model_by_path_is_served_under_its_name(model: Path) -> None:
    transport = open_embedded(parse_address(f"embedded:{model}?ctx=64"))
    await transport.ready()
    http = httpx.AsyncClient(transport=transport, base_url="http://embedded")
    card = (await http.get("/v1/models")).json()["data"][0]
    assert (card["id"], card["root"], card["max_model_len"]) == (model.stem, str(model), 64)
    longest = {"prompt": [5] * 63, "temperature": 0, "max_tokens": 5, "prompt_logprobs": 1, "return_token_ids": True}
    assert len((await post(transport, "/v1/completions", longest))["choices"][0]["token_ids"]) == 1
    await transport.aclose()


_RUN = """
import asyncio, sys, httpx
from probe.wire.address import parse_address
from probe.wire.embedded import open_embedded

async def main(way):
    transports = [open_embedded(parse_address(f"embedded:{options}")) for options in ("", "?kv=q4_0", "?weights=Q8_0")]
    https = [httpx.AsyncClient(transport=transport, base_url="http://embedded") for transport in transports]
    body = {"prompt": [5] * 2000, "temperature": 0, "prompt_logprobs": 1}
    if way == "loading":
        return
    for transport in transports:
        await transport.ready()
    tasks = [asyncio.ensure_future(http.post("/v1/completions", json=body)) for http in https]
    await asyncio.sleep(0.5)
    if way == "cancelled":
        return
    if way == "closed":
        for transport in transports:
            await transport.aclose()
        await asyncio.gather(*tasks, return_exceptions=True)
    if way == "raised":
        raise SystemExit(7)

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.parametrize(("way", "status"), [("loading", 0), ("closed", 0), ("cancelled", 0), ("raised", 7)])
def test_a_process_ends_cleanly_silently_and_soon_in_the_middle_of_work(model: Path, way: str, status: int) -> None:
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", _RUN, way], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (status, b"", b"")
    assert time.monotonic() - began < 30
