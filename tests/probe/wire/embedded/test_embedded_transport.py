from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from probe.errors import EngineMissingError
from probe.records import Piece
from probe.wire.embedded.engine import EngineFacts, InterruptedWorkError
from probe.wire.embedded.transport import EmbeddedTransport

END = 7


class SmallEngine:
    """Eight tokens, deterministic logits with ties, and a gate to hold it in the middle of its work."""

    def __init__(self) -> None:
        self.facts = EngineFacts(
            name="small",
            root="nowhere",
            version="1",
            fingerprint="small-1",
            context=10,
            vocabulary=8,
            max_logprobs=5,
            settings={"cache_dtype": 'a"b\\c'},
            template="{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}>{% endif %}",
        )
        self.special = np.zeros(8, np.float32)
        self.hold: threading.Event | None = None
        self.entered = threading.Event()
        self.closed = False
        self.threads: set[int] = set()
        self._interrupted = threading.Event()

    def prefill(self, ids: Sequence[int], *, every: bool) -> Iterator[NDArray[np.float32]]:
        self._work()
        rows = np.stack([self._row(token) for token in ids])
        if not every:
            yield rows[-1:]
            return
        yield from (rows[begin : begin + 3] for begin in range(0, len(rows), 3))

    def step(self, token: int) -> NDArray[np.float32]:
        self._work()
        return self._row(token)

    def tokenise(self, text: str, *, special: bool) -> list[int]:
        return [0] * special + [ord(letter) % 8 for letter in text]

    def pieces(self) -> list[Piece]:
        return [Piece(b"abcdefg"[token : token + 1] or b"<end>", special=token == END) for token in range(8)]

    def spellings(self, ids: Sequence[int]) -> list[str]:
        return [f"#{token}" for token in ids]

    def ends(self, token: int) -> bool:
        return token == END

    def interrupt(self) -> None:
        self._interrupted.set()
        if self.hold:
            self.hold.set()

    def resume(self) -> None:
        self._interrupted.clear()

    def close(self) -> None:
        self.closed = True

    def _row(self, token: int) -> NDArray[np.float32]:
        # The two ids after `token`, of which 7 is the last, tie for the first place.
        row = np.arange(8, dtype=np.float32) / 8
        row[[(token + 1) % 8, min(token + 2, 7)]] = 3
        return (row + self.special).astype(np.float32)

    def _work(self) -> None:
        self.threads.add(threading.get_ident())
        self.entered.set()
        if self.hold:
            assert self.hold.wait(10)
        if self._interrupted.is_set():
            raise InterruptedWorkError


@pytest.fixture
def small() -> SmallEngine:
    return SmallEngine()


@pytest.fixture
async def http(small: SmallEngine) -> AsyncIterator[httpx.AsyncClient]:
    transport = EmbeddedTransport(lambda abandoned: small)
    async with httpx.AsyncClient(transport=transport, base_url="http://embedded") as client:
        yield client


