"""Two runtimes' rows over the same positions, merged by token id: what every divergence is computed from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

UNLISTED = -1e4
"""Log-probability of a place that holds no token: its probability is exactly 0 and no arithmetic on it makes a NaN."""

OUTSIDE = -9999.0
"""At or below this a server means "outside or -inf": such an id counts as not listed, its mass as part of the rest."""

MAX_MASS = 1.01
"""Listed probability above this is no distribution (all-zero log-probs give 20). float32 servers reach 1.0000002."""

MAX_LOGPROB = 0.00995
"""ln `MAX_MASS`: a single log-probability above this is none."""

_PADDING = np.uint32(0xFFFF_FFFF)
_MAX_ID = 0x7FFF_FFFF  # its key is the padding's; no vocabulary comes near


class RowState(IntEnum):
    """Why a position can or cannot be scored."""

    VALID = 0
    FIRST = 1
    """The first token of a text has no prediction; it is nobody's fault and counted nowhere."""
    MISSING = 2
    """A side lists nothing."""
    NON_FINITE = 3
    """A side lists a NaN or an infinite probability."""
    DUPLICATE = 4
    """A side lists the same id twice."""
    EXCESS = 5
    """A side's listed probabilities sum to more than `MAX_MASS`."""


@dataclass(frozen=True, slots=True, eq=False)
class MergedRows:
    """Listed tokens of both sides, one column per position, rising by id; of one id the reference stands first.

    Attributes:
        keys: uint32 `[w, n]`, twice the token id, plus 1 where the candidate lists it; all ones for padding.
        logprob: float32 `[w, n]`, nats, as sent; `UNLISTED` for padding.
        shared: bool `[w - 1, n]`, entry `j` is the reference's and entry `j + 1` the candidate's for one token.
        state: uint8 `[n]`, a `RowState`; of `EXCESS` only what a single log-prob shows.
    """

    keys: NDArray[np.uint32]
    logprob: NDArray[np.float32]
    shared: NDArray[np.bool_]
    state: NDArray[np.uint8]

    @property
    def from_reference(self) -> NDArray[np.bool_]:
        """Whether the entry is the reference's, bool `[w, n]`."""
        from_reference: NDArray[np.bool_] = (self.keys & np.uint32(1)) == 0
        return from_reference


def merge_rows(
    reference_ids: NDArray[np.int32],
    reference_logprobs: NDArray[np.float32],
    candidate_ids: NDArray[np.int32],
    candidate_logprobs: NDArray[np.float32],
) -> MergedRows:
    """Bring the same tokens of two rows together.

    Each entry becomes one 64-bit key (id, side, float32 bits), so a single sort per row puts the two log-probs of a
    token side by side with nothing to gather: 75 ns a position at 21 + 21 ids, against 216 for a scatter table (51 MB
    for a vocabulary of 50,000), 300 for comparing all with all, 890 for a binary search over all keys of a chunk.

    Args:
        reference_ids: int32 `[n, a]`; negative where nothing is listed.
        reference_logprobs: float32 `[n, a]`, nats; ignored where nothing is listed.
        candidate_ids: int32 `[n, b]`.
        candidate_logprobs: float32 `[n, b]`.

    Returns:
        The merged rows with `w = a + b`. A side with a log-prob that is NaN or above 0 lists nothing there.
    """
    n, split = reference_ids.shape
    width = split + candidate_ids.shape[1]
    packed = np.empty((n, width), np.uint64)
    halves = packed.view(np.uint32).reshape(n, width, 2)  # little-endian: [.., 1] is the upper half
    state = np.zeros(n, np.uint8)
    for side, part, ids, logprobs in (
        (0, slice(0, split), reference_ids, reference_logprobs),
        (1, slice(split, width), candidate_ids, candidate_logprobs),
    ):
        listed = (ids >= 0) & (ids != _MAX_ID)
        unusable = ~(listed & (logprobs > OUTSIDE))
        broken = listed & ~(logprobs <= MAX_LOGPROB)
        if broken.any():
            rows = broken.any(axis=1)
            unusable |= rows[:, None]
            not_finite = (broken & ~(logprobs < np.inf)).any(axis=1)
            state[rows & (state != RowState.NON_FINITE)] = RowState.EXCESS
            state[not_finite] = RowState.NON_FINITE
        upper = ids.view(np.uint32) << np.uint32(1)
        upper |= np.uint32(side)
        np.copyto(upper, _PADDING, where=unusable)  # three times faster than np.where
        halves[:, part, 1] = upper
        lower = logprobs.copy()
        np.copyto(lower, np.float32(UNLISTED), where=unusable)
        halves[:, part, 0] = lower.view(np.uint32)
    packed.sort(axis=1)
    columns = np.ascontiguousarray(packed.T).view(np.uint32).reshape(width, n, 2)
    keys = np.ascontiguousarray(columns[:, :, 1])
    logprob = np.ascontiguousarray(columns[:, :, 0]).view(np.float32)
    step = keys[:-1] ^ keys[1:]
    same_key = step == 0
    same_key &= keys[1:] != _PADDING
    if same_key.any():
        state[same_key.any(axis=0) & (state == RowState.VALID)] = RowState.DUPLICATE
    return MergedRows(keys, logprob, step == 1, state)
