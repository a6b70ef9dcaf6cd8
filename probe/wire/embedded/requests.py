"""What may be asked of the embedded engine, checked as vLLM checks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from probe.wire.embedded.engine import EngineFacts
from probe.wire.embedded.refusal import RefusalError, bad_value

Request = TypeVar("Request", bound=msgspec.Struct)


class CompletionRequest(msgspec.Struct, kw_only=True):
    """POST /v1/completions. Fields vLLM has and this engine has not are refused, unknown ones ignored as vLLM does."""

    prompt: Any
    model: str | None = None
    max_tokens: int | None = 16
    temperature: float | None = None
    logprobs: int | bool | None = None
    prompt_logprobs: int | bool | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    add_special_tokens: bool = True
    ignore_eos: bool = False
    stop_token_ids: list[int] | None = None
    seed: int | None = None
    n: int = 1
    stream: bool | None = False
    echo: bool | None = False
    stop: str | list[str] | None = None
    min_tokens: int = 0
    frequency_penalty: float | None = 0.0
    presence_penalty: float | None = 0.0
    repetition_penalty: float | None = 1.0
    logit_bias: dict[str, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    truncate_prompt_tokens: int | None = None
    logprob_token_ids: list[int] | None = None


class TokenizeRequest(msgspec.Struct, kw_only=True):
    """POST /tokenize, with `prompt` or with `messages`."""

    model: str | None = None
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    tools: list[Any] | None = None
    add_special_tokens: bool | None = None
    """vLLM's default: true for a prompt, false for messages, whose template writes its own."""
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    return_token_strs: bool | None = False


class DetokenizeRequest(msgspec.Struct, kw_only=True):
    """POST /detokenize."""

    tokens: list[int]
    model: str | None = None


_NOT_HERE: dict[str, object] = {
    "echo": False,
    "stop": None,
    "min_tokens": 0,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "repetition_penalty": 1.0,
    "logit_bias": None,
    "allowed_token_ids": None,
    "bad_words": None,
    "truncate_prompt_tokens": None,
    "logprob_token_ids": None,
}
"""Fields that would change the answer on a vLLM server, with the value that does nothing."""


def read_request(body: bytes, kind: type[Request]) -> Request:
    """Decode a body.

    Raises:
        RefusalError: It is no JSON or a field has the wrong type.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as problem:
        for name in ("prompt_logprobs", "logprobs"):
            if str(problem).endswith(f"`$.{name}`"):
                raise RefusalError(f"`{name}` must be an integer.") from problem
        raise RefusalError(f"1 validation error: {problem}", kind="Bad Request") from problem
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise RefusalError(f"1 validation error: json_invalid: {problem}", kind="Bad Request") from problem


def check_model(name: str | None, facts: EngineFacts) -> None:
    """Refuse a model that is not the loaded one."""
    if name is not None and name != facts.name:
        raise RefusalError(
            f"The model `{name}` does not exist. Valid aliases: {facts.name}.",
            status=404,
            kind="NotFoundError",
            param="model",
        )


def check_completion(request: CompletionRequest, facts: EngineFacts) -> None:
    """Refuse what this engine cannot answer truly.

    Raises:
        RefusalError: A field asks for sampling, for more alternatives than allowed, or for something not built.
    """
    for name, nothing in _NOT_HERE.items():
        value = getattr(request, name)
        if value is not None and value != nothing and value != [] and value != {}:
            raise bad_value(f"The embedded engine does not support {name}.", name, value)
    if request.temperature != 0:
        raise bad_value(
            "The embedded engine is greedy only: temperature must be 0.", "temperature", request.temperature
        )
    if request.n != 1:
        raise RefusalError(f"n must be 1 when using greedy sampling, got {request.n}.")
    if request.max_tokens is not None and request.max_tokens < 1:
        raise bad_value(f"max_tokens must be at least 1, got {request.max_tokens}.", "max_tokens", request.max_tokens)
    if request.stream and (alternatives(request.prompt_logprobs, facts) or 0) > 0:
        raise RefusalError("`prompt_logprobs` are not available when `stream=True`.")
    for name, kind in (("prompt_logprobs", "prompt"), ("logprobs", "sample")):
        asked = getattr(request, name)
        if asked is not None and asked < 0 and asked != -1:
            raise RefusalError(f"`{name}` must be a positive value or -1.")
        k = alternatives(asked, facts)
        if k is not None and k > facts.max_logprobs:
            raise bad_value(
                f"Requested {kind} logprobs of {k}, which is greater than max allowed: {facts.max_logprobs}",
                name,
                asked,
            )


def alternatives(asked: int | bool | None, facts: EngineFacts) -> int | None:
    """How many alternatives a row gets: None for no rows, -1 means the vocabulary, true means 1 and false none."""
    if asked is None or asked is False:
        return None
    return facts.vocabulary if asked == -1 else int(asked)


def prompt_ids(prompt: Any, facts: EngineFacts, tokenise: Callable[[str], list[int]]) -> list[list[int]]:
    """The prompts of a request as token ids: text, ids, or a list of either.

    Raises:
        RefusalError: A prompt is empty, too long, of the wrong type or holds an id outside the vocabulary.
    """
    if prompt == "" or prompt is None:
        raise RefusalError("Either prompt or prompt_embeds must be provided and non-empty.")
    if prompt == []:
        raise RefusalError("You must pass at least one prompt")
    several = isinstance(prompt, list) and isinstance(prompt[0], (str, list))
    prompts = [_ids(part, tokenise) for part in (prompt if several else [prompt])]
    for ids in prompts:
        if not ids:
            raise RefusalError("You must pass at least one prompt")
        for token in ids:
            if not 0 <= token < facts.vocabulary:
                raise RefusalError(f"Token id {token} is out of vocabulary")
        if len(ids) > facts.context:
            raise RefusalError(
                f"This model's maximum context length is {facts.context} tokens. However, your prompt contains at"
                f" least {len(ids)} input tokens, which exceeds this limit even without any output tokens. Please"
                f" reduce the length of the input prompt. (parameter=input_tokens, value={len(ids)})",
                param="input_tokens",
            )
        if len(ids) == facts.context:
            raise bad_value("max_tokens must be at least 1, got 0.", "max_tokens", 0)
    return prompts


def _ids(part: Any, tokenise: Callable[[str], list[int]]) -> list[int]:
    if isinstance(part, str):
        return tokenise(part)
    if isinstance(part, list) and all(type(token) is int for token in part):
        if any(token < 0 for token in part):
            raise RefusalError("1 validation error: token ids must not be negative", kind="Bad Request")
        return part
    raise RefusalError("1 validation error: prompt must be text, token ids or a list of them", kind="Bad Request")
