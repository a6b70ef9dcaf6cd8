from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probe.capture.texts import TextBoard, locate, resolve
from probe.errors import PromptSetError
from probe.prompts import Prompt, RangeSpec
from probe.records import Piece, Range
from probe.tokens import PieceList, text_bytes

PIECES: list[str | bytes] = [
    "<s>",
    "<u>",
    "<a>",
    "Hello",
    " world",
    " 10",
    ".0",
    "\n",
    "ab",
    "a",
    "b",
    b"\xc3",
    b"\xa4",
]
TABLE = PieceList("test", [Piece(p if isinstance(p, bytes) else p.encode()) for p in PIECES])


def ids(*names: str) -> list[int]:
    return [PIECES.index(name) for name in names]


def test_a_message_range_covers_its_content_without_the_template() -> None:
    messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": " world 10.0 "}]
    prompt = Prompt(id="p", messages=messages, ranges=[RangeSpec("answer", message=1)], output="assistant")
    text = ids("<u>", "Hello", "<a>", " world", " 10", ".0", "\n", "<u>")
    ranges, turns = locate(prompt, text, TABLE)
    assert ranges == (Range(3, 6, "answer"),)
    assert turns == ((3, 6),)


def test_find_takes_the_nth_occurrence_and_whole_tokens() -> None:
    prompt = Prompt(id="p", text="x", ranges=[RangeSpec("dot", find="0.0", nth=1), RangeSpec("b", find="b")])
    ranges, _ = locate(prompt, ids(" 10", ".0", "ab", " 10", ".0"), TABLE)
    assert ranges == (Range(2, 3, "b"), Range(3, 5, "dot"))


def test_a_range_that_is_not_there_is_named() -> None:
    prompt = Prompt(id="p", text="x", ranges=[RangeSpec("gone", find="nowhere")])
    with pytest.raises(PromptSetError, match="prompt 'p': range 'gone'"):
        locate(prompt, ids("Hello"), TABLE)
    prompt = Prompt(id="p", text="x", ranges=[RangeSpec("far", tokens=(0, 9))])
    with pytest.raises(PromptSetError, match="'far'"):
        locate(prompt, ids("Hello"), TABLE)


@given(st.lists(st.integers(0, len(PIECES) - 1), min_size=1, max_size=30), st.data())
def test_find_agrees_with_a_search_over_every_token(tokens: list[int], data: st.DataObject) -> None:
    text, offsets = text_bytes(tokens, TABLE)
    begin = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(begin + 1, len(text)))
    try:
        needle = text[begin:end].decode()
    except UnicodeDecodeError:
        return
    prompt = Prompt(id="p", text="x", ranges=[RangeSpec("r", find=needle)])
    (found,), _ = locate(prompt, tokens, TABLE)
    at = text.find(needle.encode())
    touched = [i for i in range(len(tokens)) if offsets[i] < at + len(needle.encode()) and offsets[i + 1] > at]
    assert (found.start, found.stop) == (touched[0], touched[-1] + 1)


async def test_resolve_encodes_prompt_and_continuation_apart() -> None:
    async def encode(prompt: Prompt) -> list[int]:
        return ids("Hello")

    async def encode_text(text: str) -> list[int]:
        return ids(" world") if text == " world" else ids("\n")

    prompts = [Prompt(id="p", text="Hello", continuation=" world", max_tokens=3), Prompt(id="q", ids=[7, 8])]
    texts = await resolve(prompts, encode=encode, encode_text=encode_text, table=TABLE, max_tokens=9)
    assert [(t.ids, t.continuation, t.max_tokens) for t in texts] == [
        (tuple(ids("Hello")), tuple(ids(" world")), 3),
        ((7, 8), None, 9),
    ]
    assert texts[0].output(2) == ((1, 2),)
    assert texts[1].output(2) == ()


async def test_the_board_hands_a_text_to_everyone_and_keeps_the_first_post() -> None:
    board = TextBoard(2)
    readers = [asyncio.create_task(board.read(0)) for _ in range(2)]
    abandoned = asyncio.create_task(board.read(0))
    await asyncio.sleep(0)
    abandoned.cancel()
    board.post(0, (1, 2))
    board.close("gone")
    results: list[Any] = await asyncio.gather(*readers)
    assert results == [(1, 2), (1, 2)]
    assert await board.read(1) == "gone"
