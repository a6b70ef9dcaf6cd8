from __future__ import annotations

import json
from pathlib import Path

import pytest

from probe.errors import PromptSetError
from probe.prompts import PromptSet, message_texts, read_prompts

GOOD = {"id": "a", "category": "facts", "text": "Once upon a time"}


def write(folder: Path, *lines: object) -> Path:
    path = folder / "set.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return path


def test_reads_prompts_in_file_order_and_skips_blank_lines(tmp_path: Path) -> None:
    chat = {"id": "b", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}
    found = read_prompts(write(tmp_path, GOOD, "", chat))
    assert [prompt.id for prompt in found.prompts] == ["a", "b"]
    assert found.prompts[1].max_tokens == 5


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"id": "x"}, "exactly one of messages, text, ids"),
        ({"id": "x", "text": "a", "ids": [1]}, "text and ids"),
        ({"id": "", "text": "a"}, "id is empty"),
        ({"id": "x", "text": ""}, "text is empty"),
        ({"id": "x", "ids": []}, "ids is empty"),
        ({"id": "x", "ids": [-1]}, "no token id"),
        ({"id": "x", "ids": [2**31]}, "no token id"),
        ({"id": "x", "ids": ["a"]}, "$.ids[0]"),
        ({"id": "x", "text": "a", "max_tokens": 0}, "max_tokens is 0"),
        ({"id": "x", "text": "a", "continuation": ""}, "continuation is empty"),
        ({"id": "x", "text": "a", "tools": [{}]}, "tools go with messages"),
        ({"id": "x", "text": "a", "output": "assistant"}, "goes with messages"),
        ({"id": "x", "text": "a", "outptu": 1}, "outptu"),
        ({"id": "x", "text": "a", "ranges": [{"name": "r"}]}, "exactly one of message, find, tokens"),
        ({"id": "x", "text": "a", "ranges": [{"name": "r", "tokens": [3, 3]}]}, "no span"),
        ({"id": "x", "text": "a", "ranges": [{"name": "r", "message": 0}]}, "message 0 of 0"),
        ("{", "no JSON object"),
        ('{"id": "x", "text": "a", "note": ' + "[" * 3000, "set.jsonl:2"),
        ("3", "Expected `object`"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: object, said: str) -> None:
    path = write(tmp_path, GOOD, line)
    with pytest.raises(PromptSetError) as caught:
        read_prompts(path)
    assert said in caught.value.detail
    assert f"{path}:2" in caught.value.detail
    assert caught.value.hint


def test_an_id_used_twice_names_both_lines(tmp_path: Path) -> None:
    with pytest.raises(PromptSetError, match=r"set.jsonl:2: id 'a' stands on line 1"):
        read_prompts(write(tmp_path, GOOD, GOOD))


def test_an_empty_file_and_a_missing_one(tmp_path: Path) -> None:
    with pytest.raises(PromptSetError, match="holds no prompt"):
        read_prompts(write(tmp_path, ""))
    with pytest.raises(PromptSetError, match="No such file"):
        read_prompts(tmp_path / "none.jsonl")
    with pytest.raises(PromptSetError, match="no bundled set"):
        read_prompts("no-such-set")


def test_the_hash_follows_the_prompts_not_the_file(tmp_path: Path) -> None:
    one = read_prompts(write(tmp_path, GOOD))
    same = read_prompts(write(tmp_path, "", '{"text": "Once upon a time", "category": "facts", "id": "a"}'))
    other = read_prompts(write(tmp_path, GOOD | {"text": "Once upon a time,"}))
    assert one.sha256 == same.sha256 != other.sha256


def test_choose_by_category_and_limit(tmp_path: Path) -> None:
    lines = [{"id": str(n), "text": "x", "category": "even" if n % 2 == 0 else "odd"} for n in range(6)]
    found = read_prompts(write(tmp_path, *lines))
    assert [p.id for p in found.choose(["odd"], 2).prompts] == ["1", "3"]
    assert len(found.choose()) == 6
    with pytest.raises(PromptSetError, match="no category nope") as caught:
        found.choose(["nope"])
    assert "even, odd" in caught.value.hint


def test_message_texts_of_plain_and_parted_content() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image_url"}, {"type": "text", "text": "b"}]
    assert message_texts([{"role": "user", "content": parts}, {"role": "assistant", "content": None}]) == ["ab", ""]


@pytest.mark.parametrize("name", ["samples", "demo"])
def test_the_bundled_sets_can_be_read(name: str) -> None:
    assert isinstance(read_prompts(name), PromptSet)


def test_a_byte_order_mark_and_windows_line_ends_are_no_error(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"id": "a", "text": "x"}\r\n{"id": "b", "text": "y"}\r\n')
    assert [prompt.id for prompt in read_prompts(path).prompts] == ["a", "b"]


@pytest.mark.parametrize("source", ["x" * 5000, "a\0b", ""])
def test_what_can_be_no_file_name(source: str) -> None:
    with pytest.raises(PromptSetError) as caught:
        read_prompts(source)
    assert caught.value.hint


def test_content_parts_without_text_are_empty() -> None:
    assert message_texts([{"content": [{"type": "text", "text": None}, {"text": 3}, {"text": "x"}]}]) == ["x"]
