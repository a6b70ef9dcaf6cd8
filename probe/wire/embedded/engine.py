"""The seam: what any in-process engine must do to stand behind vLLM's routes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from probe.records import Piece


class InterruptedWorkError(Exception):
    """`interrupt` was called while the engine was computing; nothing of the text is kept."""


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What an engine says about itself.

    Attributes:
        name: The name requests carry.
        root: Where the weights came from: a path, or the package that ships them.
        version: The engine and its release.
        fingerprint: Hash over everything that can change a number: release, weights, resolved settings.
        context: Longest text in tokens.
        vocabulary: Number of token ids, `V`.
        max_logprobs: Largest k a request may ask for.
        settings: Resolved settings by name.
        template: Chat template in Jinja, `""` when the model has none.
        specials: Text of the special tokens a template may name, such as `bos_token`.
    """

    name: str
    root: str
    version: str
    fingerprint: str
    context: int
    vocabulary: int
    max_logprobs: int
    settings: dict[str, str] = field(default_factory=dict)
    template: str = ""
    specials: dict[str, str] = field(default_factory=dict)


class Engine(Protocol):
    """One loaded model with one KV cache. Called from one thread at a time; `interrupt` from any."""

    @property
    def facts(self) -> EngineFacts:
        """What the engine says about itself."""

    def prefill(self, ids: Sequence[int], *, every: bool) -> Iterator[NDArray[np.float32]]:
        """Forget everything, then read a text in batches.

        Args:
            ids: 1 to `facts.context` token ids.
            every: Whether the logits after every token are wanted, or only those after the last.

        Yields:
            float32 `[m, V]` in order of position, m small enough to bound memory; rows belong to the caller.

        Raises:
            InterruptedWorkError: Somebody called `interrupt`.
        """

    def step(self, token: int) -> NDArray[np.float32]:
        """Append one token and return the logits after it, float32 `[V]`. The decode path: a batch of one."""

    def tokenise(self, text: str, *, special: bool) -> list[int]:
        """Ids of a text; special-token text in it becomes special tokens, `special` adds the model's own BOS/EOS."""

    def pieces(self) -> list[Piece]:
        """The bytes of every token id, in order of id."""

    def spellings(self, ids: Sequence[int]) -> list[str]:
        """Tokens as the vocabulary spells them, such as `Ġthe`."""

    def ends(self, token: int) -> bool:
        """Whether a token ends a generation."""

    def interrupt(self) -> None:
        """Make the computation that runs now, and every later one, raise until `resume`."""

    def resume(self) -> None:
        """Allow computing again after `interrupt`."""

    def close(self) -> None:
        """Free the model. Idempotent."""
