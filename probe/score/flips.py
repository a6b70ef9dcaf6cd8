"""Where two runtimes would choose another token, and how much that choice meant."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from probe.score.rows import OUTSIDE, UNLISTED
from probe.stream import NO_TOKEN, sort_rows


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """First choices of both sides per position.

    Attributes:
        reference: int32 `[n]`, the lowest id at the reference's greatest log-prob; `NO_TOKEN` where it lists nothing.
        candidate: int32 `[n]`, the same of the candidate.
        flip: bool `[n]`, no id is first choice of both.
        tie: bool `[n]`, some id is first choice of both, yet greedy decoding (lowest id of an exact tie) would part.
        p1: float64 `[n]`, probability of the reference's first choice; NaN where it lists nothing.
        margin: float64 `[n]`, how far it leads over the second, 0 in a tie. Where nothing else is listed, the
            least lead that the remaining probability allows.
    """

    reference: NDArray[np.int32]
    candidate: NDArray[np.int32]
    flip: NDArray[np.bool_]
    tie: NDArray[np.bool_]
    p1: NDArray[np.float64]
    margin: NDArray[np.float64]


def choices(
    reference_ids: NDArray[np.int32],
    reference_logprobs: NDArray[np.float32],
    candidate_ids: NDArray[np.int32],
    candidate_logprobs: NDArray[np.float32],
) -> Choices:
    """Find both sides' top-1 sets (all ids at the greatest log-prob) and compare them.

    The server's rank is not used: it is arbitrary among exact ties, which a bf16 server has at 3 % of its positions.

    Args:
        reference_ids: int32 `[n, a]`, negative where nothing is listed.
        reference_logprobs: float32 `[n, a]`, nats.
        candidate_ids: int32 `[n, b]`.
        candidate_logprobs: float32 `[n, b]`.
    """
    p = _Favourites.of(reference_ids, reference_logprobs)
    q = _Favourites.of(candidate_ids, candidate_logprobs)
    both = (p.lowest != NO_TOKEN) & (q.lowest != NO_TOKEN)
    agree = p.lowest == q.lowest
    unsure = np.flatnonzero(both & ~agree & (p.tied | q.tied))
    if len(unsure):
        agree[unsure] = _sets_meet(p, q, unsure)

    p1 = np.where(p.lowest != NO_TOKEN, np.exp(np.minimum(p.best, 0.0)), np.nan)
    p2 = np.where(p.second > OUTSIDE, np.exp(np.minimum(p.second, 0.0)), np.minimum(p1, np.maximum(1.0 - p1, 0.0)))
    return Choices(
        p.lowest,
        q.lowest,
        flip=both & ~agree,
        tie=both & agree & (p.lowest != q.lowest),
        p1=p1,
        margin=np.where(p.tied, 0.0, p1 - p2),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Favourites:
    """One side's rows in falling order, and what stands first in them."""

    ids: NDArray[np.int32]
    logprobs: NDArray[np.float32]
    lowest: NDArray[np.int32]
    best: NDArray[np.float64]
    second: NDArray[np.float64]
    tied: NDArray[np.bool_]

    @classmethod
    def of(cls, ids: NDArray[np.int32], logprobs: NDArray[np.float32]) -> _Favourites:
        # Streams promise this order, but a capture is a stranger's file; the check costs 10 ns a position.
        headless = ids[:, 0] < 0
        if (logprobs[:, 1:] > logprobs[:, :-1]).any() or (headless.any() and (ids[headless] >= 0).any()):
            ids, logprobs = sort_rows(np.maximum(ids, NO_TOKEN), logprobs)
        best = logprobs[:, 0].astype(np.float64)
        second = np.full(len(ids), UNLISTED) if ids.shape[1] == 1 else logprobs[:, 1].astype(np.float64)
        there = (ids[:, 0] >= 0) & (best > OUTSIDE)
        tied = there & (second == best)
        lowest = np.where(there, ids[:, 0], np.int32(NO_TOKEN))
        if tied.any():
            rows = np.flatnonzero(tied)
            top = logprobs[rows] == logprobs[rows, :1]
            lowest[rows] = np.where(top, ids[rows], np.iinfo(np.int32).max).min(axis=1)
        return cls(ids, logprobs, lowest, best, second, tied)


def _sets_meet(p: _Favourites, q: _Favourites, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Whether the top-1 sets share an id: every pair is looked at, for the few rows with an exact tie."""
    p_top = p.logprobs[rows] == p.logprobs[rows, :1]
    q_top = q.logprobs[rows] == q.logprobs[rows, :1]
    same = p.ids[rows][:, :, None] == q.ids[rows][:, None, :]
    meet: NDArray[np.bool_] = (same & p_top[:, :, None] & q_top[:, None, :]).any(axis=(1, 2))
    return meet


class Triage(IntEnum):
    """How seriously a flip is to be taken, rising."""

    NONE = 0
    """No flip."""
    NOISE = 1
    """Inside this server's own floor at that position."""
    NEAR_TIE = 2
    """The reference hardly preferred its choice."""
    UNCERTAIN = 3
    """The reference preferred it, without being sure."""
    STRONG = 4
    """A strongly preferred choice was overturned."""


@dataclass(frozen=True, slots=True)
class TriageRules:
    """Where the lines between the kinds of flips are drawn; printed with every result."""

    near_tie: float = 0.1
    """A flip is a near-tie where the reference's margin is below this."""
    sure: float = 0.9
    """A flip is strong where the reference gave its first choice at least this probability."""


def triage(
    flip: NDArray[np.bool_],
    margin: NDArray[np.float64],
    p1: NDArray[np.float64],
    *,
    rules: TriageRules | None = None,
    inside_floor: NDArray[np.bool_] | None = None,
) -> NDArray[np.uint8]:
    """Sort flips by what they mean.

    Args:
        flip: bool `[n]`.
        margin: float64 `[n]`, the reference's p1 - p2.
        p1: float64 `[n]`, the reference's probability of its first choice.
        rules: Thresholds; the defaults when None.
        inside_floor: bool `[n]`, the flip and its KL are within what this server does to itself here. None when no
            floor was measured: then nothing is called noise.

    Returns:
        uint8 `[n]`, a `Triage`; 0 where nothing flipped.
    """
    rules = rules or TriageRules()
    kind = np.full(len(flip), Triage.UNCERTAIN, np.uint8)
    kind[p1 >= rules.sure] = Triage.STRONG
    kind[margin < rules.near_tie] = Triage.NEAR_TIE
    if inside_floor is not None:
        kind[inside_floor] = Triage.NOISE
    kind[~flip] = Triage.NONE
    return kind
