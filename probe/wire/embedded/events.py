"""A finished completion as the server-sent events vLLM would have streamed it in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec


def events(answer: Mapping[str, Any]) -> bytes:
    """All events of an answer, one token each, `[DONE]` at the end.

    They are made when the last token is known: what a client gains is vLLM's format, not an earlier first token.

    Args:
        answer: A completion as `complete` makes it, with `token_ids` in every choice.
    """
    head = {name: answer[name] for name in ("id", "object", "created", "model", "system_fingerprint")}
    lines = [
        b"data: " + msgspec.json.encode({**head, "choices": [piece], "usage": None})
        for choice in answer["choices"]
        for piece in _pieces(choice)
    ]
    return b"\n\n".join([*lines, b"data: [DONE]", b""])


def _pieces(choice: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A choice token by token; the prompt's ids come with the first, the reason and the text with the last."""
    last = len(choice["token_ids"]) - 1
    steps = choice["logprobs"]
    for place, token in enumerate(choice["token_ids"]):
        yield {
            "index": choice["index"],
            "text": choice["text"] if place == last else "",
            "logprobs": steps and {name: [values[place]] for name, values in steps.items()},
            "finish_reason": choice["finish_reason"] if place == last else None,
            "stop_reason": None,
            "prompt_token_ids": choice["prompt_token_ids"] if place == 0 else None,
            "token_ids": [token],
        }
