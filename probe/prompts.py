"""Prompt sets: JSON lines of messages, text or token ids, and the named ranges inside them."""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from probe import paths
from probe.errors import PromptSetError

MAX_LINE_BYTES = 64 * 1024 * 1024
"""A 1,000,000-token transcript is about 4 MB of text; a longer line is no prompt."""

MAX_NAME = 512
"""Characters of an id, a category or the name of a range; a capture holds no longer ones."""


class RangeSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A range as the file gives it: one of `message`, `find` or `tokens` says where it lies."""

    name: str
    message: int | None = None
    """Index of a message whose content is the range."""
    find: str | None = None
    """Literal text of the range."""
    nth: int = 0
    """Which occurrence of `find`, from 0."""
    tokens: tuple[int, int] | None = None
    """Positions, `[start, stop)`."""

    def __post_init__(self) -> None:
        given = [f for f in ("message", "find", "tokens") if getattr(self, f) is not None]
        if len(given) != 1:
            raise ValueError(f"range {self.name!r} needs exactly one of message, find, tokens; it has {len(given)}")
        if not self.name or len(self.name) > MAX_NAME:
            raise ValueError(f"a range needs a name, of at most {MAX_NAME} characters")
        if self.find == "":
            raise ValueError(f"range {self.name!r} looks for empty text")
        if self.nth < 0:
            raise ValueError(f"range {self.name!r}: nth counts from 0")
        if self.tokens is not None and not 0 <= self.tokens[0] < self.tokens[1]:
            raise ValueError(f"range {self.name!r}: tokens {list(self.tokens)} is no span")


class Prompt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One line of a prompt set."""

    id: str
    """Name, unique in the set."""
    category: str = ""
    messages: list[dict[str, Any]] | None = None
    """Chat messages as the OpenAI API takes them."""
    tools: list[dict[str, Any]] | None = None
    """Tool schemas that go into the chat template."""
    text: str | None = None
    """Plain text."""
    ids: list[int] | None = None
    """Token ids."""
    continuation: str | list[int] | None = None
    """The text to force, or its ids; without it the reference's own greedy answer is forced."""
    max_tokens: int | None = None
    """Budget of the greedy answer, in tokens; the run's own value where it is smaller or none is given."""
    ranges: list[RangeSpec] = []
    output: Literal["continuation", "assistant"] = "continuation"
    """Which positions make the headline: the continuation alone, or the assistant turns of a transcript as well."""
    note: str = ""
    """What the prompt stresses; for people."""

    def __post_init__(self) -> None:
        given = [f for f in ("messages", "text", "ids") if getattr(self, f) is not None]
        if not self.id:
            raise ValueError("id is empty")
        for name, length in (("id", len(self.id)), ("category", len(self.category))):
            if length > MAX_NAME:
                raise ValueError(f"{name} has {length:,} characters, at most {MAX_NAME} are allowed")
        if len(given) != 1:
            raise ValueError(f"needs exactly one of messages, text, ids; it has {' and '.join(given) or 'none'}")
        if not getattr(self, given[0]):
            raise ValueError(f"{given[0]} is empty")
        if self.tools is not None and self.messages is None:
            raise ValueError("tools go with messages")
        if self.output == "assistant" and self.messages is None:
            raise ValueError('output "assistant" goes with messages')
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ValueError(f"max_tokens is {self.max_tokens}, at least 1 is needed")
        if self.continuation is not None and not self.continuation:
            raise ValueError("continuation is empty; leave it out to force the reference's own answer")
        for name in ("ids", "continuation"):
            value = getattr(self, name)
            if isinstance(value, list) and not all(0 <= token < 2**31 for token in value):
                raise ValueError(f"{name} holds a number that is no token id")
        for spec in self.ranges:
            if spec.message is not None and not 0 <= spec.message < len(self.messages or ()):
                raise ValueError(f"range {spec.name!r} names message {spec.message} of {len(self.messages or ())}")


