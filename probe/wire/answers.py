"""Bodies of /v1/completions to streams. Pure functions; every byte is untrusted.

vLLM's shape: `choices[0].prompt_logprobs` holds one object per prompt token (the first is null), keyed by token id, the
actual token first; `choices[0].logprobs.top_logprobs` holds one per generated token, keyed `token_id:N` when asked to.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from probe.errors import ServerAnswerError
from probe.stream import TokenStream
from probe.wire.failures import plain
from probe.wire.limits import MB, widest_row
from probe.wire.rows import Listing, best_words, build_stream, token_array

TOKEN_KEY = "token_id:"
_LOGPROB_KEY = b'"logprob":'
_SMALL_ENOUGH = 16 * MB
"""Below this a body of nothing but `{},{},…` unfolds to 0.35 GB at most, so it need not be counted first."""


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """One text as a runtime sees it.

    Attributes:
        stream: Forced stream from position 0, one row per token.
        words: The server's text of every listed id, when asked for.
        seconds: Wall time of the request.
        evidence: What is odd about the answer, by name: a sentence each.
        fingerprint: The server's `system_fingerprint`, `""` without one.
    """

    stream: TokenStream
    words: dict[int, str] = field(default_factory=dict)
    seconds: float = 0.0
    evidence: dict[str, str] = field(default_factory=dict)
    fingerprint: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Generated:
    """A runtime's own greedy text.

    Attributes:
        stream: Generated stream that starts where the prompt ends.
        finish_reason: `stop` or `length`, `""` when the server does not say.
        cut: Whether the server ended it before the asked number of tokens although the text was not over.
        text: The server's text of it.
        words: Always empty: with ids as keys the server sends no text per alternative. Ask `RuntimeClient.words`.
        seconds: Wall time of the request.
        evidence: What is odd about the answer, by name: a sentence each.
        fingerprint: The server's `system_fingerprint`, `""` without one.
    """

    stream: TokenStream
    finish_reason: str = ""
    cut: bool = False
    text: str = ""
    words: dict[int, str] = field(default_factory=dict)
    seconds: float = 0.0
    evidence: dict[str, str] = field(default_factory=dict)
    fingerprint: str = ""


class Listed(msgspec.Struct, gc=False):
    """One alternative. Its text is skipped: that saves a quarter of the decoding time."""

    logprob: float | None
    rank: int | None = None


class Worded(msgspec.Struct, gc=False):
    """One alternative with its text."""

    logprob: float | None
    rank: int | None = None
    decoded_token: str | None = None


class _Choice(msgspec.Struct):
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: list[dict[int, Listed] | None] | None = None


class _WordedChoice(msgspec.Struct):
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: list[dict[int, Worded] | None] | None = None


class _Score(msgspec.Struct):
    choices: tuple[_Choice]
    system_fingerprint: str | None = None


class _WordedScore(msgspec.Struct):
    choices: tuple[_WordedChoice]
    system_fingerprint: str | None = None


class Steps(msgspec.Struct):
    """Log-probabilities of generated tokens, in the legacy completions format."""

    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float | None] | None] | None = None


class Continuation(msgspec.Struct):
    """The one choice of a generation, or a piece of it in an event stream."""

    text: str | None = None
    logprobs: Steps | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    finish_reason: str | None = None


class _Generation(msgspec.Struct):
    choices: tuple[Continuation]
    system_fingerprint: str | None = None


SCORE_DECODER = msgspec.json.Decoder(_Score)
"""The typed decoding alone, six times as fast as json's."""
_WORDED = msgspec.json.Decoder(_WordedScore)
_GENERATION = msgspec.json.Decoder(_Generation)
_Answer = TypeVar("_Answer")


def decode_as(decoder: msgspec.json.Decoder[_Answer], body: bytes | bytearray, what: str) -> _Answer:
    """Decode a body of one known type.

    Raises:
        ServerAnswerError: The body is no JSON of this type.
    """
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise ServerAnswerError(f"the answer to {what}: {plain(str(problem))}", hint=_NOT_VLLM) from problem
    except RecursionError:
        raise ServerAnswerError(f"the answer to {what} is nested too deeply", hint=_NOT_VLLM) from None


