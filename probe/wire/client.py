"""One runtime over HTTP: facts, tokens, scoring, greedy generation. vLLM's dialect of the OpenAI API."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, Self

import httpx
import msgspec

from probe.errors import InputError, ServerAnswerError, ServerError, ServerRefusedError
from probe.records import Piece, ServerFacts
from probe.wire import facts as told
from probe.wire.address import Address
from probe.wire.answers import Generated, Scored, decode_as, decode_generate, decode_score, generated_from
from probe.wire.events import Joined, lines
from probe.wire.exchange import Exchange
from probe.wire.limits import (
    METRICS_BYTES,
    SMALL_BYTES,
    Limits,
    generate_bytes,
    score_bytes,
    score_cost,
    stream_bytes,
    tokens_bytes,
)
from probe.wire.rows import LARGEST_ID, token_array

__all__ = ["Generated", "RuntimeClient", "Scored", "VocabularySource"]

COMPLETIONS = "/v1/completions"
PROBE_IDS = (0, 1, 2)
"""Tokens of the probe request: every vocabulary has them."""

LARGE_VOCABULARY = 152_000
"""Assumed for memory estimates where the number of token ids is unknown: Qwen's; most models have fewer."""

GREEDY: Mapping[str, Any] = {
    "temperature": 0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
"""Sent with every generation: what is left out comes from the model's generation_config.json, which samples, and in
some models punishes repetition even at temperature 0."""


class VocabularySource(Protocol):
    """A runtime in this process that can list its tokens' bytes."""

    def vocabulary(self) -> list[Piece]:
        """The piece of every token id, in order."""
        ...


class _Tokens(msgspec.Struct):
    tokens: list[int]
    count: int | None = None


class _Text(msgspec.Struct):
    prompt: str


_TOKENS = msgspec.json.Decoder(_Tokens)
_TEXT = msgspec.json.Decoder(_Text)


def _silent(_: str) -> None:
    """Default notice: nobody listens."""


class RuntimeClient:
    """One server. Use it as an async context manager, or let `probe.wire.connect.connect` make it.

    Attributes:
        address: Where the server is.
        engine: The engine itself when it runs in this process, so that token bytes can be had without a tokenizer.
    """

    def __init__(
        self,
        address: Address,
        *,
        http: httpx.AsyncClient,
        limits: Limits | None = None,
        notice: Callable[[str], None] = _silent,
        engine: VocabularySource | None = None,
    ) -> None:
        self.address = address
        self.engine = engine
        self._limits = limits or Limits()
        self._http = http
        self._notice = notice
        self._exchange = Exchange(address, http, self._limits, notice)
        self._facts: ServerFacts | None = None
        self._facts_lock = asyncio.Lock()
        self._fingerprint = ""
        self._warned = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    def __repr__(self) -> str:
        return f"RuntimeClient({self.address.url!r})"

    async def facts(self) -> ServerFacts:
        """What the server says about itself, asked once; sends one token through the model for the fingerprint.

        Raises:
            ServerError: /v1/models or the model itself does not answer. Everything else may be missing.
        """
        async with self._facts_lock:
            if self._facts is None:
                self._facts = await self._ask_facts()
            return self._facts

    async def tokenize(
        self,
        *,
        text: str | None = None,
        messages: Sequence[Mapping[str, Any]] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        add_special_tokens: bool = True,
        template: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Token ids of a text, or of messages through the server's chat template.

        Args:
            text: Plain text; special tokens in it are read as such.
            messages: Chat messages, instead of a text.
            tools: Tool descriptions for the template.
            add_generation_prompt: Whether the template opens the assistant's turn.
            add_special_tokens: Whether a plain text gets the tokenizer's own first token; a continuation must not.
            template: Further arguments of the template (`chat_template_kwargs`).

        Raises:
            ServerError: The server does not tokenise, or its answer does not add up.
        """
        question: dict[str, Any] = {"model": (await self.facts()).model}
        if messages is not None:
            question |= {"messages": list(messages), "add_generation_prompt": add_generation_prompt}
            if tools:
                question["tools"] = list(tools)
            if template:
                question["chat_template_kwargs"] = dict(template)
        else:
            question |= {"prompt": text or "", "add_special_tokens": add_special_tokens}
        characters = len(msgspec.json.encode(question))
        body = await self._exchange.post("/tokenize", question, cap=tokens_bytes(characters))
        answer = decode_as(_TOKENS, body, "/tokenize")
        ids: list[int] = token_array(answer.tokens, "/tokenize").tolist()
        if answer.count is not None and answer.count != len(ids):
            raise ServerAnswerError(f"/tokenize counts {answer.count} tokens and lists {len(ids)}")
        return ids

    async def detokenize(self, ids: Sequence[int]) -> str:
        """Text of token ids. The server drops ids it does not know, silently; a part of a character is U+FFFD."""
        question = {"model": (await self.facts()).model, "tokens": self._checked(ids)}
        body = await self._exchange.post("/detokenize", question, cap=SMALL_BYTES + 1024 * len(ids))
        return decode_as(_TEXT, body, "/detokenize").prompt

    async def words(self, ids: Iterable[int]) -> dict[int, str]:
        """The server's text of every single id, four requests at a time."""
        room = asyncio.Semaphore(4)

        async def word(token: int) -> tuple[int, str]:
            async with room:
                return token, await self.detokenize([token])

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(word(token)) for token in sorted(set(ids))]
        return dict(task.result() for task in tasks)

    async def score(self, ids: Sequence[int], k: int, *, words: bool = False) -> Scored:
        """The server's predictions over a given text.

        Args:
            ids: The text, at most `max_model_len - 1` tokens: the server insists on generating one more.
            k: Alternatives per position.
            words: Whether the server's text of every listed id is wanted too; decoding takes twice as long.

        Raises:
            ServerError: The text is too long, the server refuses, dies, or answers something else than was asked.
        """
        facts, sent = await self.facts(), self._checked(ids)
        self._fits(facts, len(sent))
        self._warn_of_cost(facts, len(sent), k)
        question = {
            "model": facts.model,
            "prompt": sent,
            "max_tokens": 1,
            "temperature": 0,
            "prompt_logprobs": k,
            "return_token_ids": True,
        }
        seconds = self._limits.model_seconds(len(sent), 1, self._exchange.in_flight + 1)
        began = time.monotonic()
        body = await self._exchange.post(COMPLETIONS, question, cap=score_bytes(len(sent), k), seconds=seconds)
        took = time.monotonic() - began
        scored = decode_score(body, sent, k, words=words)
        self._watch(scored.fingerprint)
        return replace(scored, seconds=took)

    async def generate(
        self,
        ids: Sequence[int],
        n: int,
        k: int,
        *,
        seed: int = 0,
        ignore_eos: bool = False,
        on_token: Callable[[int], None] | None = None,
    ) -> Generated:
        """The server's own greedy text after a prompt.

        Args:
            ids: The prompt.
            n: Tokens wanted; where the model's length leaves less room the server cuts silently, see `Generated.cut`.
            k: Alternatives per position.
            seed: Sent along; greedy decoding should not need it.
            ignore_eos: Whether to go on behind the end of the text.
            on_token: Called with the number of tokens so far; the answer is then streamed, in which a model that
                produces NaN gives rows of NaN instead of an error.

        Raises:
            ServerError: As `score`.
        """
        facts, sent = await self.facts(), self._checked(ids)
        self._fits(facts, len(sent))
        if n < 1:
            raise InputError(f"{n} tokens were asked for", hint="Ask for at least one.")
        question: dict[str, Any] = {
            "model": facts.model,
            "prompt": sent,
            "max_tokens": n,
            **GREEDY,
            "seed": seed,
            "logprobs": k,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            **({"ignore_eos": True} if ignore_eos else {}),
        }
        seconds = self._limits.model_seconds(len(sent), n, self._exchange.in_flight + 1)
        began = time.monotonic()
        if on_token is None:
            cap = generate_bytes(len(sent), n, k)
            body = await self._exchange.post(COMPLETIONS, question, cap=cap, seconds=seconds)
            made = decode_generate(body, sent, n, k)
        else:
            made = await self._stream(question, sent, n, k, seconds, on_token)
        self._watch(made.fingerprint)
        return replace(made, seconds=time.monotonic() - began)

    async def preflight(self, *, k: int, longest: int, max_tokens: int, vocabulary: int = 0) -> list[str]:
        """Find out before a long capture whether it can work: sends both kinds of request once, with 3 tokens.

        Args:
            k: Alternatives per position.
            longest: Longest prompt in tokens.
            max_tokens: Tokens that will be generated or continue it.
            vocabulary: Number of token ids for the memory estimate, 0 when unknown.

        Returns:
            Warnings, a sentence each.

        Raises:
            ServerRefusedError: K is larger than the server allows, or the longest prompt does not fit.
            ServerError: Another reason why no capture can work.
        """
        facts = await self.facts()
        self._fits(facts, longest)
        allowed = facts.settings.get("max_logprobs", "")
        if allowed.isdigit() and int(allowed) < k:
            raise ServerRefusedError(
                f"{self.address}: {k} alternatives are asked for, the server allows {allowed}",
                hint=f"Start it with --max-logprobs {k}, or ask for --top-k {allowed}.",
                title="Too many alternatives asked for",
            )
        scored = await self.score(PROBE_IDS, k)
        made = await self.generate(PROBE_IDS, 2, k)
        warnings = self._probe_warnings(scored, made, k)
        if facts.max_model_len and longest + max_tokens > facts.max_model_len - 1:
            room = facts.max_model_len - 1 - longest
            warnings.append(
                f"The longest prompt has {longest} tokens and leaves room for {room} of {max_tokens}: its text will be "
                f"cut. --max-model-len {longest + max_tokens + 1} gives room for all."
            )
        if cost := self._cost_warning(facts, longest + max_tokens, k, vocabulary):
            warnings.append(cost)
            self._warned = True
        if self.address.exposes_key:
            warnings.append("The API key crosses the network unencrypted: use https.")
        if "few-alternatives" not in scored.evidence:
            self._facts = msgspec.structs.replace(facts, max_top_k=max(k, facts.max_top_k))
        return warnings

    async def _ask_facts(self) -> ServerFacts:
        card = told.choose_model(await self._exchange.get("/v1/models"), self.address.options.get("model", ""))
        settings: dict[str, str] = {}
        version = ""
        with contextlib.suppress(ServerError):
            version = told.read_version(await self._exchange.get("/version", patient=False))
        with contextlib.suppress(ServerError):
            metrics = await self._exchange.get("/metrics", cap=METRICS_BYTES, patient=False)
            settings |= told.read_cache_info(metrics)
        with contextlib.suppress(ServerError):
            info = await self._exchange.get("/server_info?config_format=json", patient=False)
            settings |= told.read_server_info(info)
        probe = {"model": card.id, "prompt": list(PROBE_IDS), "max_tokens": 1, "temperature": 0}
        seconds = self._limits.model_seconds(len(PROBE_IDS), 1)
        body = await self._exchange.post(COMPLETIONS, probe, cap=SMALL_BYTES, seconds=seconds)
        self._watch(told.read_fingerprint(body))
        vllm = (card.owned_by or "") == "vllm" or self._fingerprint.startswith("vllm")
        return ServerFacts(
            url=self.address.url,
            engine="embedded" if self.address.embedded else "vllm" if vllm else "unknown",
            model=card.id,
            root=card.root or "",
            version=version,
            fingerprint=self._fingerprint,
            max_model_len=max(card.max_model_len or 0, 0),
            settings=settings,
        )

    async def _stream(
        self, question: dict[str, Any], sent: list[int], n: int, k: int, seconds: float, on_token: Callable[[int], None]
    ) -> Generated:
        request = self._exchange.name("POST", COMPLETIONS)

        async def take(chunks: AsyncIterator[bytes]) -> Joined:
            joined = Joined(request, self.address.redact)
            count = 0
            async for line in lines(chunks):
                now = joined.add(line)
                if now > count:
                    on_token(now)
                count = now
                if joined.done:
                    break
            return joined

        cap = stream_bytes(len(sent), n, k)
        joined = await self._exchange.events(
            COMPLETIONS, question | {"stream": True}, cap=cap, seconds=seconds, take=take
        )
        return generated_from(joined.finish(), sent, n, k, joined.fingerprint)

    def _checked(self, ids: Sequence[int]) -> list[int]:
        sent = [int(token) for token in ids]
        if not sent or min(sent) < 0 or max(sent) > LARGEST_ID:
            raise InputError(
                f"{'no tokens' if not sent else f'token ids from {min(sent)} to {max(sent)}'} cannot be sent",
                hint="A text has at least one token, and ids count from 0.",
            )
        return sent

    def _fits(self, facts: ServerFacts, tokens: int) -> None:
        """Refuse before sending: at exactly max_model_len the server's own sentence speaks of max_tokens 0."""
        if facts.max_model_len and tokens > facts.max_model_len - 1:
            raise ServerRefusedError(
                f"{self.address}: a text of {tokens} tokens; this server takes {facts.max_model_len - 1} "
                f"(max_model_len {facts.max_model_len} less one that it must generate)",
                hint=f"Start it with --max-model-len {tokens + 1} or more, or leave the prompt out.",
                title="The text is too long for this server",
            )

    def _watch(self, fingerprint: str) -> None:
        """Refuse to go on when the server's configuration changed since the first answer."""
        if not fingerprint or fingerprint == self._fingerprint:
            return
        if self._fingerprint:
            raise ServerError(
                f"{self.address}: system_fingerprint was {self._fingerprint}, now it is {fingerprint}",
                hint="The server was restarted with other settings, or two servers answer at this address.",
                title="The server changed while it was captured",
            )
        self._fingerprint = fingerprint

    def _probe_warnings(self, scored: Scored, made: Generated, k: int) -> list[str]:
        warnings = [f"Scoring: {text}" for text in scored.evidence.values()]
        warnings += [f"Generation: {text}" for text in made.evidence.values()]
        if not scored.fingerprint:
            warnings.append("The server sends no system_fingerprint: a change of its settings would go unnoticed.")
        return warnings

    def _cost_warning(self, facts: ServerFacts, tokens: int, k: int, vocabulary: int = 0) -> str:
        """A sentence about a request that could end the server, or nothing."""
        if facts.engine == "embedded":
            return ""
        chunk = facts.settings.get("max_num_batched_tokens", "")
        ids = vocabulary or LARGE_VOCABULARY
        cost = score_cost(tokens, k, ids, int(chunk) if chunk.isdigit() else 0)
        if not cost.dangerous:
            return ""
        assumed = "" if vocabulary else " (the number of token ids is assumed)"
        return (
            f"Scoring {tokens} tokens takes about {cost.logits / 1e9:.1f} GB on the server beside weights and cache: "
            f"{cost.chunk} tokens at once x {ids} ids x 4 bytes{assumed}. A server that filled its memory may die of "
            f"it: start it with --max-num-batched-tokens 1024, or a lower --gpu-memory-utilization."
        )

    def _warn_of_cost(self, facts: ServerFacts, tokens: int, k: int) -> None:
        if not self._warned and (warning := self._cost_warning(facts, tokens, k)):
            self._warned = True
            self._notice(warning)
