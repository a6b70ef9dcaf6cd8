"""A runtime's sequence of top-k rows over one text: the shape everything else is built on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

StreamKind = Literal["forced", "generated", "branch"]
KINDS: tuple[StreamKind, ...] = ("forced", "generated", "branch")

NO_TOKEN = -1
"""Id that pads a row whose server listed fewer alternatives than asked for; its log-prob is NaN."""


@dataclass(frozen=True, slots=True, eq=False)
class TokenStream:
    """One runtime's predictions over one text.

    Row `i` is the prediction OF token `i` from everything before it. A forced stream starts at position 0,
    for which no prediction exists: its row 0 is padding and its `logprob` NaN. A generated stream starts where
    its prompt ends, a branch right after its root.

    Attributes:
        kind: `forced` (the text was chosen in advance), `generated` (the runtime's own greedy text) or `branch`.
        start: Position of the first token in its text.
        ids: int32 `[n]`, the actual tokens.
        logprob: float32 `[n]`, log-probability (nats) of the actual token exactly as the server sent it;
            NaN where it gave none, -9999 where it said "outside or -inf".
        rank: int32 `[n]`, the server's rank of the actual token where it stands OUTSIDE the listed
            alternatives, else 0 (the row itself shows its place).
        top_ids: int32 `[n, k]`, listed alternatives by falling log-probability, equal ones by rising id
            (greedy decoding takes the lowest id of an exact tie); `NO_TOKEN` where none was listed.
        top_logprobs: float32 `[n, k]`, their log-probabilities exactly as sent; NaN where none was listed.
    """

    kind: StreamKind
    start: int
    ids: NDArray[np.int32]
    logprob: NDArray[np.float32]
    rank: NDArray[np.int32]
    top_ids: NDArray[np.int32]
    top_logprobs: NDArray[np.float32]

    def __post_init__(self) -> None:
        n = len(self.ids)
        if self.kind not in KINDS:
            raise ValueError(f"kind is {self.kind!r}, not one of {', '.join(KINDS)}")
        if self.start < 0:
            raise ValueError(f"start is {self.start}, but positions count from 0")
        for name, array, dtype, shape in (
            ("ids", self.ids, np.int32, (n,)),
            ("logprob", self.logprob, np.float32, (n,)),
            ("rank", self.rank, np.int32, (n,)),
            ("top_ids", self.top_ids, np.int32, (n, self.k)),
            ("top_logprobs", self.top_logprobs, np.float32, (n, self.k)),
        ):
            if array.dtype != dtype or array.shape != shape:
                raise ValueError(f"{name} is {array.dtype} {array.shape}, expected {np.dtype(dtype)} {shape}")

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def k(self) -> int:
        """How many alternatives a row has room for."""
        return int(self.top_ids.shape[1]) if self.top_ids.ndim == 2 else 0

    @property
    def stop(self) -> int:
        """Position right after the last token."""
        return self.start + len(self.ids)

    def rows(self, begin: int, end: int) -> TokenStream:
        """The part from position `begin` up to, not including, `end` (positions of the text, not indices)."""
        part = slice(max(begin - self.start, 0), max(end - self.start, 0))
        return TokenStream(
            self.kind,
            max(begin, self.start),
            self.ids[part],
            self.logprob[part],
            self.rank[part],
            self.top_ids[part],
            self.top_logprobs[part],
        )

    def listed(self) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Every id the server listed per position: the alternatives, and the actual token in a last column.

        Returns:
            ids int32 `[n, k + 1]` and log-probs float32 `[n, k + 1]`. The last column holds the actual token where
            it stands outside the alternatives, else padding, so no id occurs twice in a row.
        """
        inside = (self.top_ids == self.ids[:, None]).any(axis=1)
        missing = inside | np.isnan(self.logprob)
        last_id = np.where(missing, np.int32(NO_TOKEN), self.ids).astype(np.int32)
        last_logprob = np.where(missing, np.float32(np.nan), self.logprob).astype(np.float32)
        return (
            np.concatenate([self.top_ids, last_id[:, None]], axis=1),
            np.concatenate([self.top_logprobs, last_logprob[:, None]], axis=1),
        )

    def equals(self, other: TokenStream) -> bool:
        """Whether both hold the same bits: same kind, start, ids, ranks and float32 patterns (NaN equals NaN)."""
        return (
            self.kind == other.kind
            and self.start == other.start
            and np.array_equal(self.ids, other.ids)
            and np.array_equal(self.rank, other.rank)
            and np.array_equal(self.top_ids, other.top_ids)
            and np.array_equal(self.logprob.view(np.int32), other.logprob.view(np.int32))
            and np.array_equal(self.top_logprobs.view(np.int32), other.top_logprobs.view(np.int32))
        )


def sort_rows(ids: NDArray[np.int32], logprobs: NDArray[np.float32]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Put alternatives in the one order streams use: falling log-probability, equal ones by rising id, padding last.

    Args:
        ids: int32 `[n, k]`, `NO_TOKEN` where nothing is listed.
        logprobs: float32 `[n, k]`, NaN where nothing is listed; a listed NaN sorts behind every number.

    Returns:
        Both arrays, rows reordered.
    """
    padding = ids == NO_TOKEN
    order = np.lexsort((ids, -logprobs, np.isnan(logprobs), padding), axis=1)
    return np.take_along_axis(ids, order, axis=1), np.take_along_axis(logprobs, order, axis=1)
