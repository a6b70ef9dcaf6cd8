"""Chat messages to the text a model was trained on, by the template that came with its weights."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any

from probe.errors import EngineMissingError


class TemplateRefusedError(Exception):
    """The template does not take these messages; the text says why."""


def render_chat(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    specials: Mapping[str, str],
    tools: Sequence[Any] | None = None,
    add_generation_prompt: bool = True,
    continue_final_message: bool = False,
    arguments: Mapping[str, Any] | None = None,
) -> str:
    """Render messages as transformers renders them.

    Args:
        template: Jinja source, untrusted: it runs in Jinja's sandbox.
        messages: Role and content each; content may be text or a list of text parts.
        specials: `bos_token`, `eos_token`, … by name.
        tools: Function signatures for templates that know them.
        add_generation_prompt: Whether the text ends where the assistant begins.
        continue_final_message: Whether the text ends inside the last message.
        arguments: Further names the template may use.

    Raises:
        TemplateRefusedError: The template failed or refused.
        EngineMissingError: Jinja is not installed.
    """
    try:
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise EngineMissingError(
            "Chat messages need jinja2, which is not installed", hint="pip install 'flipscope[embedded]'"
        ) from None

    def refuse(reason: str) -> None:
        raise TemplateError(reason)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().astimezone().strftime(form)
    flat = [_flattened(message) for message in messages]
    try:
        text: str = environment.from_string(template).render(
            messages=flat,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            **{**specials, **(arguments or {})},
        )
    except (TemplateError, TypeError, ValueError, KeyError, OverflowError, RecursionError, AttributeError) as problem:
        raise TemplateRefusedError(str(problem) or type(problem).__name__) from problem
    if continue_final_message:
        final = str(flat[-1].get("content") or "").strip()
        end = text.rfind(final)
        if not final or end < 0:
            raise TemplateRefusedError("the last message does not occur in the rendered text")
        text = text[: end + len(final)]
    return text


def _flattened(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message with its content as one text: parts are joined by line breaks, as vLLM joins them."""
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, Mapping) else None for part in content]
        if not all(isinstance(part, str) for part in parts):
            raise TemplateRefusedError("content parts other than text are not supported")
        content = "\n".join(part for part in parts if part is not None)
    return {**message, "content": content}


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **more: Any) -> str:
    """JSON as transformers' templates get it: not escaped for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **more)
