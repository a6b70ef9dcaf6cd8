"""An httpx transport that answers vLLM's routes from an engine in this process."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

import httpx
import msgspec

from probe.records import Piece
from probe.wire.embedded.completions import complete
from probe.wire.embedded.engine import Engine, EngineFacts, InterruptedWorkError
from probe.wire.embedded.events import events
from probe.wire.embedded.refusal import RefusalError, RouteError
from probe.wire.embedded.requests import (
    CompletionRequest,
    DetokenizeRequest,
    TokenizeRequest,
    check_model,
    read_request,
)
from probe.wire.embedded.template import TemplateRefusedError, render_chat
from probe.wire.embedded.words import Words
from probe.wire.embedded.worker import Worker

BODY_LIMIT = 64 << 20
"""Bytes of a request: a million token ids take 7 MB."""


class EmbeddedTransport(httpx.AsyncBaseTransport):
    """Stands where a server would: hand it to `httpx.AsyncClient(transport=…)`.

    Requests are computed one after the other in the engine's own thread; the event loop is never blocked. Cancelling
    a request interrupts the computation. Several transports compute side by side.
    """

    def __init__(self, load: Callable[[Callable[[], bool]], Engine]) -> None:
        """Start loading the engine.

        Args:
            load: Makes the engine, in the engine's thread; given a function that tells whether nobody wants it any
                more. What it raises, every request raises.
        """
        self._worker = Worker(load)
        self._served: _Served | None = None

    async def ready(self) -> None:
        """Wait until the engine is loaded.

        Raises:
            FlipscopeError: It cannot be loaded, and why.
        """
        await self._worker.loaded()

    def vocabulary(self) -> list[Piece]:
        """The exact bytes of every token id, in order of id. Waits for the engine where `ready` was not awaited."""
        return self._worker.engine().pieces()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer one request.

        Raises:
            httpx.ConnectError: The transport was closed.
            httpx.ReadError: It was closed while the request was computed.
            FlipscopeError: The engine could not be loaded.
        """
        if self._worker.closed:
            raise httpx.ConnectError("the embedded engine is closed", request=request)
        body = await request.aread()
        if self._served is not None and request.method == "GET":
            # Facts need no computing, so /health does not wait behind a long text.
            status, kind, answer = self._served.answer(request, body)
            return httpx.Response(status, headers={"content-type": kind}, content=answer, request=request)
        try:
            status, kind, answer = await self._worker.run(lambda engine: self._answer(engine, request, body))
        except InterruptedWorkError:
            raise httpx.ReadError("the embedded engine was closed", request=request) from None
        return httpx.Response(status, headers={"content-type": kind}, content=answer, request=request)

    async def aclose(self) -> None:
        """Interrupt what is computed and free the model. Idempotent."""
        await self._worker.close()

    def _answer(self, engine: Engine, request: httpx.Request, body: bytes) -> tuple[int, str, bytes]:
        """Status, content type and body of one answer, made in the engine's thread."""
        if self._served is None:
            self._served = _Served(engine)
        return self._served.answer(request, body)


_JSON = "application/json"
_EVENTS = "text/event-stream; charset=utf-8"
_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class _Served:
    """The routes of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._words = Words(engine.pieces())
        self._gets: dict[str, Callable[[], Any]] = {
            "/version": lambda: {"version": self._facts.version},
            "/health": lambda: "",
            "/ping": lambda: "",
            "/v1/models": self._models,
            "/metrics": lambda: _metrics(self._facts.settings),
        }
        self._posts: dict[str, Callable[[bytes], Any]] = {
            "/v1/completions": self._complete,
            "/tokenize": self._tokenise,
            "/detokenize": self._detokenise,
        }

    @property
    def _facts(self) -> EngineFacts:
        return self._engine.facts

    def answer(self, request: httpx.Request, body: bytes) -> tuple[int, str, bytes]:
        """Status, content type and body of the answer to a request."""
        try:
            answer = self._route(request, body)
        except RefusalError as refusal:
            return refusal.status, _JSON, msgspec.json.encode(refusal.body)
        if isinstance(answer, bytes):
            return 200, _EVENTS, answer
        if isinstance(answer, str):
            return 200, _TEXT, answer.encode()
        return 200, _JSON, msgspec.json.encode(answer)

    def _route(self, request: httpx.Request, body: bytes) -> Any:
        """Text, encoded events, or an object to encode as JSON."""
        path = request.url.path
        if path in self._gets and request.method == "GET":
            return self._gets[path]()
        if path in self._posts and request.method == "POST":
            if request.headers.get("content-type", _JSON).partition(";")[0].strip() != _JSON:
                raise RefusalError("Unsupported Media Type: Only 'application/json' is allowed")
            if len(body) > BODY_LIMIT:
                raise RouteError(413, "Request Entity Too Large")
            return self._posts[path](body)
        if path in self._gets or path in self._posts:
            raise RouteError(405, "Method Not Allowed")
        raise RouteError(404, "Not Found")

    def _models(self) -> dict[str, Any]:
        card = {
            "id": self._facts.name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "flipscope",
            "root": self._facts.root,
            "parent": None,
            "max_model_len": self._facts.context,
            "permission": [],
        }
        return {"object": "list", "data": [card]}

    def _complete(self, body: bytes) -> Any:
        request = read_request(body, CompletionRequest)
        made = complete(self._engine, self._words, request)
        name = f"cmpl-{uuid.uuid4().hex[:16]}"
        answer = {"id": name, "object": "text_completion", "created": int(time.time()), **made}
        return events(answer) if request.stream else answer

    def _tokenise(self, body: bytes) -> dict[str, Any]:
        request = read_request(body, TokenizeRequest)
        check_model(request.model, self._facts)
        if request.messages is not None:
            ids = self._engine.tokenise(self._rendered(request), special=bool(request.add_special_tokens))
        elif request.prompt is not None:
            ids = self._engine.tokenise(request.prompt, special=request.add_special_tokens is not False)
        else:
            raise RefusalError("1 validation error: prompt or messages must be given", kind="Bad Request")
        return {
            "count": len(ids),
            "max_model_len": self._facts.context,
            "tokens": ids,
            "token_strs": self._engine.spellings(ids) if request.return_token_strs else None,
        }

    def _rendered(self, request: TokenizeRequest) -> str:
        template = request.chat_template or self._facts.template
        if not template:
            raise RefusalError("This model has no chat template, so messages cannot be tokenized; send a prompt")
        if request.continue_final_message and request.add_generation_prompt:
            raise RefusalError("Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
        if not request.messages:
            raise RefusalError("1 validation error: messages must not be empty", kind="Bad Request")
        try:
            return render_chat(
                template,
                request.messages,
                specials=self._facts.specials,
                tools=request.tools,
                add_generation_prompt=request.add_generation_prompt,
                continue_final_message=request.continue_final_message,
                arguments=request.chat_template_kwargs,
            )
        except TemplateRefusedError as problem:
            raise RefusalError(f"The chat template failed: {problem}") from problem

    def _detokenise(self, body: bytes) -> dict[str, Any]:
        request = read_request(body, DetokenizeRequest)
        check_model(request.model, self._facts)
        return {"prompt": self._words.verbatim(request.tokens)}


def _metrics(settings: dict[str, str]) -> str:
    """Prometheus text with the one line a client reads: the resolved settings as labels."""
    labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in sorted(settings.items()))
    return (
        "# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig\n"
        "# TYPE vllm:cache_config_info gauge\n"
        f'vllm:cache_config_info{{{labels},engine="0"}} 1.0\n'
    )


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
