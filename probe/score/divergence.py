"""How far two next-token distributions are apart, from what both servers listed and one class for all the rest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from probe.score.rows import MergedRows

TINY = 1e-10
"""Least probability of the rest, so that a row listing everything still has a logarithm."""

LOOSE_MASS = 0.9
"""Below this shared mass the KL says little: the floor keeps 90 % of the true value at 0.95, 60-65 % at 0.81-0.85."""

_LN2 = float(np.log(2.0))
_LEAST_MEAN = 1e-300  # keeps ln(m) finite where both probabilities underflow; their terms are 0 anyway


@dataclass(frozen=True, slots=True, eq=False)
class Divergences:
    """Per position, float64 `[n]`, natural logarithms. Values of positions that are not valid mean nothing.

    Attributes:
        kl: KL(reference ‖ candidate), nats; a floor of the full-vocabulary value.
        rkl: KL(candidate ‖ reference), nats.
        js: Jensen-Shannon divergence, nats, at most ln 2.
        tv: Total variation, 0 to 1.
        reference_mass: Probability of everything the reference listed.
        candidate_mass: Probability of everything the candidate listed.
        shared_mass: Reference's probability of the tokens both listed.
        shared_candidate_mass: Candidate's probability of the tokens both listed.
    """

    kl: NDArray[np.float64]
    rkl: NDArray[np.float64]
    js: NDArray[np.float64]
    tv: NDArray[np.float64]
    reference_mass: NDArray[np.float64]
    candidate_mass: NDArray[np.float64]
    shared_mass: NDArray[np.float64]
    shared_candidate_mass: NDArray[np.float64]


def divergences(rows: MergedRows) -> Divergences:
    """Compare two rows over the partition {each shared token, the rest}.

    The rest ("other") has probability `max(1 - shared mass, listed but unshared mass, TINY)`. Merging classes can
    only lower a divergence, so each value is a floor of the true one; renormalising over the shared tokens is not.
    float32 log-probs know the rest to about 1e-7: where the candidate's is not well above that, so is the floor.

    Args:
        rows: Both sides' listed tokens, `n` positions.

    Returns:
        All divergences and masses. Equal rows give exactly 0. A KL is not cut at 0, since a cut would bias means of
        runtimes that hardly differ: where float32 log-probs sum to P and Q a little above 1 it can be as low as P - Q,
        -7e-8 in real data.
    """
    logprob = rows.logprob.astype(np.float64)
    probability = np.exp(logprob)
    mass = probability.sum(axis=0)
    reference_mass = np.einsum("ij,ij->j", probability, rows.from_reference)
    candidate_mass = mass - reference_mass

    # Unshared entries become 0 on both sides, so no later sum needs a mask.
    mask = rows.shared.astype(np.float64)
    p = probability[:-1] * mask
    q = np.multiply(probability[1:], mask, out=mask)
    log_p, log_q = logprob[:-1], logprob[1:]
    shared_mass = p.sum(axis=0)
    shared_candidate_mass = q.sum(axis=0)
    other_p = np.maximum(np.maximum(1.0 - shared_mass, reference_mass - shared_mass), TINY)
    other_q = np.maximum(np.maximum(1.0 - shared_candidate_mass, candidate_mass - shared_candidate_mass), TINY)

    # One scratch array for every term: fresh ones of this size cost more in page faults than in arithmetic.
    scratch = np.subtract(log_p, log_q)
    other_ratio = np.log(other_p / other_q)
    kl = _dot(p, scratch) + other_p * other_ratio
    rkl = 0.0 - _dot(q, scratch) - other_q * other_ratio  # never -0.0

    log_mean = np.add(p, q, out=probability[1:])
    log_mean *= 0.5
    np.maximum(log_mean, _LEAST_MEAN, out=log_mean)
    np.log(log_mean, out=log_mean)
    other_log_mean = np.log(0.5 * (other_p + other_q))
    js = 0.5 * (
        _dot(p, np.subtract(log_p, log_mean, out=scratch))
        + _dot(q, np.subtract(log_q, log_mean, out=scratch))
        + other_p * (np.log(other_p) - other_log_mean)
        + other_q * (np.log(other_q) - other_log_mean)
    )
    np.subtract(p, q, out=scratch)
    tv = 0.5 * (np.abs(scratch, out=scratch).sum(axis=0) + np.abs(other_p - other_q))
    return Divergences(
        kl,
        rkl,
        np.where(tv == 0.0, 0.0, np.clip(js, 0.0, _LN2)),  # ln(exp(x)) is x only to 1e-16
        np.clip(tv, 0.0, 1.0),
        reference_mass,
        candidate_mass,
        shared_mass,
        shared_candidate_mass,
    )


def _dot(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum of products over each column."""
    products: NDArray[np.float64] = np.einsum("ij,ij->j", a, b)
    return products
