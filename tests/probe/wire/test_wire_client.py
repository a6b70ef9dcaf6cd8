"""What the client asks, and what it makes of the answers."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from wire_answers import (
    FINGERPRINT,
    ScriptedServer,
    always,
    client_of,
    generate_body,
    likely_answer,
    recorded,
    score_body,
    text_ids,
)

from probe.errors import InputError, ServerAnswerError, ServerError, ServerRefusedError
from probe.wire.address import parse_address
from probe.wire.answers import decode_score
from probe.wire.connect import connect
from probe.wire.facts import read_cache_info, read_server_info
from probe.wire.limits import Limits, score_bytes, score_cost

LABELS = (
    rb'_block_size_resolved="True",block_size="128",cache_dtype="fp8",enable_prefix_caching="True",engine="0",'
    rb'gpu_memory_utilization="0.92",kv_cache_dtype_skip_layers="[]",kv_cache_layout="None",num_gpu_blocks="182",'
    rb'odd="a\"b\\c"'
)
METRICS = b"# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{" + LABELS + b"} 1.0\nvllm:other{} 0.0\n"
INFO = {
    "vllm_config": {
        "model_config": {"dtype": "torch.bfloat16", "quantization": None, "hf_token": "hf_secret", "max_logprobs": 20},
        "scheduler_config": {"max_num_batched_tokens": 2048},
        "speculative_config": {"method": "ngram", "num_speculative_tokens": 4},
        "attention_config": None,
        "compilation_config": {"mode": 0},
    }
}


async def test_scoring_says_everything_that_matters() -> None:
    server = ScriptedServer()
    await client_of(server).score([5, 6, 7], 20)
    assert server.questions() == [
        {
            "model": "smol",
            "prompt": [5, 6, 7],
            "max_tokens": 1,
            "temperature": 0,
            "prompt_logprobs": 20,
            "return_token_ids": True,
        }
    ]


async def test_generation_is_greedy_whatever_the_model_prefers() -> None:
    server = ScriptedServer()
    await client_of(server).generate([5, 6], 4, 3)
    (question,) = server.questions()
    assert question["temperature"] == 0
    assert question["repetition_penalty"] == 1
    assert question["presence_penalty"] == question["frequency_penalty"] == 0
    assert question["prompt"] == [5, 6]
    assert question["max_tokens"] == 4
    assert question["logprobs"] == 3
    assert question["return_tokens_as_token_ids"] is True
    assert question["return_token_ids"] is True


async def test_score_hands_on_the_stream_the_time_and_the_words() -> None:
    body, ids = recorded("bf16", "emoji", "score"), text_ids("emoji")

    def server(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=body) if b"prompt_logprobs" in request.content else bare(request)

    client = client_of(server)
    scored = await client.score(ids, 20, words=True)
    assert scored.stream.equals(decode_score(body, ids, 20).stream)
    assert scored.seconds > 0
    assert scored.words[29] == "-"


def bare(request: httpx.Request) -> httpx.Response:
    """A server that says nothing of itself."""
    if request.url.path == "/v1/models":
        return httpx.Response(200, json={"data": [{"id": "smol"}]})
    if request.url.path == "/v1/completions":
        return httpx.Response(200, json={"choices": [{"text": "x"}]})
    return httpx.Response(404, json={"detail": "Not Found"})


async def test_facts_of_a_talkative_server() -> None:
    server = ScriptedServer(metrics=METRICS, server_info=INFO)
    facts = await client_of(server).facts()
    assert facts.engine == "vllm"
    assert facts.model == "smol"
    assert facts.root == "ckpt"
    assert facts.version == "0.32.0"
    assert facts.fingerprint == FINGERPRINT
    assert facts.max_model_len == 4096
    assert facts.settings == {
        "block_size": "128",
        "cache_dtype": "fp8",
        "enable_prefix_caching": "True",
        "odd": 'a"b\\c',
        "dtype": "bfloat16",
        "max_logprobs": "20",
        "max_num_batched_tokens": "2048",
        "speculative_method": "ngram",
        "num_speculative_tokens": "4",
        "compilation_mode": "0",
    }
    assert "hf_secret" not in repr(facts)


async def test_facts_of_a_silent_server() -> None:
    facts = await client_of(bare).facts()
    assert facts.engine == "unknown"
    assert facts.max_model_len == 0
    assert facts.settings == {}
    assert facts.version == facts.fingerprint == ""


async def test_facts_are_asked_once() -> None:
    server = ScriptedServer()
    client = client_of(server)
    assert await client.facts() == await client.facts()
    assert [request.url.path for request in server.requests].count("/v1/models") == 1


@pytest.mark.parametrize(
    "routes",
    [
        {"metrics": b"\xff\xfe" * 100, "server_info": b"[]", "version": {"version": 5}},
        {"metrics": b"", "server_info": {"vllm_config": "x"}, "version": {}},
        {"metrics": always(503, content=b""), "server_info": always(403, {}), "version": always(500, {})},
        {"server_info": {"vllm_config": {"model_config": {"dtype": {"a": ["b"] * 1000}}}}},
    ],
)
async def test_nonsense_beside_the_models_is_tolerated(routes: dict[str, Any]) -> None:
    facts = await client_of(ScriptedServer(**routes)).facts()
    assert facts.model == "smol"
    assert all(len(value) <= 200 for value in facts.settings.values())


@pytest.mark.parametrize("body", [{"data": []}, {"data": None}, {}, [], {"data": [{"id": 5}]}])
async def test_no_model_no_client(body: Any) -> None:
    server = ScriptedServer()
    server.routes["/v1/models"] = body if body else json.dumps(body).encode()
    with pytest.raises(ServerAnswerError):
        await client_of(server).facts()


async def test_one_of_several_models_can_be_chosen() -> None:
    server = ScriptedServer()
    server.routes["/v1/models"] = {"data": [{"id": "lora", "parent": "base"}, {"id": "base"}]}
    assert (await client_of(server).facts()).model == "base"
    address = parse_address("http://server:8000?model=lora", environ={})
    assert (await client_of(server, address=address).facts()).model == "lora"
    address = parse_address("http://server:8000?model=other", environ={})
    with pytest.raises(ServerRefusedError, match="it has lora, base"):
        await client_of(server, address=address).facts()


async def test_a_changed_fingerprint_stops_the_capture() -> None:
    server = ScriptedServer(lambda request: httpx.Response(200, json=changed(request)))
    with pytest.raises(ServerError) as raised:
        await client_of(server).score([1, 2], 5)
    assert FINGERPRINT in raised.value.detail
    assert "vllm-other" in raised.value.detail


def changed(request: httpx.Request) -> dict[str, Any]:
    return likely_answer(json.loads(request.content)) | {"system_fingerprint": "vllm-other"}


async def test_longest_text_is_one_less_than_the_model_takes() -> None:
    server = ScriptedServer()
    client = client_of(server)
    assert len((await client.score([3] * 4095, 1)).stream) == 4095
    with pytest.raises(ServerRefusedError, match="a text of 4096 tokens; this server takes 4095") as raised:
        await client.score([3] * 4096, 1)
    assert "--max-model-len 4097" in raised.value.hint
    assert len(server.questions()) == 1


async def test_silent_cut_of_max_tokens_is_reported() -> None:
    rows = [[(10, -0.5), (11, -1.5)]] * 2
    server = ScriptedServer(always(body=generate_body([1, 2], [10, 10], rows)))
    assert (await client_of(server).generate([1, 2], 200, 2)).cut
    assert not (await client_of(server).generate([1, 2], 2, 2)).cut


@pytest.mark.parametrize("ids", [[], [-1], [2**31], [1, 2**70]])
async def test_ids_that_cannot_be_sent(ids: list[int]) -> None:
    client = client_of(ScriptedServer())
    for call in (client.score(ids, 5), client.generate(ids, 1, 5), client.detokenize(ids)):
        with pytest.raises(InputError):
            await call


async def test_no_tokens_asked_for() -> None:
    with pytest.raises(InputError):
        await client_of(ScriptedServer()).generate([1], 0, 5)


async def test_tokenize_text_and_messages() -> None:
    server = ScriptedServer(tokenize={"count": 2, "max_model_len": 4096, "tokens": [5, 6]})
    client = client_of(server)
    assert await client.tokenize(text="hi") == [5, 6]
    messages = [{"role": "user", "content": "hi"}]
    tools = [{"type": "function", "function": {"name": "f"}}]
    template = {"enable_thinking": False}
    await client.tokenize(messages=messages, tools=tools, add_generation_prompt=False, template=template)
    text, chat = [json.loads(request.content) for request in server.requests if request.url.path == "/tokenize"]
    assert text == {"model": "smol", "prompt": "hi", "add_special_tokens": True}
    assert chat == {
        "model": "smol",
        "messages": messages,
        "add_generation_prompt": False,
        "tools": tools,
        "chat_template_kwargs": template,
    }


@pytest.mark.parametrize("body", [{"tokens": [1], "count": 2}, {"tokens": [-1]}, {"tokens": ["a"]}, {}])
async def test_tokenize_that_does_not_add_up(body: dict[str, Any]) -> None:
    server = ScriptedServer()
    server.routes["/tokenize"] = body or b"{}"
    with pytest.raises(ServerAnswerError):
        await client_of(server).tokenize(text="hi")


async def test_words_ask_for_every_id_once() -> None:
    def detokenize(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"prompt": f"<{json.loads(request.content)['tokens'][0]}>"})

    server = ScriptedServer(detokenize=detokenize)
    assert await client_of(server).words([3, 1, 3]) == {1: "<1>", 3: "<3>"}


async def test_preflight_of_a_good_server() -> None:
    client = client_of(ScriptedServer())
    assert await client.preflight(k=5, longest=100, max_tokens=50) == []
    assert (await client.facts()).max_top_k == 5


async def test_preflight_names_the_flag_for_more_alternatives() -> None:
    refused = {
        "error": {"message": "Requested prompt logprobs of 50, which is greater than max allowed: 20", "code": 400}
    }
    for server in (ScriptedServer(always(400, refused)), ScriptedServer(server_info=INFO)):
        with pytest.raises(ServerRefusedError) as raised:
            await client_of(server).preflight(k=50, longest=10, max_tokens=5)
        assert "--max-logprobs 50" in raised.value.hint
        assert "--top-k 20" in raised.value.hint


async def test_preflight_warns_of_a_short_model() -> None:
    client = client_of(ScriptedServer())
    (warning,) = await client.preflight(k=5, longest=4000, max_tokens=200, vocabulary=49_152)
    assert "room for 95 of 200" in warning
    assert "--max-model-len 4201" in warning
    with pytest.raises(ServerRefusedError, match="4096 tokens"):
        await client_of(ScriptedServer()).preflight(k=5, longest=4096, max_tokens=1)


async def test_preflight_warns_of_what_could_kill_the_server() -> None:
    server = ScriptedServer()
    server.routes["/v1/models"] = {"data": [{"id": "smol", "max_model_len": 40_000, "owned_by": "vllm"}]}
    (warning,) = await client_of(server).preflight(k=5, longest=32_000, max_tokens=100, vocabulary=152_000)
    assert "5.0 GB" in warning
    assert "--max-num-batched-tokens" in warning
    server.routes["/server_info"] = INFO
    assert await client_of(server).preflight(k=5, longest=32_000, max_tokens=100, vocabulary=152_000) == []


async def test_score_warns_once_of_what_could_kill_the_server() -> None:
    server = ScriptedServer()
    server.routes["/v1/models"] = {"data": [{"id": "smol", "max_model_len": 40_000}]}
    notices: list[str] = []
    client = client_of(server, notices=notices)
    await client.score([3] * 6000, 1)
    await client.score([3] * 6000, 1)
    assert len(notices) == 1
    assert "GB on the server" in notices[0]


async def test_preflight_warns_of_few_alternatives_and_no_fingerprint() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        question = json.loads(request.content)
        ids = question["prompt"]
        if "prompt_logprobs" in question:
            return httpx.Response(200, json=score_body(ids, [None, *([(i, -1.0)] for i in ids[1:])], None))
        return httpx.Response(200, json=likely_answer(question) | {"system_fingerprint": None})

    def server(request: httpx.Request) -> httpx.Response:
        return answer(request) if b"logprobs" in request.content else bare(request)

    client = client_of(server)
    warnings = await client.preflight(k=5, longest=10, max_tokens=5)
    assert any("fewer than 5 alternatives" in warning for warning in warnings)
    assert any("no system_fingerprint" in warning for warning in warnings)
    assert (await client.facts()).max_top_k == 0


async def test_preflight_warns_of_a_key_in_the_clear() -> None:
    address = parse_address("http://server:8000", environ={"FLIPSCOPE_API_KEY": "sk-4711"})
    client = client_of(ScriptedServer(), address=address)
    (warning,) = await client.preflight(k=5, longest=10, max_tokens=5)
    assert "unencrypted" in warning
    assert "4711" not in repr(client) + warning


async def test_proxies_do_not_stand_before_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with connect(parse_address("http://127.0.0.1:1", environ={})) as client:
        assert not client._http._mounts
    async with connect(parse_address("http://gpu.example", environ={})) as client:
        assert client._http._mounts


def test_memory_estimate() -> None:
    cost = score_cost(32_000, 20, 152_000)
    assert cost.logits == 152_000 * 4 * 8192
    assert cost.dangerous
    assert score_cost(1, 20, 152_000).logits == 608_000
    assert not score_cost(32_000, 20, 152_000, chunk=1024).dangerous
    assert score_cost(3900, 20, 49_152).answer == pytest.approx(5_632_228, rel=0.1)


def test_bounds_leave_room_for_real_answers() -> None:
    for prompt in ("emoji", "chat-howto"):
        ids = text_ids(prompt)
        assert len(recorded("f32", prompt, "score")) < score_bytes(len(ids), 20) / 3


def test_deadlines_grow_with_the_tokens_and_the_company() -> None:
    limits = Limits()
    assert limits.model_seconds(3900, 1) > 4 * 82
    assert limits.model_seconds(100, 128) > limits.model_seconds(100, 16)
    assert limits.model_seconds(100, 16, in_flight=4) > limits.model_seconds(100, 16)
    assert Limits(request_s=7).model_seconds(10**6, 10**6, 100) == 7


def test_cache_info_without_capacities() -> None:
    assert read_cache_info(METRICS).keys() == {"block_size", "cache_dtype", "enable_prefix_caching", "odd"}
    assert read_cache_info(b"") == {}
    assert read_server_info(b"{}") == {}
