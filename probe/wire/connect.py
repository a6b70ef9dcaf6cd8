"""From an address to a client that speaks with what stands there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx

from probe.errors import InputError
from probe.wire.address import Address
from probe.wire.client import RuntimeClient, VocabularySource
from probe.wire.limits import Limits

KEEP_ALIVE_S = 4.0
"""Idle connections are dropped before uvicorn drops them, which is after 5 s."""


@asynccontextmanager
async def connect(
    address: Address,
    *,
    limits: Limits | None = None,
    notice: Callable[[str], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> AsyncIterator[RuntimeClient]:
    """A client for one runtime, closed at the end.

    Loads the model when the address is the embedded engine's: seconds, in a thread. No request is sent to a server.

    Args:
        address: Where the runtime is.
        limits: Deadlines and retries.
        notice: Takes sentences worth showing; the embedded engine calls it from its own thread.
        progress: Takes bytes done and bytes in all while the embedded engine's model is fetched, from its thread.

    Raises:
        EngineMissingError: The embedded engine or its model is not there.
        InputError: The host's name or a proxy in the environment cannot be used.
    """
    transport: httpx.AsyncBaseTransport | None = None
    engine: VocabularySource | None = None
    if address.embedded:
        from probe.wire.embedded import open_embedded

        embedded = open_embedded(address, notice=notice or (lambda _: None), progress=progress or (lambda *_: None))
        try:
            await embedded.ready()
        except BaseException:
            await embedded.aclose()
            raise
        transport = engine = embedded
    http = _http(address, transport)
    options = {} if notice is None else {"notice": notice}
    async with RuntimeClient(address, http=http, limits=limits, engine=engine, **options) as client:
        yield client


def _http(address: Address, transport: httpx.AsyncBaseTransport | None) -> httpx.AsyncClient:
    try:
        if not address.embedded:
            _ = httpx.URL(address.url).host  # decodes an international name
    except (httpx.InvalidURL, UnicodeError) as problem:
        raise InputError(f"{address} is no address: {problem}", hint="Are host and port right?") from problem
    try:
        return httpx.AsyncClient(
            transport=transport,
            # A proxy from the environment must not swallow a server on this machine.
            trust_env=not address.loopback,
            limits=httpx.Limits(max_connections=None, keepalive_expiry=KEEP_ALIVE_S),
        )
    except (ValueError, ImportError, httpx.InvalidURL) as problem:  # the problem may quote a proxy's password
        raise InputError(
            f"{address}: a proxy in the environment cannot be used",
            hint="HTTP_PROXY, HTTPS_PROXY and ALL_PROXY take http://HOST:PORT, and SOCKS needs pip install socksio;"
            " NO_PROXY names hosts to reach without.",
        ) from problem
