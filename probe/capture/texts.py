"""From a prompt to the exact token ids that every runtime is asked about."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from probe.errors import NotComparableError, PromptSetError, ServerRefusedError
from probe.prompts import Prompt, RangeSpec, message_texts
from probe.records import PromptRecord, Range
from probe.tokens import TokenTable, text_bytes

Spans = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Text:
    """One prompt as token ids.

    Attributes:
        index: Place in the prompt set.
        prompt_id: Name of the prompt.
        category: Kind of text.
        ids: The prompt.
        continuation: What is forced after it; None when the reference's own greedy answer will be.
        max_tokens: Budget of the greedy answer.
        ranges: Named spans.
        turns: Assistant turns inside the prompt that count as output.
    """

    index: int
    prompt_id: str
    category: str
    ids: tuple[int, ...]
    continuation: tuple[int, ...] | None
    max_tokens: int
    ranges: tuple[Range, ...]
    turns: Spans

    def output(self, length: int) -> Spans:
        """The spans that make the headline, once the whole text is known to have `length` tokens."""
        continuation = ((len(self.ids), length),) if length > len(self.ids) else ()
        return self.turns + continuation

    @property
    def expected_tokens(self) -> int:
        """How many tokens this prompt will probably cost one server: the text once, the answer once more."""
        return self.forced_tokens + self.max_tokens

    @property
    def forced_tokens(self) -> int:
        """How long the text to score will be at most."""
        return len(self.ids) + (self.max_tokens if self.continuation is None else len(self.continuation))


Encode = Callable[[Prompt], Awaitable[list[int]]]
EncodeText = Callable[[str], Awaitable[list[int]]]


async def resolve(
    prompts: Sequence[Prompt], *, encode: Encode, encode_text: EncodeText, table: TokenTable, max_tokens: int
) -> list[Text]:
    """Turn prompts into ids, and their ranges into positions.

    Args:
        prompts: The chosen prompts.
        encode: Token ids of a prompt of messages or text.
        encode_text: Token ids of a continuation, without special tokens in front.
        table: Bytes of token ids, to find where a range lies.
        max_tokens: The run's budget of a greedy answer.

    Raises:
        PromptSetError: a range that is not in its text; the detail names prompt and range.
        ServerRefusedError: the server cannot tokenise a prompt; the detail names it.
    """
    texts = []
    for index, prompt in enumerate(prompts):
        continuation = prompt.continuation
        try:
            ids = list(prompt.ids) if prompt.ids is not None else await encode(prompt)
            if isinstance(continuation, str):
                continuation = await encode_text(continuation)
        except ServerRefusedError as error:  # an image for a text model, a role that the chat template does not know
            raise ServerRefusedError(
                f"prompt {prompt.id!r}: {error.detail}",
                status=error.status,
                hint=error.hint or "change this prompt or leave it out; without a chat template, give it as text",
                title=error.title,
            ) from error
        if not ids:
            raise PromptSetError(
                f"prompt {prompt.id!r} has no tokens", hint="the server's tokenizer made nothing of it"
            )
        ranges, turns = locate(prompt, [*ids, *(continuation or ())], table)
        texts.append(
            Text(
                index=index,
                prompt_id=prompt.id,
                category=prompt.category,
                ids=tuple(ids),
                continuation=None if continuation is None else tuple(continuation),
                max_tokens=min(max_tokens, prompt.max_tokens or max_tokens),
                ranges=ranges,
                turns=turns,
            )
        )
    return texts


def texts_of(records: Iterable[PromptRecord], max_tokens: int, budgets: Mapping[str, int] | None = None) -> list[Text]:
    """The texts of an existing capture, exactly as its runtime was asked about them.

    Args:
        records: The capture's records.
        max_tokens: The run's budget of a greedy answer.
        budgets: Smaller budgets of single prompts. One that is not here shows only where it cut the reference's
            answer; an answer that ended by itself says nothing about how long another runtime's may be.

    Raises:
        NotComparableError: a record without a forced text.
    """
    texts = []
    for record in records:
        if record.forced is None:
            raise NotComparableError(
                f"prompt {record.prompt_id!r} has no text in the reference: {record.failure or 'nothing forced'}",
                hint="run the reference's own capture again; it retries what failed",
            )
        ids = tuple(int(token) for token in record.forced.ids)
        split = record.prompt_length
        cut = record.generated is not None and record.finish_reason == "length"
        seen = len(record.generated) if record.generated is not None and cut else max_tokens
        budget = min(max_tokens, (budgets or {}).get(record.prompt_id, seen))
        texts.append(
            Text(
                index=record.index,
                prompt_id=record.prompt_id,
                category=record.category,
                ids=ids[:split],
                continuation=ids[split:],
                max_tokens=max(budget, 1),
                ranges=record.ranges,
                turns=tuple(span for span in record.output if span[1] <= split),
            )
        )
    return texts


def locate(prompt: Prompt, ids: Sequence[int], table: TokenTable) -> tuple[tuple[Range, ...], Spans]:
    """Find a prompt's ranges and assistant turns among its tokens.

    A token that straddles an edge belongs to the range.

    Returns:
        The ranges by position, and the spans of assistant turns when they are output.

    Raises:
        PromptSetError: a range that is not there.
    """
    if not prompt.ranges and prompt.output != "assistant":
        return (), ()
    text, offsets = text_bytes(ids, table)
    messages = _message_spans(prompt, text)
    found = []
    for spec in prompt.ranges:
        span = _span(spec, text, messages, offsets, len(ids))
        if span is None:
            raise PromptSetError(
                f"prompt {prompt.id!r}: range {spec.name!r} is not in its text",
                hint="message ranges need plain text content that the chat template keeps; find is literal",
            )
        found.append(Range(span[0], span[1], spec.name))
    turns: list[tuple[int, int]] = []
    if prompt.output == "assistant":
        for number, message in enumerate(prompt.messages or ()):
            span = messages.get(number)
            if message.get("role") == "assistant" and span is not None:
                turns.append(_tokens(span, offsets))
    return tuple(sorted(found)), tuple(turns)


def _message_spans(prompt: Prompt, text: bytes) -> dict[int, tuple[int, int]]:
    """Byte span of every message's content in the rendered text, searched in order."""
    spans = {}
    begin = 0
    for number, content in enumerate(message_texts(prompt.messages or ())):
        for form in (content, content.strip()):  # many templates trim what they are given
            data = form.encode("utf-8", "surrogatepass")
            at = text.find(data, begin) if data else -1
            if at >= 0:
                spans[number] = (at, at + len(data))
                begin = at + len(data)
                break
    return spans