def decode_score(body: bytes, ids: Sequence[int], k: int, *, words: bool = False) -> Scored:
    """Read the answer to a request with `prompt_logprobs`.

    Args:
        body: The body of a 200.
        ids: The token ids that were sent.
        k: Alternatives asked for.
        words: Whether to decode the server's text of every id as well.

    Raises:
        ServerAnswerError: The body is no such answer, or an answer to something else: other ids, missing or too many
            rows, absurd numbers. Rows that are merely short, repeat an id or hold null are kept and noted as evidence.
    """
    tokens = token_array(ids, "the request")
    most = len(tokens) * widest_row(k)
    entries = body.count(_LOGPROB_KEY)
    if entries > most or (len(body) > _SMALL_ENOUGH and body.count(b"{") > 16 * most):
        raise ServerAnswerError(
            f"the answer lists {entries} log-probabilities where about {len(tokens) * (k + 1)} were asked for"
        )
    answer: _Score | _WordedScore = (
        decode_as(_WORDED, body, "scoring") if words else decode_as(SCORE_DECODER, body, "scoring")
    )
    choice = answer.choices[0]
    _same_ids(choice.prompt_token_ids, tokens)
    listed: Any = choice.prompt_logprobs
    if listed is None:
        raise ServerAnswerError("the answer has no prompt_logprobs although they were asked for", hint=_NO_ROWS)
    if len(listed) != len(tokens):
        raise ServerAnswerError(
            f"prompt_logprobs has {len(listed)} rows for {len(tokens)} tokens",
            hint="Rows cannot be told apart, so none is used. Known where a server loses rows of a chunked prefill.",
        )
    first, rows = listed[0] if listed else None, [row or {} for row in listed]
    if rows:
        rows[0] = {}
    listing = _flatten(rows)
    if first:
        listing.evidence["first-row"] = f"position 0 lists {len(first)} ids although nothing stands before it"
    if entries > len(listing.ids) + len(first or ()):
        listing.note("duplicate-ids", *_repeated(body))
    stream = build_stream("forced", 0, tokens, k, listing, lambda index: rows[index][int(tokens[index])].rank)
    found = best_words((token, entry.decoded_token) for row in rows for token, entry in row.items()) if words else {}
    return Scored(stream, found, evidence=listing.evidence, fingerprint=answer.system_fingerprint or "")


def decode_generate(body: bytes, prompt: Sequence[int], n: int, k: int) -> Generated:
    """Read the answer to a greedy generation with `logprobs` and `return_tokens_as_token_ids`.

    Args:
        body: The body of a 200.
        prompt: The token ids that were sent.
        n: Tokens asked for.
        k: Alternatives asked for.

    Raises:
        ServerAnswerError: The body is no such answer, rows are keyed by text, or counts do not agree.
    """
    answer = decode_as(_GENERATION, body, "generation")
    return generated_from(answer.choices[0], prompt, n, k, answer.system_fingerprint or "")


def generated_from(choice: Continuation, prompt: Sequence[int], n: int, k: int, fingerprint: str) -> Generated:
    """A generation out of its one choice; raises as `decode_generate` does."""
    _same_ids(choice.prompt_token_ids, token_array(prompt, "the request"))
    steps = choice.logprobs
    if choice.token_ids is None or steps is None or steps.top_logprobs is None or steps.tokens is None:
        raise ServerAnswerError("the answer lacks token_ids or logprobs although they were asked for", hint=_NO_ROWS)
    if choice.finish_reason in ("abort", "error"):
        raise ServerAnswerError(
            f"the server ended the generation after {len(choice.token_ids)} tokens with {choice.finish_reason!r}",
            hint="Its log names the cause.",
        )
    tokens = token_array(choice.token_ids, "token_ids")
    sizes = {len(tokens), len(steps.tokens), len(steps.top_logprobs), len(steps.token_logprobs or steps.tokens)}
    if len(sizes) > 1 or len(tokens) > n:
        raise ServerAnswerError(
            f"{len(tokens)} token_ids, {len(steps.tokens)} tokens, {len(steps.token_logprobs or ())} token_logprobs "
            f"and {len(steps.top_logprobs)} rows came for at most {n} tokens"
        )
    rows = [_ids_of(row or {}, position) for position, row in enumerate(steps.top_logprobs)]
    named = [_id_of(token, position) for position, token in enumerate(steps.tokens)]
    listing = Listing(
        counts=np.array([len(row) for row in rows], np.int64),
        ids=_integers(list(chain.from_iterable(rows))),
        logprobs=_floats([value for row in rows for value in row.values()]),
    )
    listing.note("tokens-differ", _integers(named) != tokens, "tokens and token_ids name two tokens")
    stream = build_stream("generated", len(prompt), tokens, k, listing)
    _compare_chosen(listing, stream, steps.token_logprobs)
    reason = choice.finish_reason or ""
    return Generated(
        stream,
        finish_reason=reason,
        cut=reason != "stop" and len(tokens) < n,
        text=choice.text or "",
        evidence=listing.evidence,
        fingerprint=fingerprint,
    )


