"""Where two texts that runtimes wrote themselves part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Split:
    """The first difference of two greedy texts after the same prompt.

    Attributes:
        index: First index where they differ, counted from the start of the texts; None when they never do.
        compared: How many tokens both have. Where it is less than a text's length and `index` is None, the shorter
            text ended there: whether that is a difference depends on why it ended (its budget or its own choice).
    """

    index: int | None
    compared: int

    def identical_at(self, n: int) -> bool | None:
        """Whether the first `n` tokens are the same; None when fewer were compared and those are."""
        if self.index is not None and self.index < n:
            return False
        return True if self.compared >= n else None


def first_split(one: NDArray[np.int32], other: NDArray[np.int32]) -> Split:
    """Compare two generated texts.

    Args:
        one: int32 `[n]`, token ids.
        other: int32 `[m]`.
    """
    compared = min(len(one), len(other))
    different = np.flatnonzero(one[:compared] != other[:compared])
    return Split(int(different[0]) if len(different) else None, compared)
