"""Error statuses: the right class, the server's sentence, a remedy. Bodies as vLLM 0.32 sends them."""

from __future__ import annotations

import json
import time

import pytest
from wire_answers import QUICK, ScriptedServer, always, client_of

from probe.errors import FlipscopeError, ServerDiedError, ServerRefusedError
from probe.wire.address import parse_address
from probe.wire.failures import ServerBusyError, refusal, sentence

DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."
BUSY = "The engine is currently busy and cannot accept new requests. Please try again later or on a different instance."


def vllm(message: str, code: int, kind: str = "BadRequestError") -> dict[str, object]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


CASES = [
    (
        400,
        vllm("Requested prompt logprobs of 21, which is greater than max allowed: 20 (parameter=prompt_logprobs)", 400),
        ServerRefusedError,
        "greater than max allowed: 20",
        "--max-logprobs 21",
    ),
    (
        400,
        vllm("Requested sample logprobs of 21, which is greater than max allowed: 20 (parameter=logprobs)", 400),
        ServerRefusedError,
        "sample logprobs of 21",
        "--top-k 20",
    ),
    (
        400,
        vllm("Out of range float values are not JSON compliant", 400),
        ServerRefusedError,
        "Out of range float values",
        "not a number",
    ),
    (
        400,
        vllm("This model's maximum context length is 4096 tokens. However, your prompt contains 5000 input", 400),
        ServerRefusedError,
        "maximum context length",
        "--max-model-len",
    ),
    (
        400,
        vllm("max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)", 400),
        ServerRefusedError,
        "max_tokens must be",
        "max_model_len - 1",
    ),
    (400, vllm("Token id 49152 is out of vocabulary", 400), ServerRefusedError, "49152", "tokenizer"),
    (400, vllm("6 validation errors: [...]", 400, "Bad Request"), ServerRefusedError, "6 validation errors", ""),
    (400, {"detail": "There was an error parsing the body"}, ServerRefusedError, "parsing the body", ""),
    (401, {"error": "Unauthorized"}, ServerRefusedError, "Unauthorized", "FLIPSCOPE_API_KEY"),
    (403, vllm("Scale-out endpoints are disabled.", 403, "PermissionDeniedError"), ServerRefusedError, "Scale-out", ""),
    (404, {"detail": "Not Found"}, ServerRefusedError, "Not Found", "prefix"),
    (
        404,
        vllm("The model `nope` does not exist. Valid aliases: smol.", 404, "NotFoundError"),
        ServerRefusedError,
        "nope",
        "?model=NAME",
    ),
    (405, {"detail": "Method Not Allowed"}, ServerRefusedError, "Not Allowed", "vLLM"),
    (
        422,
        {"detail": [{"loc": ["body", "prompt"], "msg": "field required"}, {"msg": "second"}]},
        ServerRefusedError,
        "field required; second",
        "",
    ),
    (413, "<html><h1>413 Request Entity Too Large</h1></html>", ServerRefusedError, "Too Large", "proxy"),
    (429, {"message": "Rate limit", "object": "error"}, ServerBusyError, "Rate limit", "--concurrency"),
    (500, vllm(DEAD, 500, "InternalServerError"), ServerDiedError, "EngineCore encountered", "Restart"),
    (500, {"detail": "EngineDeadError"}, ServerDiedError, "EngineDeadError", "Restart"),
    (500, vllm("list index out of range", 500), ServerRefusedError, "list index", "log"),
    (502, "<html><title>502 Bad Gateway</title></html>", ServerRefusedError, "Bad Gateway", "proxy"),
    (503, vllm(BUSY, 503, "Service Unavailable"), ServerBusyError, "currently busy", "--concurrency"),
    (504, "", ServerRefusedError, "empty body", "timeout"),
]


@pytest.mark.parametrize(("status", "body", "kind", "says", "remedy"), CASES)
@pytest.mark.parametrize("ask", ["score", "generate"])
async def test_statuses(
    status: int, body: object, kind: type[FlipscopeError], says: str, remedy: str, ask: str
) -> None:
    content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    server = ScriptedServer(always(status, content=content), health=b"")
    client = client_of(server)
    with pytest.raises(kind) as raised:
        await (client.score([1, 2], 21) if ask == "score" else client.generate([1, 2], 3, 21))
    assert type(raised.value) is kind
    assert says in raised.value.detail
    assert "http://server:8000/v1/completions" in raised.value.detail
    assert remedy in raised.value.hint
    if isinstance(raised.value, ServerRefusedError):
        assert raised.value.status == status