_NOT_VLLM = "Is this a vLLM server? A proxy in between may have cut or changed the answer."
_NO_ROWS = "The server ignored a field of the request: it is older than vLLM 0.10 or no vLLM at all."


def _same_ids(returned: list[int] | None, sent: NDArray[np.int32]) -> None:
    """Refuse an answer about another text than the one that was sent."""
    if returned is None:
        raise ServerAnswerError(
            "the answer has no prompt_token_ids, so it cannot be told which text was scored", hint=_NO_ROWS
        )
    got = token_array(returned, "prompt_token_ids")
    if np.array_equal(got, sent):
        return
    if len(got) != len(sent):
        where = f"{len(got)} tokens came back for {len(sent)} sent"
    else:
        place = int(np.flatnonzero(got != sent)[0])
        where = f"token {place} came back as {int(got[place])}, sent as {int(sent[place])}"
    raise ServerAnswerError(
        f"prompt_token_ids is not what was sent: {where}",
        hint="The server shortens or rewrites prompts (truncate_prompt_tokens, a default of its own, a gateway).",
    )


def _flatten(rows: list[dict[int, Any]]) -> Listing:
    """Rows of typed entries as flat arrays."""
    return Listing(
        counts=np.array([len(row) for row in rows], np.int64),
        ids=_integers(list(chain.from_iterable(rows))),
        logprobs=_floats([entry.logprob for row in rows for entry in row.values()]),
    )


def _integers(values: list[int]) -> NDArray[np.int64]:
    try:
        return np.array(values, np.int64)
    except OverflowError:
        raise ServerAnswerError("a token id has more than 63 bits") from None


def _floats(values: list[float | None]) -> NDArray[np.float64]:
    """Numbers as float64, null as NaN: numpy's own reading of None, and twice as fast here as `fromiter`."""
    return np.array(values, np.float64)


def _id_of(key: str, position: int) -> int:
    """Token id out of `token_id:N`."""
    number = key.removeprefix(TOKEN_KEY)
    if number is key or not (number.isascii() and number.isdigit() and len(number) <= 10):
        raise ServerAnswerError(
            f"row {position} is keyed by text ({plain(key, 40)!r}), so alternatives of equal text are lost",
            hint="The server ignores return_tokens_as_token_ids. Rows keyed by text are not used.",
        )
    return int(number)


def _ids_of(row: dict[str, float | None], position: int) -> dict[int, float | None]:
    return {_id_of(key, position): value for key, value in row.items()}


def _compare_chosen(listing: Listing, stream: TokenStream, chosen: list[float | None] | None) -> None:
    """Note where the server gives the sampled token two different log-probabilities."""
    if not chosen:
        return
    with np.errstate(over="ignore"):
        given = _floats(chosen).astype(np.float32)
    differs = (given != stream.logprob) & ~(np.isnan(given) & np.isnan(stream.logprob))
    listing.note("chosen-differs", differs, "token_logprobs and the row disagree on the chosen token")


def _repeated(body: bytes) -> tuple[NDArray[np.int64], str]:
    """Positions whose row names an id twice, found by a slow second reading; the last of its values is kept."""

    class Pairs(list[tuple[str, Any]]):
        pass

    found: Any = dict(json.loads(body, object_pairs_hook=Pairs))
    rows = dict(found["choices"][0])["prompt_logprobs"]
    repeated = [index for index, row in enumerate(rows) if row and len({key for key, _ in row}) < len(row)]
    return np.asarray(repeated, np.int64), "an id is listed twice; the last of its values is kept"
