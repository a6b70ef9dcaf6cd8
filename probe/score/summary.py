"""The first numbers of a comparison: token-weighted means, quantiles and counts over many positions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probe.score.flips import Triage
from probe.score.pairs import PairScores
from probe.score.rows import RowState

QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
"""Which quantiles of the KL are given, where enough positions support them."""

_TAIL = 10  # a quantile q is given from 10/(1-q) positions on: ten values lie beyond it (p99.9 needs 10,000)


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts and sums over some positions of one pair. Tallies of disjoint positions add up.

    Attributes:
        positions: Positions that have a prediction to compare.
        valid: Those that can be scored; every sum and count below is over these only, but `equal`.
        excluded: Positions that cannot be scored, by `RowState`.
        equal: Bit-identical positions.
        loose: Positions whose shared mass is too small for the KL to say much.
        flips: Positions with disjoint top-1 sets.
        ties: Positions whose greedy choice parts at an exact tie; not among the flips.
        triage: Flips by `Triage`.
        kl: Sum of KL(reference ‖ candidate), nats.
        rkl: Sum of KL(candidate ‖ reference), nats.
        js: Sum of the Jensen-Shannon divergence, nats.
        tv: Sum of the total variation.
        ref_mass: Sum of the reference's listed mass.
        cand_mass: Sum of the candidate's listed mass.
        shared_mass: Sum of the reference's mass of tokens both listed.
        shared_cand_mass: Sum of the candidate's.
        paired: Valid positions where both gave a finite log-prob of the actual token; the sums below are over these.
        ref_logprob: Sum of the reference's log-prob of the actual token, nats.
        cand_logprob: Sum of the candidate's.
        delta_p: Sum of q(t) - p(t) of the actual token.
    """

    positions: int = 0
    valid: int = 0
    excluded: tuple[int, ...] = (0,) * len(RowState)
    equal: int = 0
    loose: int = 0
    flips: int = 0
    ties: int = 0
    triage: tuple[int, ...] = (0,) * len(Triage)
    kl: float = 0.0
    rkl: float = 0.0
    js: float = 0.0
    tv: float = 0.0
    ref_mass: float = 0.0
    cand_mass: float = 0.0
    shared_mass: float = 0.0
    shared_cand_mass: float = 0.0
    paired: int = 0
    ref_logprob: float = 0.0
    cand_logprob: float = 0.0
    delta_p: float = 0.0

    def __add__(self, other: Tally) -> Tally:
        merged: dict[str, Any] = {}
        for each in fields(self):
            mine, theirs = getattr(self, each.name), getattr(other, each.name)
            together = isinstance(mine, tuple)
            merged[each.name] = tuple(map(sum, zip(mine, theirs, strict=True))) if together else mine + theirs
        return Tally(**merged)

    @classmethod
    def of(cls, scores: PairScores, chosen: NDArray[np.bool_], triage: NDArray[np.uint8]) -> Tally:
        """Count and sum over some positions.

        Args:
            scores: One pair over one text, `n` positions.
            chosen: bool `[n]`, which positions.
            triage: uint8 `[n]`, a `Triage` per position.
        """
        states = np.bincount(scores.state[chosen], minlength=len(RowState))
        valid = chosen & scores.valid
        paired = valid & np.isfinite(scores.delta_logp)

        def count(flags: NDArray[np.bool_]) -> int:
            return int((flags & chosen).sum())

        def total(values: NDArray[np.float64], over: NDArray[np.bool_] = valid) -> float:
            return float(values[over].sum())

        return cls(
            positions=int(states.sum() - states[RowState.FIRST]),
            valid=int(states[RowState.VALID]),
            excluded=tuple(int(states[each]) if each > RowState.FIRST else 0 for each in RowState),
            equal=count(scores.equal),
            loose=count(scores.loose()),
            flips=count(scores.flip),
            ties=count(scores.tie),
            triage=tuple(int(each) for each in np.bincount(triage[valid & scores.flip], minlength=len(Triage))),
            kl=total(scores.kl),
            rkl=total(scores.rkl),
            js=total(scores.js),
            tv=total(scores.tv),
            ref_mass=total(scores.ref_mass),
            cand_mass=total(scores.cand_mass),
            shared_mass=total(scores.shared_mass),
            shared_cand_mass=total(scores.shared_cand_mass),
            paired=int(paired.sum()),
            ref_logprob=total(scores.ref_logprob, paired),
            cand_logprob=total(scores.cand_logprob, paired),
            delta_p=total(scores.delta_p, paired),
        )


