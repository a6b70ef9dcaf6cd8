"""What a capture is asked to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from probe.errors import InputError
from probe.records import Protocol as CaptureProtocol
from probe.store.library import check_label
from probe.wire.address import Address, parse_address

DEFAULT_TOP_K = 20
DEFAULT_MAX_TOKENS = 128


@dataclass(frozen=True)
class Target:
    """One runtime to capture."""

    label: str
    """Name of the runtime; the capture file is called after it."""
    address: Address
    dims: Mapping[str, str] = field(default_factory=dict)
    """What was turned on this runtime."""


@dataclass(frozen=True)
class CaptureOptions:
    """How to capture."""

    protocol: CaptureProtocol
    folder: Path
    """Where capture files go."""
    tokenizer: str = ""
    """Folder or hub id of the tokenizer; empty: found from what the server says it loaded."""
    overwrite: bool = False
    """Start existing captures anew instead of resuming them."""
    deadline: float | None = None
    """Seconds the whole run may take."""
    request_timeout: float | None = None
    """Seconds one request may take; None: grows with the tokens asked for."""


class Observer(Protocol):
    """Who watches a capture: a progress display, a log, a test."""

    def notice(self, label: str, message: str) -> None:
        """Something a user should know; the capture goes on."""

    def loading(self, label: str, done: int, total: int) -> None:
        """Bytes of an embedded model that is being fetched; called from the engine's own thread."""

    def planned(self, label: str, prompts: int, done: int, tokens: int) -> None:
        """A runtime starts: `prompts` in all, `done` of them kept from an earlier run, `tokens` to expect."""

    def recorded(self, label: str, prompt_id: str, tokens: int) -> None:
        """A prompt is safely on disk. `tokens` is its share of the plan."""

    def failed(self, label: str, prompt_id: str, reason: str) -> None:
        """A prompt could not be captured; the reason is on disk."""

    def stopped(self, label: str, reason: str) -> None:
        """A runtime cannot go on; what it recorded is kept."""


def parse_target(text: str, dims: Sequence[str] = (), *, key_file: Path | None = None) -> Target:
    """Read `LABEL=URL`.

    Args:
        text: `f32=http://127.0.0.1:8000` or `q8=embedded:?kv=q8_0`.
        dims: `key=value` for every runtime, `LABEL:key=value` for one.
        key_file: File that holds the API key; without it the environment is asked.

    Raises:
        InputError: what is wrong with which part.
    """
    label, found, url = text.partition("=")
    if not found or not label or ":" in label:
        raise InputError(f"{text!r} has no label", hint="name the runtime: LABEL=URL, as in bf16=http://127.0.0.1:8000")
    own: dict[str, str] = {}
    for dim in dims:
        name, found, value = dim.partition("=")
        owner, scoped, key = name.rpartition(":")
        if not found or not key or not value:
            raise InputError(f"--dim {dim!r} is no key=value", hint="as in --dim kv=fp8, or --dim int4:weights=int4")
        if not scoped or owner == label:
            own[key] = value
    return Target(check_label(label), parse_address(url, key_file=key_file), own)


def check_labels(targets: Sequence[Target], dims: Sequence[str]) -> None:
    """Every label once, and no `--dim` for a label that is not captured.

    Raises:
        InputError: naming the label.
    """
    labels = [target.label for target in targets]
    for label in labels:
        if labels.count(label) > 1:
            raise InputError(f"the label {label!r} is given twice", hint="each runtime needs a name of its own")
    for dim in dims:
        owner, scoped, _ = dim.partition("=")[0].rpartition(":")
        if scoped and owner not in labels:
            raise InputError(f"--dim {dim!r} names no runtime of this run", hint=f"labels here: {', '.join(labels)}")