async def complete(http: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    return await http.post("/v1/completions", json={"model": "small", "temperature": 0, "prompt": [1, 2], **fields})


async def test_rows_have_the_actual_token_first_then_falling_with_true_ranks(http: httpx.AsyncClient) -> None:
    answer = (await complete(http, prompt=[0, 5, 6], max_tokens=1, prompt_logprobs=2)).json()
    first, second, third = answer["choices"][0]["prompt_logprobs"]
    assert first is None
    assert [(token, entry["rank"]) for token, entry in second.items()] == [("5", 5), ("1", 1), ("2", 2)]
    assert [(token, entry["rank"]) for token, entry in third.items()] == [("6", 1), ("7", 2)]
    assert [entry["decoded_token"] for entry in third.values()] == ["g", "<end>"]
    assert answer["choices"][0]["token_ids"] is None


async def test_k_zero_lists_the_actual_token_only(http: httpx.AsyncClient) -> None:
    rows = (await complete(http, prompt=[0, 5, 6], prompt_logprobs=0)).json()["choices"][0]["prompt_logprobs"]
    assert [list(row or {}) for row in rows] == [[], ["5"], ["6"]]


async def test_greedy_takes_the_lowest_id_of_a_tie_and_stops_at_the_end(http: httpx.AsyncClient) -> None:
    choice = (await complete(http, prompt=[4], max_tokens=9, return_token_ids=True)).json()["choices"][0]
    assert choice["token_ids"] == [5, 6, 7]
    assert (choice["finish_reason"], choice["text"], choice["logprobs"]) == ("stop", "fg", None)
    on = (await complete(http, prompt=[4], max_tokens=4, return_token_ids=True, ignore_eos=True)).json()["choices"][0]
    assert on["token_ids"] == [5, 6, 7, 0]
    assert on["finish_reason"] == "length"
    stopped = (await complete(http, prompt=[4], stop_token_ids=[6], return_token_ids=True)).json()["choices"][0]
    assert (stopped["token_ids"], stopped["finish_reason"]) == ([5, 6], "stop")


async def test_a_generation_is_cut_silently_where_the_context_ends(http: httpx.AsyncClient) -> None:
    choice = (await complete(http, prompt=[0] * 9, max_tokens=5, return_token_ids=True)).json()["choices"][0]
    assert (choice["token_ids"], choice["finish_reason"]) == ([1], "length")


async def test_decode_logprobs_by_text_and_by_id(http: httpx.AsyncClient) -> None:
    by_text = (await complete(http, prompt=[0], max_tokens=2, logprobs=3)).json()["choices"][0]["logprobs"]
    assert by_text["tokens"] == ["b", "c"]
    assert by_text["text_offset"] == [0, 1]
    by_id = (await complete(http, prompt=[0], max_tokens=2, logprobs=3, return_tokens_as_token_ids=True)).json()
    steps = by_id["choices"][0]["logprobs"]
    assert steps["tokens"] == ["token_id:1", "token_id:2"]
    assert list(steps["top_logprobs"][0]) == ["token_id:1", "token_id:2", "token_id:7"]
    assert steps["top_logprobs"][0]["token_id:1"] == steps["token_logprobs"][0]
    assert steps["text_offset"] == [0, 10]


async def test_several_prompts_give_a_choice_each(http: httpx.AsyncClient) -> None:
    answer = (await complete(http, prompt=[[0], [1, 2]], max_tokens=1, return_token_ids=True)).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    assert [choice["token_ids"] for choice in answer["choices"]] == [[1], [3]]
    assert answer["usage"]["total_tokens"] == 5


async def test_a_text_prompt_gets_the_special_token_unless_refused(http: httpx.AsyncClient) -> None:
    answer = (await complete(http, prompt="i", return_token_ids=True)).json()
    assert answer["choices"][0]["prompt_token_ids"] == [0, 1]
    answer = (await complete(http, prompt=["i"], return_token_ids=True, add_special_tokens=False)).json()
    assert answer["choices"][0]["prompt_token_ids"] == [1]


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"model": "nope"}, 404, "The model `nope` does not exist. Valid aliases: small."),
        ({"prompt_logprobs": 6}, 400, "Requested prompt logprobs of 6, which is greater than max allowed: 5 (param"),
        ({"prompt_logprobs": -1}, 400, "Requested prompt logprobs of 8, which is greater than max allowed: 5"),
        ({"logprobs": 6}, 400, "Requested sample logprobs of 6, which is greater than max allowed: 5"),
        ({"prompt_logprobs": -2}, 400, "`prompt_logprobs` must be a positive value or -1."),
        ({"prompt_logprobs": "20x"}, 400, "`prompt_logprobs` must be an integer."),
        ({"prompt": [0] * 11}, 400, "This model's maximum context length is 10 tokens. However, your prompt contains"),
        ({"prompt": [0] * 10}, 400, "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)"),
        ({"max_tokens": 0}, 400, "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)"),
        ({"prompt": [8]}, 400, "Token id 8 is out of vocabulary"),
        ({"prompt": [-1]}, 400, "1 validation error"),
        ({"prompt": [[0], 1]}, 400, "1 validation error"),
        ({"prompt": {"a": 1}}, 400, "1 validation error"),
        ({"prompt": ""}, 400, "Either prompt or prompt_embeds must be provided and non-empty."),
        ({"prompt": []}, 400, "You must pass at least one prompt"),
        ({"temperature": 0.5}, 400, "The embedded engine is greedy only"),
        ({"temperature": None}, 400, "The embedded engine is greedy only"),
        ({"n": 2}, 400, "n must be 1 when using greedy sampling, got 2."),
        ({"stream": True, "prompt_logprobs": 1}, 400, "`prompt_logprobs` are not available when `stream=True`."),
        ({"logit_bias": {"1": 5.0}}, 400, "The embedded engine does not support logit_bias"),
        ({"repetition_penalty": 1.1}, 400, "The embedded engine does not support repetition_penalty"),
    ],
)
async def test_refusals_are_vllms(http: httpx.AsyncClient, fields: dict[str, Any], status: int, message: str) -> None:
    answer = await complete(http, **fields)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert error["message"].startswith(message)
    assert error["code"] == status
    assert set(error) == {"message", "type", "param", "code"}


