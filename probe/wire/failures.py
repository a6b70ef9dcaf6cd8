"""From an HTTP status and a body to the error a user can act on, in the server's own words."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from probe.errors import ServerDiedError, ServerError, ServerRefusedError

SENTENCE = 400
"""Characters of the server's own words that are repeated."""

BUSY_STATUSES = frozenset({429, 503})
"""Statuses after which the same request is sent again, later: the server did not begin with it."""

_DEAD = re.compile(
    r"engine ?core encountered an issue|engine ?dead|engine (loop )?(is dead|has died|is not running)", re.I
)
_TOP_K = re.compile(r"logprobs of (-?\d+).{0,60}?greater than max allowed: (\d+)", re.I | re.S)
_NAN = re.compile(r"out of range float values", re.I)
_TOO_LONG = re.compile(
    r"maximum context length|longer than the maximum model length|max_tokens must be at least 1, got 0", re.I
)
_VOCABULARY = re.compile(r"out of vocabulary", re.I)
_MODEL = re.compile(r"model .{0,300}does not exist", re.I | re.S)


class ServerBusyError(ServerRefusedError):
    """The server has no room for a request and kept saying so.

    Attributes:
        retry_after: Seconds that the server asked to wait, None when it did not say.
    """

    title = "The server is busy"
    retry_after: float | None = None


def sentence(body: bytes, redact: Callable[[str], str] = str) -> str:
    """The server's explanation out of an error body, in one line without credentials and control characters.

    Reads vLLM's `{"error": {"message": …}}`, older `{"message": …}`, FastAPI's `{"detail": … | [{"msg": …}]}` and
    whatever text a proxy sends.
    """
    text = body.decode("utf-8", "replace")
    try:
        found = _message(json.loads(text))
    except (ValueError, RecursionError):
        found = re.sub(r"<[^<>]*>", " ", text[: 8 * SENTENCE])
    return plain(redact(found))


def plain(text: str, limit: int = SENTENCE) -> str:
    """`text` as one printable line of at most `limit` characters."""
    shown = "".join(character if character.isprintable() else " " for character in text[: 4 * limit])
    line = " ".join(shown.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def refusal(
    status: int, body: bytes, *, request: str, redact: Callable[[str], str] = str, location: str = ""
) -> ServerError:
    """The error that stands for an answer that is not 200.

    Args:
        status: HTTP status; 0 or the code inside an event when the error came in a stream.
        body: The body as received, possibly cut.
        request: What was asked, as in `POST http://host/v1/completions`.
        redact: Strikes the credential out of the server's words.
        location: Where a redirect points.
    """
    words = sentence(body, redact)
    what = f"{request} → {status}" if status else request
    detail = f"{what}: {words}" if words else f"{what} with an empty body"
    if _DEAD.search(words):
        return ServerDiedError(detail, hint="Restart the server; its log names the cause. Capture again to resume.")
    if 300 <= status < 400:
        target = plain(redact(re.sub(r"//[^/@]*@", "//", location)))
        return ServerRefusedError(
            f"{what}: redirects to {target or 'nowhere'}",
            status=status,
            hint="Redirects are not followed, lest the key go elsewhere. Use that address if you trust it.",
        )
    if status in BUSY_STATUSES:
        return ServerBusyError(detail, status=status, hint="Lower --concurrency, or wait until others have finished.")
    title, hint = _advice(status, words)
    return ServerRefusedError(detail, status=status, hint=hint, title=title)


def _advice(status: int, words: str) -> tuple[str | None, str]:
    """Title (None: the class's own) and remedy for a refusal."""
    if found := _TOP_K.search(words):
        asked, allowed = found.groups()
        return "Too many alternatives asked for", (
            f"Start the server with --max-logprobs {asked} (or more), or ask for at most {allowed}: --top-k {allowed}."
        )
    if _NAN.search(words):
        return "The model produced NaN", (
            "A log-probability is not a number, so vLLM cannot write its answer. Look for broken weights or an "
            "overflow in a low-precision format; text from this server is garbage even where it answers."
        )
    if _TOO_LONG.search(words):
        return "The text is too long for this server", (
            "A scored text may have max_model_len - 1 tokens. Raise --max-model-len, or leave the prompt out."
        )
    if _VOCABULARY.search(words):
        return None, "The ids come from another tokenizer than the server's: check --tokenizer and the prompt set."
    if _MODEL.search(words):
        return None, "Name a model that the server lists under /v1/models: http://HOST:PORT?model=NAME"
    return None, _BY_STATUS.get(status, _BY_STATUS[0] if status >= 500 else "")


_BY_STATUS: Mapping[int, str] = {
    0: "The server failed at this request; its log names the cause.",
    401: "The server wants a key: set FLIPSCOPE_API_KEY or give --api-key-file.",
    403: "The key is not allowed to do this: check FLIPSCOPE_API_KEY or --api-key-file.",
    404: "There is no such route: is this a vLLM server, and is the address's prefix right?",
    405: "There is no such route: is this a vLLM server, and is the address's prefix right?",
    413: "A proxy before the server limits the size of requests.",
    502: "A proxy before the server does not reach it: is the server up?",
    504: "A proxy before the server gave up waiting: raise its timeout, or go past it.",
}


def _message(answer: Any) -> str:
    """The explanation in a decoded error body."""
    if isinstance(answer, str):
        return answer
    if isinstance(answer, list):
        return "; ".join(_message(part) for part in answer[:5])
    if isinstance(answer, dict):
        for key in ("error", "message", "detail", "msg"):
            if answer.get(key):
                return _message(answer[key])
    return json.dumps(answer)
