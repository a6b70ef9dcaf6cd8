"""Connections that break, answers that do not end, engines that die: over a real socket where that matters."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import resource
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from wire_answers import QUICK, ScriptedServer, client_of, generate_body, likely_answer

from probe.errors import (
    DeadlineError,
    FlipscopeError,
    InputError,
    ServerAnswerError,
    ServerDiedError,
    ServerRefusedError,
    ServerUnreachableError,
)
from probe.wire.address import parse_address
from probe.wire.client import RuntimeClient
from probe.wire.connect import connect
from probe.wire.limits import Limits

Serve = Callable[[int, bytes, asyncio.StreamWriter], Awaitable[None]]
DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."


def http(body: bytes, *, status: str = "200 OK", head: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{head}\r\n".encode() + body


def bare_answer(path: bytes, body: bytes) -> bytes:
    """What a server says that knows no more than completions."""
    if path == b"/v1/models":
        return http(json.dumps({"data": [{"id": "smol"}]}).encode())
    if path == b"/v1/completions":
        return http(json.dumps(likely_answer(json.loads(body))).encode())
    return http(b'{"detail":"Not Found"}', status="404 Not Found")


@asynccontextmanager
async def socket_server(serve: Serve, *, limits: Limits = QUICK) -> AsyncIterator[tuple[RuntimeClient, list[bytes]]]:
    """A client of a server of bytes. `serve` gets every completion that wants log-probabilities, with its number."""
    asked: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ", 2)[1].split(b"?")[0]
                length = next(
                    (line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), b":0"
                )
                body = await reader.readexactly(int(length.split(b":")[1]))
                if b"logprobs" in body:
                    asked.append(body)
                    await serve(len(asked), body, writer)
                else:
                    writer.write(bare_answer(path, body))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        async with connect(parse_address(f"http://127.0.0.1:{port}", environ={}), limits=limits) as client:
            await client.facts()
            yield client, asked
    finally:
        server.close()


def answer_to(body: bytes) -> bytes:
    return http(json.dumps(likely_answer(json.loads(body))).encode())


async def test_a_stale_connection_is_tried_once_more() -> None:
    async def serve(number: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        if number == 1:
            writer.transport.abort()
            raise ConnectionResetError
        writer.write(answer_to(body))

    async with socket_server(serve) as (client, asked):
        assert len((await client.score([1, 2, 3], 5)).stream) == 3
        assert len(asked) == 2
        assert asked[0] == asked[1]


async def test_a_server_that_hangs_up_twice_is_unreachable() -> None:
    async def serve(number: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.close()
        raise ConnectionResetError

    async with socket_server(serve) as (client, asked):
        with pytest.raises(ServerUnreachableError, match="twice"):
            await client.score([1, 2, 3], 5)
        assert len(asked) == 2


async def test_a_server_killed_in_the_middle_of_an_answer() -> None:
    async def serve(number: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(answer_to(body)[:500])
        await writer.drain()
        writer.close()
        raise ConnectionResetError

    async with socket_server(serve) as (client, asked):
        with pytest.raises(ServerUnreachableError, match="middle of the answer"):
            await client.score([1, 2, 3], 5)
        assert len(asked) == 1


async def test_nothing_listens() -> None:
    async with connect(parse_address("http://127.0.0.1:1", environ={}), limits=QUICK) as client:
        with pytest.raises(ServerUnreachableError) as raised:
            await client.facts()
    assert "127.0.0.1:1" in raised.value.detail
    assert raised.value.hint


async def test_an_event_loop_that_stands_still_for_a_while_is_waited_for() -> None:
    async def serve(number: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        time.sleep(0.3)  # noqa: ASYNC251
        writer.write(answer_to(body))

    assert Limits().connect_s > 30
    assert Limits().small_s > 60
    async with socket_server(serve) as (client, _):
        assert len((await client.score([1, 2, 3], 5)).stream) == 3


async def test_a_request_has_a_deadline() -> None:
    async def serve(number: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(30)

    async with socket_server(serve, limits=Limits(request_s=0.2)) as (client, _):
        began = time.monotonic()
        with pytest.raises(DeadlineError, match="no answer came within 0 s"):
            await client.score([1, 2, 3], 5)
        assert time.monotonic() - began < 3


async def test_a_run_has_a_deadline() -> None:
    async def serve(number: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.1)
        writer.write(answer_to(body))

    async with socket_server(serve, limits=Limits(run_s=0.6)) as (client, asked):
        with pytest.raises(DeadlineError, match=r"the run's 0.6 s are over"):
            for _ in range(20):
                await client.score([1, 2, 3], 5)
        with pytest.raises(DeadlineError, match="run"):
            await client.generate([1], 1, 1)
        assert 1 <= len(asked) < 10


async def test_busy_does_not_outlast_the_run() -> None:
    async def serve(number: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(http(b"{}", status="503 Service Unavailable"))

    limits = Limits(run_s=1, busy_tries=100, busy_first_s=0.2, busy_longest_s=5)
    async with socket_server(serve, limits=limits) as (client, _):
        began = time.monotonic()
        with pytest.raises(ServerRefusedError):
            await client.score([1, 2, 3], 5)
        assert time.monotonic() - began < 2


async def test_a_dripping_body_ends() -> None:
    async def serve(number: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        for _ in range(1000):
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.05)

    limits = Limits(request_s=60, body_s=-2)  # and 1 MB of cap gives 2.6 s on top
    async with socket_server(serve, limits=limits) as (client, _):
        began = time.monotonic()
        with pytest.raises(DeadlineError, match="began but did not end"):
            await client.score([1, 2, 3], 5)
        assert time.monotonic() - began < 5


@pytest.mark.parametrize("head", [b"Transfer-Encoding: chunked\r\n", b"Content-Length: 99999999999999999\r\n", b""])
async def test_an_endless_body_is_not_read_to_its_end(head: bytes) -> None:
    sent = 0

    async def serve(number: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n")
        block = b" " * 65536
        while sent < 200_000_000:
            writer.write(b"10000\r\n" + block + b"\r\n" if b"chunked" in head else block)
            sent += len(block)
            await writer.drain()

    async with socket_server(serve) as (client, _):
        began = time.monotonic()
        with pytest.raises(ServerAnswerError, match="more than 1,0"):
            await client.score([1, 2, 3], 5)
        assert time.monotonic() - began < 10
        assert sent < 20_000_000


async def test_a_compressed_bomb_does_not_unfold() -> None:
    bomb = gzip.compress(b" " * 300_000_000, 9)

    async def serve(number: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(http(bomb, head="Content-Encoding: gzip\r\n"))

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with socket_server(serve) as (client, _):
        with pytest.raises(ServerAnswerError, match="more than"):
            await client.score([1, 2, 3], 5)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000


@pytest.mark.parametrize(
    ("head", "body", "error"),
    [
        ("Content-Encoding: gzip\r\n", b"not gzip", ServerAnswerError),
        ("Content-Encoding: zstd\r\n", b"{}", ServerAnswerError),
        ("Content-Encoding: br\r\n", b"{}", ServerAnswerError),
    ],
)
async def test_odd_encodings(head: str, body: bytes, error: type[FlipscopeError]) -> None:
    async def serve(number: int, _: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(http(body, head=head))

    async with socket_server(serve) as (client, _):
        with pytest.raises(error):
            await client.score([1, 2, 3], 5)


async def test_an_honest_gzip_is_read() -> None:
    async def serve(number: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        packed = gzip.compress(json.dumps(likely_answer(json.loads(body))).encode())
        writer.write(http(packed, head="Content-Encoding: gzip\r\n"))

    async with socket_server(serve) as (client, _):
        assert len((await client.score([1, 2, 3], 5)).stream) == 3


@pytest.mark.parametrize(
    "junk",
    [b"\x00\xff garbage\r\n\r\n", b"SSH-2.0-OpenSSH_9\r\n", b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 300_000 + b"\r\n"],
)
async def test_what_is_no_http(junk: bytes) -> None:
    async def serve(number: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(junk)
        await writer.drain()
        writer.close()
        raise ConnectionResetError

    async with socket_server(serve) as (client, _):
        with pytest.raises(ServerUnreachableError):
            await client.score([1, 2, 3], 5)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (httpx.ConnectError("refused"), ServerUnreachableError),
        (httpx.ConnectTimeout("slow"), ServerUnreachableError),
        (httpx.ReadError(""), ServerUnreachableError),
        (httpx.WriteError(""), ServerUnreachableError),
        (httpx.RemoteProtocolError("Server disconnected without sending a response."), ServerUnreachableError),
        (httpx.LocalProtocolError("odd"), ServerUnreachableError),
        (httpx.ReadTimeout("slow"), ServerUnreachableError),
        (httpx.ProxyError("403 from proxy"), ServerUnreachableError),
        (httpx.UnsupportedProtocol("x"), ServerUnreachableError),
    ],
)
async def test_every_fault_of_the_library_has_a_name(fault: Exception, error: type[FlipscopeError]) -> None:
    def fail(_: httpx.Request) -> httpx.Response:
        raise fault

    server = ScriptedServer(fail)
    with pytest.raises(error) as raised:
        await client_of(server).score([1, 2], 5)
    assert "http://server:8000/v1/completions" in raised.value.detail
    again = isinstance(fault, httpx.ReadError | httpx.WriteError | httpx.RemoteProtocolError)
    assert len(server.questions()) == (2 if again else 1)


def event(data: Any) -> bytes:
    return b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n"


def streamed(n: int, prompt: list[int], reason: str = "length") -> list[bytes]:
    row = [(10, -0.5), (11, -1.5)]
    events = []
    for index in range(n):
        one = generate_body(prompt, [10], [row], finish_reason=reason if index == n - 1 else None)
        if index:
            one["choices"][0]["prompt_token_ids"] = None
        if index < n - 1:
            del one["system_fingerprint"]
        events.append(event(one))
    return events


def stream_of(chunks: list[bytes]) -> Callable[[httpx.Request], httpx.Response]:
    async def content() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    return lambda _: httpx.Response(200, content=content(), headers={"Content-Type": "text/event-stream"})


async def follow(chunks: list[bytes], n: int = 3) -> Any:
    seen: list[int] = []
    made = await client_of(ScriptedServer(stream_of(chunks))).generate([1, 2], n, 2, on_token=seen.append)
    return made, seen


async def test_a_streamed_generation_equals_one_in_a_piece() -> None:
    made, seen = await follow([*streamed(3, [1, 2]), event(b"[DONE]")])
    row = [(10, -0.5), (11, -1.5)]
    whole = client_of(ScriptedServer(lambda _: httpx.Response(200, json=generate_body([1, 2], [10] * 3, [row] * 3))))
    assert made.stream.equals((await whole.generate([1, 2], 3, 2)).stream)
    assert seen == [1, 2, 3]
    assert made.text == "made" * 3
    assert made.finish_reason == "length"
    assert made.fingerprint


async def test_a_stream_may_be_cut_anywhere_by_the_network() -> None:
    whole = b"".join([*streamed(3, [1, 2]), event(b"[DONE]")]).replace(b"\n", b"\r\n")
    made, _ = await follow([whole[at : at + 7] for at in range(0, len(whole), 7)])
    assert len(made.stream) == 3


async def test_an_engine_that_dies_in_mid_stream_is_not_a_finished_text() -> None:
    died = event({"error": {"message": DEAD, "type": "InternalServerError", "code": 500}})
    with pytest.raises(ServerDiedError, match="in its stream"):
        await follow([*streamed(3, [1, 2])[:2], died, event(b"[DONE]")])


@pytest.mark.parametrize(
    "error",
    [{"message": "odd", "code": "x"}, "odd", {"message": "odd", "code": 400}, {"message": "odd", "code": 10**9}],
)
async def test_other_errors_in_a_stream(error: Any) -> None:
    with pytest.raises(ServerRefusedError, match="odd"):
        await follow([event({"error": error}), event(b"[DONE]")])


@pytest.mark.parametrize(
    "chunks",
    [
        streamed(3, [1, 2]),
        [*streamed(3, [1, 2])[:2], event(b"[DONE]")],
        [event(b"[DONE]")],
        [],
        [b": comment\n\n", b"event: x\n\n"],
    ],
)
async def test_a_stream_that_ends_early_is_not_a_finished_text(chunks: list[bytes]) -> None:
    with pytest.raises(ServerUnreachableError, match="without saying that it was over"):
        await follow(chunks)


@pytest.mark.parametrize(
    "chunks",
    [
        [event(b"{broken")],
        [event(b"[]")],
        [b"data: " + b"x" * 70_000] * 100,
        [*streamed(9, [1, 2]), event(b"[DONE]")],
        [*streamed(3, [1, 3]), event(b"[DONE]")],
        [event(streamed(1, [1, 2])[0][6:-2].replace(b"token_id:11", b" Paris")), event(b"[DONE]")],
    ],
)
async def test_nonsense_in_a_stream_is_refused(chunks: list[bytes]) -> None:
    with pytest.raises(ServerAnswerError):
        await follow(chunks)


async def test_null_in_a_stream_is_nan() -> None:
    body = generate_body([1, 2], [10], [[(10, None), (11, None)]], finish_reason="length")
    made, _ = await follow([event(body), event(b"[DONE]")], n=1)
    assert made.stream.top_ids.tolist() == [[10, 11]]
    assert "non-finite" in made.evidence


async def test_the_key_is_in_the_header_and_nowhere_else(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    key = "sk-very-secret-4711"
    seen: list[httpx.Request] = []

    def fail(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        raise httpx.ReadError(f"while sending Bearer {key}")

    address = parse_address("http://server:8000", environ={"FLIPSCOPE_API_KEY": key})
    client = client_of(ScriptedServer(fail), address=address)
    with pytest.raises(ServerUnreachableError) as raised:
        await client.score([1, 2], 5)
    assert seen[0].headers["authorization"] == f"Bearer {key}"
    assert key not in str(seen[0].url) + seen[0].content.decode()
    facts = await client.facts()
    for shown in (raised.value.detail, raised.value.hint, repr(raised.value), repr(client), repr(facts), caplog.text):
        assert key not in shown


async def test_the_key_is_in_no_log_of_the_http_library(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def serve(number: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(answer_to(body))

    async with socket_server(serve) as (client, _):
        object.__setattr__(client.address, "secret", parse_address("http://u:sk-4711@h", environ={}).secret)
        await client.score([1, 2], 5)
        secret = client.address.secret
        assert secret is not None
        assert caplog.text
        assert secret.reveal() not in caplog.text


@pytest.mark.parametrize("proxy", ["socks5://user:hidden@127.0.0.1:1", "ftp://user:hidden@x"])
async def test_a_proxy_that_cannot_be_used_is_an_input_error(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(InputError, match="proxy") as caught:
        async with connect(parse_address("http://example.invalid:9")):
            pass
    assert "hidden" not in caught.value.detail + caught.value.hint
    async with connect(parse_address("http://127.0.0.1:9")):
        pass  # nothing stands between this machine and itself


async def test_a_host_that_is_no_name_is_an_input_error() -> None:
    with pytest.raises(InputError, match="xn--"):
        async with connect(parse_address("http://xn--:80")):
            pass
