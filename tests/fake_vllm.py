"""A server that answers vLLM's routes with vLLM's shapes from a deterministic toy distribution.

Not a result of anything: it exists so that tests of orchestration (resume, kill, refusal) run over real HTTP in
milliseconds. Real vLLM is in the live tests.
"""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

import numpy as np

VOCABULARY = 300
"""Ids 0–255 are bytes, the rest are words; 299 ends a text."""
END = VOCABULARY - 1
MAX_MODEL_LEN = 512


def word(token: int) -> str:
    """What the toy server says a token is."""
    if token == END:
        return "<|end|>"
    return bytes([token]).decode("ascii", "replace") if token < 128 else "" if token < 256 else f" word{token}"


class ToyModel:
    """Log-probabilities that depend on the last two tokens; `noise` moves them as a quantisation would."""

    def __init__(self, noise: float) -> None:
        self.noise = noise

    def logprobs(self, context: list[int]) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        """float32 `[VOCABULARY]` after `context`."""
        key = [len(context), *context[-2:]]
        logits = np.random.default_rng(key).normal(size=VOCABULARY) * 3
        logits[END] = -9.0
        if self.noise:
            logits += np.random.default_rng([7, *key]).normal(size=VOCABULARY) * self.noise
        return np.asarray(logits - np.log(np.exp(logits).sum()), dtype=np.float32)


def entry(logprob: float, rank: int, token: int) -> dict[str, Any]:
    """One alternative of a prompt row."""
    return {"logprob": float(logprob), "rank": rank, "decoded_token": word(token)}


class FakeServer:
    """The toy server on a port of its own.

    Attributes:
        requests: (path, body) of every request, in order of arrival.
        refuse: Prompt lengths that are refused with 400.
        delay: Seconds that every completion takes.
        dead: Answer 500 as an engine that died does.
        busiest: Most completions in flight at once.
        crowded: How many generations began while another completion was in flight, or had one begin beside them.
        fingerprint: What every answer says about the configuration.
    """

    def __init__(self, noise: float = 0.0) -> None:
        self.model = ToyModel(noise)
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.refuse: set[int] = set()
        self.delay = 0.0
        self.dead = False
        self.busiest = 0
        self.crowded = 0
        self.fingerprint = f"vllm-0.32.0-{abs(hash(noise)) % 10**8:08d}"
        self._in_flight: list[bool] = []  # of each completion under way: is it a generation?
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # head and body in one packet: apart they wait 40 ms for a delayed acknowledgement

            def do_GET(self) -> None:
                self.answer({})

            def do_POST(self) -> None:
                self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def answer(self, body: dict[str, Any]) -> None:
                status, data = outer.handle(self.path, body)
                payload = data if isinstance(data, bytes) else json.dumps(data).encode()
                try:
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(payload)))
                    self.end_headers()
                    self.wfile.write(payload)
                except OSError:  # the client was killed: that is what some tests do
                    self.close_connection = True

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that vanishes is no error here."""

        self._http = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> FakeServer:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._http.shutdown()
        self._http.server_close()

    def completions(self) -> list[dict[str, Any]]:
        """Bodies of all completion requests."""
        return [body for path, body in self.requests if path == "/v1/completions"]

    def handle(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Status and body for a request."""
        with self._lock:
            self.requests.append((path, body))
        if path != "/v1/completions":
            return self._route(path, body)
        generates = body.get("logprobs") is not None
        with self._lock:
            self.crowded += bool(self._in_flight) and (generates or any(self._in_flight))
            self._in_flight.append(generates)
            self.busiest = max(self.busiest, len(self._in_flight))
        try:
            return self._route(path, body)
        finally:
            with self._lock:
                self._in_flight.remove(generates)

    def _route(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path == "/version":
            return 200, {"version": "0.32.0"}
        if path == "/health":
            return 200, b""
        if path == "/v1/models":
            model = {"id": "toy", "object": "model", "root": "toy", "max_model_len": MAX_MODEL_LEN, "owned_by": "vllm"}
            return 200, {"object": "list", "data": [model]}
        if path == "/tokenize":
            text = body.get("prompt") or "".join(m["content"] for m in body.get("messages", []))
            ids = list(text.encode())
            return 200, {"count": len(ids), "max_model_len": MAX_MODEL_LEN, "tokens": ids, "token_strs": None}
        if path == "/v1/completions":
            time.sleep(self.delay)
            return self._complete(body)
        return 404, {"detail": "Not Found"}

    def _complete(self, body: dict[str, Any]) -> tuple[int, Any]:
        if self.dead:
            message = "EngineCore encountered an issue. See stack trace (above) for the root cause."
            return 500, {"error": {"message": message, "type": "InternalServerError", "param": None, "code": 500}}
        ids: list[int] = body["prompt"]
        if len(ids) in self.refuse:
            message = f"this toy refuses prompts of {len(ids)} tokens"
            return 400, {"error": {"message": message, "type": "BadRequestError", "param": None, "code": 400}}
        choice: dict[str, Any] = {"index": 0, "text": "", "logprobs": None, "stop_reason": None}
        choice |= {"prompt_token_ids": ids, "prompt_logprobs": None, "finish_reason": "length"}
        k = body.get("prompt_logprobs")
        if k is not None:
            choice["prompt_logprobs"] = [None, *(self._row(ids[:i], ids[i], k) for i in range(1, len(ids)))]
        budget = min(body["max_tokens"], MAX_MODEL_LEN - len(ids))
        text = list(ids)
        rows = []
        for _ in range(budget):
            logprobs = self.model.logprobs(text)
            token = int(np.argmax(logprobs))
            order = np.argsort(-logprobs, kind="stable")[: body.get("logprobs") or 0]
            rows.append((token, float(logprobs[token]), {f"token_id:{i}": float(logprobs[i]) for i in order}))
            text.append(token)
            if token == END:
                choice["finish_reason"] = "stop"
                break
        choice["token_ids"] = text[len(ids) :]
        if body.get("logprobs") is not None:
            choice["logprobs"] = {
                "text_offset": [0] * len(rows),
                "tokens": [f"token_id:{token}" for token, _, _ in rows],
                "token_logprobs": [logprob for _, logprob, _ in rows],
                "top_logprobs": [top for _, _, top in rows],
            }
        usage = {"prompt_tokens": len(ids), "completion_tokens": len(rows), "total_tokens": len(text)}
        answer = {"id": "cmpl-toy", "object": "text_completion", "created": 0, "model": "toy", "choices": [choice]}
        return 200, answer | {"usage": usage, "system_fingerprint": self.fingerprint}

    def _row(self, context: list[int], actual: int, k: int) -> dict[str, Any]:
        logprobs = self.model.logprobs(context)
        order = np.argsort(-logprobs, kind="stable")
        rank = {int(token): place + 1 for place, token in enumerate(order)}
        listed = [actual, *(int(token) for token in order[:k] if token != actual)]
        return {str(token): entry(logprobs[token], rank[token], token) for token in listed}
