"""What can be turned on the embedded engine: the options behind `embedded:?`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from probe.errors import InputError

KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
WEIGHTS = ("F32", "F16", "BF16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_1", "Q4_0", "Q3_K_M", "Q2_K")
LONGEST_CONTEXT = 1 << 20
DEFAULT_CONTEXT = 4096
"""Positions when `ctx=` is not given and the model was trained on more: what the recorded vLLM servers run with."""
DEFAULT_LOGPROBS = 1000
"""Largest k of a row; the whole vocabulary is 3.4 MB of JSON per position."""


@dataclass(frozen=True, slots=True)
class Settings:
    """One configuration of the embedded engine.

    Attributes:
        kv: Element type of the KV cache, keys and values alike.
        flash: Whether attention is computed by the fused kernel. A quantised cache needs it.
        weights: Type the weights are requantised to before loading; `""` takes the file as it is.
        context: Longest text in tokens; 0 for the model's own, at most `DEFAULT_CONTEXT`.
        threads: Threads of one engine. Numbers do not depend on it (measured with 1 and 2).
        max_logprobs: Largest k a request may ask for; -1 for the whole vocabulary.
    """

    kv: str = "f16"
    flash: bool = True
    weights: str = ""
    context: int = 0
    threads: int = 1
    max_logprobs: int = DEFAULT_LOGPROBS

    def notes(self) -> list[str]:
        """What a user should know about this configuration before reading its numbers."""
        if self.kv == "f32" and self.flash:
            return ["kv=f32 with fa=on: llama.cpp computes fused attention in f16, so the numbers equal kv=f16"]
        return []


def parse_settings(options: Mapping[str, str]) -> Settings:
    """Read the options of an `embedded:` address.

    Raises:
        InputError: An option does not exist, a value is not one of its values, or two exclude each other.
    """
    if unknown := sorted(set(options) - set(_READERS)):
        raise InputError(f"embedded: has no option {unknown[0]!r}", hint=f"Options are {', '.join(sorted(_READERS))}.")
    values = {name: _READERS[name](name, text) for name, text in options.items()}
    kv, flash = values.get("kv", "f16"), values.get("fa", True)
    if kv.startswith("q") and not flash:
        raise InputError(
            f"embedded: kv={kv} with fa=off: llama.cpp reads a quantised cache only with flash attention",
            hint="Leave fa=off out, or use kv=f16, bf16 or f32.",
        )
    return Settings(
        kv=kv,
        flash=flash,
        weights=values.get("weights", ""),
        context=values.get("ctx", 0),
        threads=values.get("threads", default_threads()),
        max_logprobs=values.get("max_logprobs", DEFAULT_LOGPROBS),
    )


def default_threads() -> int:
    """Half the cores, at most four: two or three engines run side by side in a comparison."""
    return max(1, min(4, (os.cpu_count() or 1) // 2))


def _one_of(*choices: str) -> Callable[[str, str], str]:
    spelled = {choice.lower(): choice for choice in choices}

    def read(name: str, text: str) -> str:
        if text.lower() not in spelled:
            raise InputError(f"embedded: {name}={text}", hint=f"{name} is one of {', '.join(choices)}.")
        return spelled[text.lower()]

    return read


def _switch(name: str, text: str) -> bool:
    return _one_of("on", "off")(name, text) == "on"


def _number(low: int, high: int) -> Callable[[str, str], int]:
    def read(name: str, text: str) -> int:
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 10 and low <= int(text) <= high):
            raise InputError(f"embedded: {name}={text}", hint=f"{name} is a whole number from {low} to {high}.")
        return int(text)

    return read


_READERS: dict[str, Callable[[str, str], Any]] = {
    "kv": _one_of(*KV_TYPES),
    "fa": _switch,
    "weights": _one_of(*WEIGHTS),
    "ctx": _number(16, LONGEST_CONTEXT),
    "threads": _number(1, 256),
    "max_logprobs": _number(-1, 1 << 20),
}