async def test_a_nan_model_is_named_so() -> None:
    body = vllm("Out of range float values are not JSON compliant", 400)
    with pytest.raises(ServerRefusedError) as raised:
        await client_of(ScriptedServer(always(400, body))).score([1, 2], 20)
    assert raised.value.title == "The model produced NaN"


async def test_an_unknown_500_of_a_server_without_health_is_a_death() -> None:
    server = ScriptedServer(always(500, vllm("boom", 500)), health=always(503, content=b""))
    with pytest.raises(ServerDiedError, match="boom"):
        await client_of(server).score([1, 2], 20)


async def test_health_that_fails_with_500_itself_is_asked_once() -> None:
    boom = always(500, vllm("boom", 500))
    server = ScriptedServer(boom, health=boom)
    with pytest.raises(ServerDiedError, match="boom"):
        await client_of(server).score([1, 2], 20)
    assert [request.url.path for request in server.requests].count("/health") == 1


async def test_busy_is_tried_again_until_there_is_room() -> None:
    refused = 0

    def answer(request: object) -> object:
        nonlocal refused
        refused += 1
        if refused < 4:
            return always(503, vllm(BUSY, 503), **{"Retry-After": "0"})(request)  # type: ignore[arg-type]
        return None

    server = ScriptedServer()

    def completions(request: object) -> object:
        busy = answer(request)
        return busy or ScriptedServer()(request)  # type: ignore[arg-type]

    server.completions = completions  # type: ignore[assignment]
    notices: list[str] = []
    scored = await client_of(server, notices=notices).score([1, 2, 3], 5)
    assert len(scored.stream) == 3
    assert len(notices) == 3
    assert "trying again" in notices[0]


async def test_busy_for_ever_ends() -> None:
    server = ScriptedServer(always(503, vllm(BUSY, 503)))
    began = time.monotonic()
    with pytest.raises(ServerBusyError, match="busy"):
        await client_of(server).score([1, 2, 3], 5)
    assert len(server.questions()) == QUICK.busy_tries
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("said", ["nan", "-5", "soon", "1e999", ""])
def test_waits_are_bounded_and_spread(said: str) -> None:
    asked = float(said) if said and said != "soon" else None
    waits = [QUICK.busy_seconds(attempt, asked) for attempt in range(1, 200)]
    assert all(0 <= wait <= QUICK.busy_longest_s for wait in waits)
    assert len({QUICK.busy_seconds(1) for _ in range(20)}) > 1


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_redirects_are_not_followed(status: int) -> None:
    address = parse_address("http://server:8000", environ={"FLIPSCOPE_API_KEY": "sk-4711"})
    server = ScriptedServer(always(status, content=b"", Location="http://u:pw@elsewhere/v1/completions"))
    with pytest.raises(ServerRefusedError) as raised:
        await client_of(server, address=address).score([1, 2], 5)
    assert "http://elsewhere/v1/completions" in raised.value.detail
    assert "pw" not in raised.value.detail
    assert {request.url.host for request in server.requests} == {"server"}


async def test_a_key_that_the_server_repeats_is_struck_out() -> None:
    address = parse_address("http://server:8000", environ={"FLIPSCOPE_API_KEY": "sk-4711"})
    server = ScriptedServer(always(401, {"error": {"message": "x" * 395 + "sk-4711"}}))
    with pytest.raises(ServerRefusedError) as raised:
        await client_of(server, address=address).score([1, 2], 5)
    assert "sk-4" not in raised.value.detail
    assert server.requests[-1].headers["authorization"] == "Bearer sk-4711"


@pytest.mark.parametrize(
    "body",
    [b"", b"\x1b[31mred\x07", b"\xff" * 70_000, b"[" * 60_000, b"<" * 60_000, b"9" * 60_000, b'{"error":' * 9_000],
)
def test_any_body_gives_one_short_printable_line(body: bytes) -> None:
    began = time.monotonic()
    words = sentence(body)
    assert len(words) <= 400
    assert words.isprintable()
    assert time.monotonic() - began < 1


def test_an_error_of_a_stream_has_no_status_to_show() -> None:
    assert refusal(0, b'{"error":"x"}', request="POST u").detail == "POST u: x"