async def test_neutral_fields_and_unknown_ones_are_taken(http: httpx.AsyncClient) -> None:
    answer = await complete(http, repetition_penalty=1.0, presence_penalty=0, stop=[], seed=3, frobnicate=1)
    assert answer.status_code == 200


async def test_nan_is_a_400_where_logprobs_are_asked_and_garbage_where_not(
    http: httpx.AsyncClient, small: SmallEngine
) -> None:
    small.special[3] = np.nan
    for fields in ({"prompt_logprobs": 1}, {"logprobs": 1}):
        answer = await complete(http, **fields)
        assert answer.status_code == 400
        assert answer.json()["error"]["message"] == "Out of range float values are not JSON compliant"
    assert (await complete(http)).status_code == 200


async def test_minus_infinity_is_written_as_vllm_writes_it(http: httpx.AsyncClient, small: SmallEngine) -> None:
    small.special[4:] = -np.inf
    row = (await complete(http, prompt=[0, 5], prompt_logprobs=5)).json()["choices"][0]["prompt_logprobs"][1]
    assert row["5"]["logprob"] == -9999.0
    assert min(entry["logprob"] for entry in row.values()) == -9999.0


@pytest.mark.parametrize(
    ("method", "path", "status", "detail"),
    [
        ("GET", "/server_info", 404, "Not Found"),
        ("POST", "/reset_prefix_cache", 404, "Not Found"),
        ("GET", "/v1/completions", 405, "Method Not Allowed"),
        ("POST", "/version", 405, "Method Not Allowed"),
    ],
)
async def test_other_routes_are_fastapis_errors(
    http: httpx.AsyncClient, method: str, path: str, status: int, detail: str
) -> None:
    answer = await http.request(method, path)
    assert answer.status_code == status
    assert answer.json() == {"detail": detail}


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"prompt": "\xff"}', b'{"prompt": "\\ud800"}', b"{}", b"nul"])
async def test_bad_json_is_a_400(http: httpx.AsyncClient, body: bytes) -> None:
    answer = await http.post("/v1/completions", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert "validation error" in answer.json()["error"]["message"]


async def test_text_plain_is_refused(http: httpx.AsyncClient) -> None:
    answer = await http.post("/tokenize", content=b'{"prompt":"a"}', headers={"content-type": "text/plain"})
    assert answer.json()["error"]["message"] == "Unsupported Media Type: Only 'application/json' is allowed"


async def test_small_routes(http: httpx.AsyncClient) -> None:
    assert (await http.get("/version")).json() == {"version": "1"}
    health = await http.get("/health")
    assert (health.status_code, health.content) == (200, b"")
    card = (await http.get("/v1/models")).json()["data"][0]
    assert (card["id"], card["root"], card["max_model_len"]) == ("small", "nowhere", 10)
    assert 'vllm:cache_config_info{cache_dtype="a\\"b\\\\c",engine="0"} 1.0\n' in (await http.get("/metrics")).text


async def test_tokenize_text_and_messages(http: httpx.AsyncClient) -> None:
    plain = (await http.post("/tokenize", json={"prompt": "ab", "return_token_strs": True})).json()
    assert plain == {"count": 3, "max_model_len": 10, "tokens": [0, 1, 2], "token_strs": ["#0", "#1", "#2"]}
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    chat = (await http.post("/tokenize", json={"messages": messages})).json()
    assert chat["tokens"] == [ord(letter) % 8 for letter in "a\nb>"]
    assert chat["token_strs"] is None
    opened = {"messages": messages, "add_generation_prompt": False, "continue_final_message": True}
    assert (await http.post("/tokenize", json=opened)).json()["count"] == 3


@pytest.mark.parametrize(
    "question",
    [
        {},
        {"messages": []},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]},
        {"messages": [{"role": "user", "content": "a"}], "continue_final_message": True},
        {"messages": [{"role": "user", "content": "a"}], "chat_template": "{{ raise_exception('no') }}"},
        {"messages": [{"role": "user", "content": "a"}], "chat_template": "{% for"},
        {"messages": [{"role": "user", "content": "a"}], "chat_template": "{{ messages.__class__.__mro__ }}"},
        {"messages": [{"role": "user", "content": "a"}], "chat_template": "{{ range(10**9)|list }}"},
    ],
)
async def test_messages_that_cannot_be_rendered_are_a_400(http: httpx.AsyncClient, question: dict[str, Any]) -> None:
    answer = await http.post("/tokenize", json=question)
    assert answer.status_code == 400


