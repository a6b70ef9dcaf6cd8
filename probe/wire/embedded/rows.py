"""From logits to the rows a server lists: log-probabilities, the top k, ranks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Log-probabilities in nats, computed in float64 and rounded once.

    Args:
        logits: float32 `[m, V]`. The float64 intermediates take 16 bytes per logit, so keep m small.

    Returns:
        float32 `[m, V]`; a row with a NaN is NaN throughout, as a softmax is.
    """
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=1, keepdims=True)
    wide -= np.log(np.exp(wide).sum(axis=1, keepdims=True))
    return wide.astype(np.float32)


def top_row(logprobs: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """The k most likely ids of one row, by falling log-probability, equal ones by rising id.

    Args:
        logprobs: float32 `[V]` without NaN.
        k: 0 to V.

    Returns:
        int64 `[k]`.
    """
    if k == 0:
        return np.empty(0, dtype=np.int64)
    # The k-th largest value may occur more than once: take every id at or above it, so that the lowest ids win.
    threshold = np.partition(logprobs, len(logprobs) - k)[len(logprobs) - k]
    candidates = np.flatnonzero(logprobs >= threshold)
    order = np.argsort(-logprobs[candidates], kind="stable")
    return candidates[order[:k]]


def rank_of(logprobs: NDArray[np.float32], token: int) -> int:
    """How many ids of the whole vocabulary are at least as likely as `token`, itself included: vLLM's rank."""
    return int(np.count_nonzero(logprobs >= logprobs[token]))
