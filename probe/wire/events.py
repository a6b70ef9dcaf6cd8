"""Server-sent events of /v1/completions, joined to one generation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from probe.errors import ServerAnswerError, ServerUnreachableError
from probe.wire.answers import Continuation, Steps, decode_as
from probe.wire.failures import refusal

LONGEST_EVENT = 4 * 1024 * 1024
"""Bytes of one line; an event with 20 alternatives has 1.5 kB."""


class Event(msgspec.Struct):
    """One `data:` line."""

    choices: list[Continuation] = []
    system_fingerprint: str | None = None
    error: Any = None


_EVENT = msgspec.json.Decoder(Event)


class Joined:
    """A generation that grows event by event.

    Attributes:
        choice: What has come so far.
        fingerprint: `system_fingerprint` of the last event that had one.
        done: Whether `[DONE]` was seen.
    """

    def __init__(self, request: str, redact: Callable[[str], str]) -> None:
        self._ids: list[int] = []
        self._tokens: list[str] = []
        self._chosen: list[float | None] = []
        self._rows: list[dict[str, float | None] | None] = []
        steps = Steps(self._tokens, self._chosen, self._rows)
        self.choice = Continuation(text="", logprobs=steps, token_ids=self._ids)
        self.fingerprint = ""
        self.done = False
        self._request = request
        self._redact = redact

    def add(self, line: bytes) -> int:
        """Take in one line of the stream.

        Returns:
            How many tokens have come so far.

        Raises:
            ServerError: The line is an error event; a normal `[DONE]` follows such a one, so it must not be missed.
        """
        data = line.removeprefix(b"data:").strip()
        if not line.startswith(b"data:") or not data:
            return len(self._ids)
        if data == b"[DONE]":
            self.done = True
            return len(self._ids)
        event = decode_as(_EVENT, data, "a streamed generation")
        if event.error is not None:
            code = event.error.get("code") if isinstance(event.error, dict) else None
            status = code if isinstance(code, int) and 100 <= code < 600 else 0
            raise refusal(status, bytes(data), request=f"{self._request} (in its stream)", redact=self._redact)
        self.fingerprint = event.system_fingerprint or self.fingerprint
        for piece in event.choices:
            self._join(piece)
        return len(self._ids)

    def finish(self) -> Continuation:
        """The whole generation.

        Raises:
            ServerUnreachableError: The stream ended before it was over.
        """
        if not self.done or self.choice.finish_reason is None:
            count = len(self._ids)
            raise ServerUnreachableError(
                f"{self._request}: the stream ended after {count} tokens without saying that it was over",
                hint="The server or a proxy closed the connection. Capture again to resume.",
            )
        return self.choice

    def _join(self, piece: Continuation) -> None:
        whole = self.choice
        whole.text = (whole.text or "") + (piece.text or "")
        whole.finish_reason = piece.finish_reason or whole.finish_reason
        if piece.prompt_token_ids is not None:
            whole.prompt_token_ids = piece.prompt_token_ids
        self._ids.extend(piece.token_ids or ())
        if piece.logprobs is not None:
            self._tokens.extend(piece.logprobs.tokens or ())
            self._chosen.extend(piece.logprobs.token_logprobs or ())
            self._rows.extend(piece.logprobs.top_logprobs or ())


async def lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Cut a byte stream into lines.

    Raises:
        ServerAnswerError: A line does not end.
    """
    rest = bytearray()
    async for chunk in chunks:
        rest += chunk
        *whole, tail = rest.split(b"\n")
        for line in whole:
            yield bytes(line).rstrip(b"\r")
        rest = bytearray(tail)
        if len(rest) > LONGEST_EVENT:
            raise ServerAnswerError(f"an event of more than {LONGEST_EVENT} bytes came in a streamed generation")
    if rest:
        yield bytes(rest)
