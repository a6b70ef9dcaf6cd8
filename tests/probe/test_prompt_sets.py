"""The prompt sets that ship: what their README promises."""

from __future__ import annotations

import re

import pytest

from probe import paths
from probe.prompts import Prompt, message_texts, read_prompts

SETS = sorted(path.stem for path in paths.prompt_sets().glob("*.jsonl"))


def text_of(prompt: Prompt) -> str:
    continuation = prompt.continuation if isinstance(prompt.continuation, str) else ""
    return "\n".join(message_texts(prompt.messages or ())) + (prompt.text or "") + continuation


@pytest.mark.parametrize("name", SETS)
def test_every_prompt_says_what_it_is(name: str) -> None:
    for prompt in read_prompts(name).prompts:
        assert prompt.category and prompt.note, prompt.id
        assert prompt.max_tokens, f"{prompt.id}: a small model repeats itself without a budget"


@pytest.mark.parametrize("name", SETS)
def test_every_range_lies_in_its_text(name: str) -> None:
    for prompt in read_prompts(name).prompts:
        for spec in prompt.ranges:
            if spec.find is not None:
                assert text_of(prompt).count(spec.find) > spec.nth, f"{prompt.id}: {spec.name}"


def test_the_readme_counts_the_samples() -> None:
    samples = read_prompts("samples")
    categories = {prompt.category for prompt in samples.prompts}
    readme = (paths.prompt_sets() / "README.md").read_text(encoding="utf-8")
    assert f"{len(samples)} prompts in {len(categories)} categories" in readme
    kinds = {kind for p in samples.prompts for kind in ("messages", "text", "ids") if getattr(p, kind) is not None}
    assert kinds == {"messages", "text", "ids"}
    for word in re.findall(r"`([a-z]+-[a-z]+)`", readme):
        assert any(prompt.id == word for prompt in samples.prompts), f"README names {word}"


def test_the_demo_is_part_of_the_samples() -> None:
    samples = {prompt.id: prompt for prompt in read_prompts("samples").prompts}
    for prompt in read_prompts("demo").prompts:
        assert samples[prompt.id] == prompt


def test_the_transcript_is_long_and_its_calls_are_calls() -> None:
    prompt = next(p for p in read_prompts("samples").prompts if p.output == "assistant")
    assert len(text_of(prompt)) > 9_000  # characters: about 4,700 tokens, since digits are tokens of their own
    calls = [spec for spec in prompt.ranges if spec.name == "tool call"]
    assert len(calls) >= 10
    for spec in calls:
        assert spec.find is not None and re.fullmatch(r"<tool_call>\n\{.*\}\n</tool_call>", spec.find)
    assert {"prose", "cli", "recovery", "recommendation"} < {spec.name for spec in prompt.ranges}
