"""HTTP with one server: deadlines, safe retries, bounded reading, errors in the server's words."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import httpx
import msgspec

from probe.errors import DeadlineError, ServerAnswerError, ServerDiedError, ServerRefusedError, ServerUnreachableError
from probe.wire.address import Address
from probe.wire.failures import ServerBusyError, plain, refusal
from probe.wire.limits import ERROR_BYTES, SMALL_BYTES, Limits

EMBEDDED_BASE = "http://embedded"
"""Where the embedded engine's transport answers."""

HEALTH = "/health"

ERROR_SECONDS = 10.0
"""How long an error body is read: its sentence is wanted, not its end."""

_PLAIN_ENCODINGS = frozenset({"", "identity", "gzip", "deflate"})
_STALE = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)
_T = TypeVar("_T")
Reader = Callable[[httpx.Response, asyncio.Timeout], Awaitable[_T]]


class Exchange:
    """Requests to one server. Any of them may be sent twice: a completion changes nothing on the server.

    Attributes:
        in_flight: Requests that run now.
    """

    def __init__(
        self, address: Address, http: httpx.AsyncClient, limits: Limits, notice: Callable[[str], None]
    ) -> None:
        self._address = address
        self._base = EMBEDDED_BASE if address.embedded else address.url
        self._http = http
        self._limits = limits
        self._notice = notice
        self._born = time.monotonic()
        self.in_flight = 0

    def name(self, method: str, path: str) -> str:
        """A request as errors call it; holds no credential."""
        return f"{method} {self._address.url}{path}"

    async def get(self, path: str, *, cap: int = SMALL_BYTES, patient: bool = True) -> bytes:
        """Body of a small GET; raises as `post` does. An impatient one takes "busy" for an answer."""
        tries = self._limits.busy_tries if patient else 1
        return await self._patiently("GET", path, None, self._limits.small_seconds, self._whole(cap), tries)

    async def post(self, path: str, question: Any, *, cap: int, seconds: float | None = None) -> bytes:
        """Body of the answer to a question.

        Args:
            path: Route, with its leading slash.
            question: What is sent as JSON.
            cap: Bytes from which on the body counts as nonsense.
            seconds: Deadline, by default that of small requests.

        Raises:
            ServerUnreachableError: Nothing answers, or the connection broke.
            ServerRefusedError: An error status.
            ServerDiedError: The engine behind the server died.
            ServerAnswerError: The body is larger than any answer to this question.
            DeadlineError: It took too long.
        """
        content = msgspec.json.encode(question)
        limit = self._limits.small_seconds if seconds is None else seconds
        return await self._patiently("POST", path, content, limit, self._whole(cap), self._limits.busy_tries)

    async def events(
        self,
        path: str,
        question: Any,
        *,
        cap: int,
        seconds: float,
        take: Callable[[AsyncIterator[bytes]], Awaitable[_T]],
    ) -> _T:
        """What `take` makes of the answer's bytes while they come; raises as `post` does."""

        async def read(response: httpx.Response, clock: asyncio.Timeout) -> _T:
            async with contextlib.aclosing(self._bounded(response, cap)) as chunks:
                return await take(chunks)

        content = msgspec.json.encode(question)
        return await self._patiently("POST", path, content, seconds, read, self._limits.busy_tries)

    async def healthy(self) -> bool:
        """Whether /health says that the engine lives."""
        try:
            await self.get(HEALTH, patient=False)
        except (ServerRefusedError, ServerUnreachableError, DeadlineError, ServerDiedError):
            return False
        return True

    async def _patiently(
        self, method: str, path: str, content: bytes | None, seconds: float, read: Reader[_T], tries: int
    ) -> _T:
        """Send until the server has room, or has said "busy" too often."""
        for attempt in range(1, tries + 1):
            try:
                return await self._twice(method, path, content, seconds, read)
            except ServerBusyError as busy:
                wait = self._limits.busy_seconds(attempt, busy.retry_after)
                if attempt == tries or wait >= self._left():
                    raise
                self._notice(f"{busy.detail}; trying again in {wait:.1f} s")
            except ServerRefusedError as refused:
                if refused.status == 500 and path != HEALTH and not await self.healthy():
                    raise ServerDiedError(refused.detail, hint="Restart the server; its log names the cause.") from None
                raise
            await asyncio.sleep(wait)
        raise AssertionError("a last try returns or raises")

    async def _twice(self, method: str, path: str, content: bytes | None, seconds: float, read: Reader[_T]) -> _T:
        """Send, and once more if a kept-alive connection turns out to be closed before any byte of an answer.

        uvicorn closes idle connections after 5 s, possibly at the moment a request goes out.
        """
        try:
            return await self._once(method, path, content, seconds, read)
        except _Unanswered:
            pass
        try:
            return await self._once(method, path, content, seconds, read)
        except _Unanswered as broken:
            raise ServerUnreachableError(
                f"{self.name(method, path)}: the connection broke before an answer came, twice ({broken})",
                hint="The server may have died at this request: look at its log, restart it, capture again to resume.",
            ) from broken.__cause__

    async def _once(self, method: str, path: str, content: bytes | None, seconds: float, read: Reader[_T]) -> _T:
        request = self.name(method, path)
        allowed = self._allowed(request, seconds)
        heard = False
        self.in_flight += 1
        try:
            async with (
                asyncio.timeout(allowed) as clock,
                self._http.stream(
                    method,
                    self._base + path,
                    content=content,
                    headers=self._headers(content),
                    timeout=httpx.Timeout(None, connect=self._limits.connect_s),
                    follow_redirects=False,
                ) as response,
            ):
                heard = True
                if response.status_code != 200:
                    raise await self._refused(request, response)
                return await read(response, clock)
        except TimeoutError:
            raise self._late(request, allowed, heard) from None
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError, httpx.PoolTimeout) as problem:
            raise ServerUnreachableError(
                f"{request}: {self._reason(problem)}", hint="Is the server up, and are host and port right?"
            ) from problem
        except _STALE as problem:
            if not heard:
                raise _Unanswered(self._reason(problem)) from problem
            raise ServerUnreachableError(
                f"{request}: the connection broke in the middle of the answer ({self._reason(problem)})",
                hint="The server may have died: look at its log, restart it, capture again to resume.",
            ) from problem
        except httpx.DecodingError as problem:
            raise ServerAnswerError(f"{request}: the body is not compressed as its head says") from problem
        except (httpx.RequestError, httpx.InvalidURL) as problem:
            raise ServerUnreachableError(f"{request}: {self._reason(problem)}") from problem
        finally:
            self.in_flight -= 1

    def _headers(self, content: bytes | None) -> dict[str, str]:
        kind = {"Content-Type": "application/json"} if content is not None else {}
        return {"Accept-Encoding": "gzip", **kind, **self._address.headers()}

    def _whole(self, cap: int) -> Reader[bytes]:
        """A reader of a body that comes in one piece."""

        async def read(response: httpx.Response, clock: asyncio.Timeout) -> bytes:
            end = asyncio.get_running_loop().time() + self._limits.body_seconds(cap)
            clock.reschedule(min(clock.when() or end, end))
            async with contextlib.aclosing(self._bounded(response, cap)) as chunks:
                return b"".join([chunk async for chunk in chunks])

        return read

    async def _bounded(self, response: httpx.Response, cap: int) -> AsyncGenerator[bytes, None]:
        """The body's pieces, as long as they stay below `cap` bytes in all."""
        request = self.name(response.request.method, response.request.url.path)
        encoding = response.headers.get("content-encoding", "").lower()
        if encoding not in _PLAIN_ENCODINGS:
            raise ServerAnswerError(f"{request}: the body is compressed with {plain(encoding, 40)!r}, unasked")
        declared = response.headers.get("content-length", "")
        size = int(declared) if declared.isascii() and declared.isdigit() and len(declared) < 19 else 0
        if size <= cap:
            size = 0
            async for chunk in response.aiter_bytes():
                size += len(chunk)
                if size > cap:
                    break
                yield chunk
        if size > cap:
            raise ServerAnswerError(
                f"{request}: the body has more than {cap:,} bytes, far more than an answer to this request",
                hint="Is this a vLLM server? Something in between may not be.",
            )

    async def _refused(self, request: str, response: httpx.Response) -> Exception:
        data = bytearray()
        with contextlib.suppress(httpx.HTTPError, TimeoutError):
            async with asyncio.timeout(ERROR_SECONDS):
                async for chunk in response.aiter_bytes():
                    data += chunk[: ERROR_BYTES - len(data)]
                    if len(data) >= ERROR_BYTES:
                        break
        error = refusal(
            response.status_code,
            bytes(data),
            request=request,
            redact=self._address.redact,
            location=response.headers.get("location", ""),
        )
        if isinstance(error, ServerBusyError):
            with contextlib.suppress(ValueError):
                error.retry_after = float(response.headers.get("retry-after", ""))
        return error

    def _left(self) -> float:
        """Seconds until the whole run is over."""
        if self._limits.run_s is None:
            return float("inf")
        return self._born + self._limits.run_s - time.monotonic()

    def _allowed(self, request: str, seconds: float) -> float:
        left = self._left()
        if left <= 0:
            raise self._late(request, 0.0, heard=False)
        return min(seconds, left)

    def _late(self, request: str, allowed: float, heard: bool) -> DeadlineError:
        if self._left() <= 0.001:
            return DeadlineError(
                f"{request}: the run's {self._limits.run_s:g} s are over",
                hint="What was captured is kept. Capture again to resume, with a longer deadline.",
            )
        what = "the answer began but did not end" if heard else "no answer came"
        return DeadlineError(
            f"{request}: {what} within {allowed:.0f} s",
            hint="The server is stuck or very slow: lower --concurrency, or raise the deadline.",
        )

    def _reason(self, problem: Exception) -> str:
        return plain(self._address.redact(str(problem))) or type(problem).__name__


class _Unanswered(Exception):
    """The connection broke before any byte of an answer."""