def _span(
    spec: RangeSpec, text: bytes, messages: Mapping[int, tuple[int, int]], offsets: Sequence[int], length: int
) -> tuple[int, int] | None:
    if spec.tokens is not None:
        return spec.tokens if spec.tokens[1] <= length else None
    if spec.message is not None:
        span = messages.get(spec.message)
        return None if span is None else _tokens(span, offsets)
    data = (spec.find or "").encode("utf-8", "surrogatepass")
    at = -1
    for _ in range(spec.nth + 1):
        at = text.find(data, at + 1)
        if at < 0:
            return None
    return _tokens((at, at + len(data)), offsets)


def _tokens(span: tuple[int, int], offsets: Sequence[int]) -> tuple[int, int]:
    """Positions of the tokens that hold any byte of a byte span."""
    return bisect_right(offsets, span[0]) - 1, bisect_left(offsets, span[1])


class TextBoard:
    """Where the reference posts what it wrote, and the candidates wait for it."""

    def __init__(self, count: int) -> None:
        loop = asyncio.get_running_loop()
        self._posts: list[asyncio.Future[tuple[int, ...] | str]] = [loop.create_future() for _ in range(count)]

    def post(self, index: int, continuation: tuple[int, ...] | str) -> None:
        """Tell everyone the ids after prompt `index`, or in words why there are none. The first post counts."""
        if not self._posts[index].done():
            self._posts[index].set_result(continuation)

    def close(self, reason: str) -> None:
        """Nothing more will be posted."""
        for index in range(len(self._posts)):
            self.post(index, reason)

    async def read(self, index: int) -> tuple[int, ...] | str:
        """Wait for the ids after prompt `index`, or for the reason why there are none."""
        return await asyncio.shield(self._posts[index])