@dataclass(frozen=True, slots=True)
class Summary:
    """One pair in numbers, every mean weighted by token. A mean over no position is NaN.

    Attributes:
        tally: The counts and sums behind it: flips, ties, exclusions, positions.
        kl: Mean KL(reference ‖ candidate), nats.
        rkl: Mean KL(candidate ‖ reference), nats.
        js: Mean Jensen-Shannon divergence, nats.
        tv: Mean total variation.
        quantiles: Of KL(reference ‖ candidate), by `QUANTILES`; None where too few positions support it.
        kl_max: Greatest KL(reference ‖ candidate).
        shared_mass: Mean of the reference's mass of tokens both listed.
        shared_cand_mass: Mean of the candidate's.
        ppl_ref: The reference's perplexity on the actual tokens.
        ppl_cand: The candidate's on the same tokens.
        delta_p: Mean of q(t) - p(t) of the actual token.
    """

    tally: Tally
    kl: float
    rkl: float
    js: float
    tv: float
    quantiles: Mapping[float, float | None]
    kl_max: float
    shared_mass: float
    shared_cand_mass: float
    ppl_ref: float
    ppl_cand: float
    delta_p: float

    @property
    def flip_rate(self) -> float:
        """Flips per valid position, NaN without one."""
        return _mean(self.tally.flips, self.tally.valid)

    @property
    def excluded(self) -> dict[RowState, int]:
        """Positions in no mean, by reason."""
        return {RowState(at): count for at, count in enumerate(self.tally.excluded) if count}

    @property
    def unscored(self) -> int:
        """Valid positions without a finite log-prob of the actual token on both sides: in no perplexity and no Δp."""
        return self.tally.valid - self.tally.paired

    @property
    def identical(self) -> bool:
        """Whether every position is bit-identical: either the same runtime, or the change never engaged."""
        return 0 < self.tally.positions == self.tally.equal


def summarise(tallies: Iterable[Tally], kl: NDArray[np.float64]) -> Summary:
    """Turn tallies into means.

    Args:
        tallies: Over disjoint positions.
        kl: `[m]`, KL of the positions they are over, in any order; NaN where not valid. For quantiles and maximum.
    """
    total = sum(tallies, Tally())
    values = np.sort(kl[~np.isnan(kl)])
    return Summary(
        tally=total,
        kl=_mean(total.kl, total.valid),
        rkl=_mean(total.rkl, total.valid),
        js=_mean(total.js, total.valid),
        tv=_mean(total.tv, total.valid),
        quantiles={level: _quantile(values, level) for level in QUANTILES},
        kl_max=float(values[-1]) if len(values) else math.nan,
        shared_mass=_mean(total.shared_mass, total.valid),
        shared_cand_mass=_mean(total.shared_cand_mass, total.valid),
        ppl_ref=_perplexity(total.ref_logprob, total.paired),
        ppl_cand=_perplexity(total.cand_logprob, total.paired),
        delta_p=_mean(total.delta_p, total.paired),
    )


def _mean(total: float, count: int) -> float:
    return total / count if count else math.nan


def _perplexity(logprob: float, count: int) -> float:
    surprise = -_mean(logprob, count)
    return math.inf if surprise > 700 else math.exp(surprise)


def _quantile(values: NDArray[np.float64], level: float) -> float | None:
    # A median is honest from the first value on; a tail needs values beyond it.
    supported = len(values) > 0 if level == 0.5 else len(values) * (1 - level) >= _TAIL * (1 - 1e-9)
    return float(np.quantile(values, level)) if supported else None