async def test_detokenize_drops_unknown_ids(http: httpx.AsyncClient) -> None:
    assert (await http.post("/detokenize", json={"tokens": [0, 99, 7]})).json() == {"prompt": "a<end>"}


async def test_everything_runs_in_one_other_thread(http: httpx.AsyncClient, small: SmallEngine) -> None:
    await asyncio.gather(*(complete(http) for _ in range(5)))
    assert len(small.threads) == 1
    assert threading.get_ident() not in small.threads


async def test_a_cancelled_request_interrupts_the_engine_and_the_next_one_works(
    http: httpx.AsyncClient, small: SmallEngine
) -> None:
    await complete(http)
    small.entered.clear()
    small.hold = threading.Event()
    task = asyncio.create_task(complete(http))
    await asyncio.to_thread(small.entered.wait, 5)
    waiting = asyncio.create_task(complete(http))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    small.hold.set()
    assert (await waiting).status_code == 200


async def test_health_does_not_wait_behind_a_long_text(http: httpx.AsyncClient, small: SmallEngine) -> None:
    await complete(http)
    small.entered.clear()
    small.hold = threading.Event()
    running = asyncio.create_task(complete(http))
    await asyncio.to_thread(small.entered.wait, 5)
    assert (await asyncio.wait_for(http.get("/health"), 5)).status_code == 200
    assert not running.done()
    small.hold.set()
    await running


async def test_a_request_cancelled_in_the_queue_interrupts_nobody(http: httpx.AsyncClient, small: SmallEngine) -> None:
    small.hold = threading.Event()
    running = asyncio.create_task(complete(http))
    await asyncio.to_thread(small.entered.wait, 5)
    queued = asyncio.create_task(complete(http))
    await asyncio.sleep(0)
    queued.cancel()
    with pytest.raises(asyncio.CancelledError):
        await queued
    small.hold.set()
    assert (await running).status_code == 200


async def test_closing_interrupts_frees_and_refuses_what_comes_later(small: SmallEngine) -> None:
    transport = EmbeddedTransport(lambda abandoned: small)
    http = httpx.AsyncClient(transport=transport, base_url="http://embedded")
    small.hold = threading.Event()
    running, queued = (asyncio.create_task(complete(http)) for _ in range(2))
    await asyncio.to_thread(small.entered.wait, 5)
    await transport.aclose()
    await transport.aclose()
    assert small.closed
    for task in (running, queued):
        with pytest.raises(httpx.ReadError):
            await task
    with pytest.raises(httpx.ConnectError):
        await complete(http)


async def test_what_loading_raises_every_request_raises() -> None:
    def load(abandoned: Callable[[], bool]) -> SmallEngine:
        raise EngineMissingError("not here")

    transport = EmbeddedTransport(load)
    for _ in range(2):
        with pytest.raises(EngineMissingError, match="not here"):
            await transport.ready()
    with pytest.raises(EngineMissingError):
        await transport.handle_async_request(httpx.Request("GET", "http://embedded/version"))
    with pytest.raises(EngineMissingError):
        transport.vocabulary()
    await transport.aclose()


async def test_closing_calls_loading_off() -> None:
    begun = threading.Event()

    def load(abandoned: Callable[[], bool]) -> SmallEngine:
        begun.set()
        while not abandoned():
            threading.Event().wait(0.01)
        raise InterruptedWorkError

    transport = EmbeddedTransport(load)
    ready = asyncio.create_task(transport.ready())
    await asyncio.to_thread(begun.wait, 5)
    ready.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ready
    await asyncio.wait_for(transport.aclose(), 5)