@dataclass(frozen=True)
class PromptSet:
    """Prompts in file order.

    Attributes:
        name: Where they came from, for people.
        prompts: The prompts; ids are unique.
        sha256: Hash over the prompts as canonical JSON: an edited prompt is another set, a renamed file is not.
    """

    name: str
    prompts: tuple[Prompt, ...]
    sha256: str = field(init=False)

    def __post_init__(self) -> None:
        digest = hashlib.sha256()
        for prompt in self.prompts:
            digest.update(msgspec.json.encode(prompt, order="deterministic") + b"\n")
        object.__setattr__(self, "sha256", digest.hexdigest())

    def __len__(self) -> int:
        return len(self.prompts)

    def choose(self, categories: Iterable[str] = (), limit: int | None = None) -> PromptSet:
        """The prompts of some categories, at most `limit` of them, in file order.

        Raises:
            PromptSetError: a category that no prompt has, or nothing left.
        """
        wanted = set(categories)
        known = {prompt.category for prompt in self.prompts}
        if unknown := sorted(wanted - known):
            raise PromptSetError(
                f"{self.name} has no category {', '.join(unknown)}",
                hint=f"it has: {', '.join(sorted(known - {''})) or 'none at all'}",
            )
        chosen = [prompt for prompt in self.prompts if not wanted or prompt.category in wanted]
        chosen = chosen[:limit]
        if not chosen:
            raise PromptSetError(f"no prompt of {self.name} is left", hint="--limit must be at least 1")
        return PromptSet(self.name, tuple(chosen))


def read_prompts(source: str | Path) -> PromptSet:
    """Read a prompt set from a JSONL file, or a bundled one by its name.

    Args:
        source: A path, or the name of a set that ships with flipscope (`samples`).

    Raises:
        PromptSetError: naming file, line and field, and what to do.
    """
    path = _find(source)
    try:
        lines = path.read_bytes().removeprefix(codecs.BOM_UTF8).splitlines()
    except OSError as error:
        raise PromptSetError(f"{path}: {error.strerror or error}", hint="--prompts takes a JSONL file") from error
    prompts: list[Prompt] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        prompt = _parse(line, f"{path}:{number}")
        if prompt.id in seen:
            raise PromptSetError(
                f"{path}:{number}: id {prompt.id!r} stands on line {seen[prompt.id]} already", hint="ids are unique"
            )
        seen[prompt.id] = number
        prompts.append(prompt)
    if not prompts:
        raise PromptSetError(
            f"{path} holds no prompt", hint='a line looks like {"id": "a", "text": "Once upon a time"}'
        )
    return PromptSet(path.name, tuple(prompts))


def _find(source: str | Path) -> Path:
    path = Path(source)
    try:
        if path.exists() or path.suffix:
            return path
        bundled = paths.prompt_sets() / f"{path.name}.jsonl"
        if bundled.exists():
            return bundled
    except (OSError, ValueError) as error:  # a name too long for the system, or with a NUL in it
        raise PromptSetError(
            f"{str(source)!r:.200} is no file: {error}", hint="--prompts takes a JSONL file"
        ) from error
    names = ", ".join(sorted(p.stem for p in paths.prompt_sets().glob("*.jsonl"))) or "none"
    raise PromptSetError(f"no file {path} and no bundled set of that name", hint=f"bundled sets: {names}")


def _parse(line: bytes, where: str) -> Prompt:
    if len(line) > MAX_LINE_BYTES:
        raise PromptSetError(f"{where}: {len(line):,} bytes", hint=f"a line may have {MAX_LINE_BYTES:,}")
    try:
        return msgspec.json.decode(line, type=Prompt)
    except msgspec.ValidationError as error:
        raise PromptSetError(f"{where}: {error}", hint="the fields are explained in prompts/README.md") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PromptSetError(f"{where}: no JSON object ({error})", hint="one JSON object per line") from error


def message_texts(messages: Sequence[dict[str, Any]]) -> list[str]:
    """The text content of every message, `""` where a message has none (an image, a bare tool call)."""
    texts = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, list):
            parts = (part.get("text") for part in content if isinstance(part, dict))
            content = "".join(part for part in parts if isinstance(part, str))
        texts.append(content if isinstance(content, str) else "")
    return texts
