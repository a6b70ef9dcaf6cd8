"""Reference against candidate over one text: every per-position number at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from probe.errors import NotComparableError
from probe.score.divergence import LOOSE_MASS, divergences
from probe.score.flips import choices
from probe.score.rows import MAX_LOGPROB, MAX_MASS, OUTSIDE, RowState, merge_rows
from probe.stream import NO_TOKEN, TokenStream

_ENTRIES = 65_536  # per temporary: 1,560 positions at K = 20; ~10 float64 ones live at once, 5 MB whatever the text

# glibc gives freed memory back to the kernel at once until something larger was freed. Fresh pages for every chunk
# halve the speed, so something larger is freed here: 16 MB that are never touched.
np.empty(2 << 20)


@dataclass(frozen=True, eq=False)
class PairScores:
    """Scores of the positions both streams cover; index `i` is position `start + i`, `n` of them.

    A position that is not valid has NaN divergences and masses and neither flips nor ties; it is in no mean, and
    `state` says why. Δp and Δlogp have their own exclusions: they are NaN wherever a server gave no finite
    log-probability of the actual token (-9999 means "outside or -inf").

    Attributes:
        start: Position of index 0.
        kl: float64, KL(reference ‖ candidate) in nats over the shared ids and one class for the rest.
        rkl: float64, KL(candidate ‖ reference) in nats.
        js: float64, Jensen-Shannon divergence in nats.
        tv: float64, total variation.
        ref_mass: float64, probability of all the reference listed.
        cand_mass: float64, probability of all the candidate listed.
        shared_mass: float64, the reference's probability of the tokens both listed.
        shared_cand_mass: float64, the candidate's probability of the tokens both listed.
        flip: bool, the two top-1 sets are disjoint.
        tie: bool, they intersect but greedy decoding would part.
        p1: float64, the reference's probability of its first choice.
        margin: float64, the reference's p1 - p2.
        top1_ref: int32, the reference's first choice (lowest id of a tie), -1 where it lists nothing.
        top1_cand: int32, the same of the candidate.
        ref_logprob: float64, the reference's log-prob of the actual token, NaN where it has no finite one.
        cand_logprob: float64, the candidate's.
        equal: bool, both sides list the same ids with the same float32 bits (false at a text's first token).
        state: uint8, a `RowState`.
    """

    start: int
    kl: NDArray[np.float64]
    rkl: NDArray[np.float64]
    js: NDArray[np.float64]
    tv: NDArray[np.float64]
    ref_mass: NDArray[np.float64]
    cand_mass: NDArray[np.float64]
    shared_mass: NDArray[np.float64]
    shared_cand_mass: NDArray[np.float64]
    flip: NDArray[np.bool_]
    tie: NDArray[np.bool_]
    p1: NDArray[np.float64]
    margin: NDArray[np.float64]
    top1_ref: NDArray[np.int32]
    top1_cand: NDArray[np.int32]
    ref_logprob: NDArray[np.float64]
    cand_logprob: NDArray[np.float64]
    equal: NDArray[np.bool_]
    state: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.state)

    @cached_property
    def valid(self) -> NDArray[np.bool_]:
        """Positions that enter the means, bool `[n]`."""
        valid: NDArray[np.bool_] = self.state == RowState.VALID
        return valid

    @cached_property
    def delta_p(self) -> NDArray[np.float64]:
        """Probability of the actual token, candidate - reference, float64 `[n]`."""
        return np.exp(self.cand_logprob) - np.exp(self.ref_logprob)

    @cached_property
    def delta_logp(self) -> NDArray[np.float64]:
        """Log-probability of the actual token, candidate - reference, nats, float64 `[n]`."""
        return self.cand_logprob - self.ref_logprob

    @property
    def equal_rows(self) -> int:
        """How many positions are bit-identical on both sides."""
        return int(self.equal.sum())

    @property
    def predicted(self) -> int:
        """How many positions have a prediction to compare: all but a text's first token."""
        return int((self.state != RowState.FIRST).sum())

    @property
    def identical(self) -> bool:
        """Whether every predicted position is bit-identical: the change never engaged?"""
        return self.predicted > 0 and self.equal_rows == self.predicted

    def loose(self, least_mass: float = LOOSE_MASS) -> NDArray[np.bool_]:
        """Valid positions whose shared mass is below `least_mass` on either side, bool `[n]`."""
        return self.valid & (np.minimum(self.shared_mass, self.shared_cand_mass) < least_mass)

    def excluded(self) -> dict[RowState, int]:
        """How many predicted positions are in no mean, by reason; reasons that do not occur are left out."""
        counts = np.bincount(self.state, minlength=len(RowState))
        return {state: int(counts[state]) for state in RowState if state > RowState.FIRST and counts[state]}


def score_pair(reference: TokenStream, candidate: TokenStream) -> PairScores:
    """Score a candidate against a reference on the positions both cover.

    Args:
        reference: p.
        candidate: q, over the same tokens; its rows may hold another number of alternatives.

    Raises:
        NotComparableError: The tokens differ at a position that both cover.
    """
    start = max(reference.start, candidate.start)
    stop = max(min(reference.stop, candidate.stop), start)
    p, q = reference.rows(start, stop), candidate.rows(start, stop)
    _require_same_text(p, q)
    scores = _blank(start, stop - start)
    chunk = max(_ENTRIES // (p.k + q.k + 2), 1)
    for begin in range(start, stop, chunk):
        end = min(begin + chunk, stop)
        _score_chunk(scores, begin - start, p.rows(begin, end), q.rows(begin, end))
    return scores


def _require_same_text(p: TokenStream, q: TokenStream) -> None:
    different = np.flatnonzero(p.ids != q.ids)
    if len(different):
        at = int(different[0])
        raise NotComparableError(
            f"the texts differ at position {p.start + at}: "
            f"token {p.ids[at]} in the reference, {q.ids[at]} in the candidate",
            hint="Score both runtimes on the same text: capture them in one run, or with --ref.",
        )


def _blank(start: int, n: int) -> PairScores:
    def numbers() -> NDArray[np.float64]:
        return np.full(n, np.nan)

    def flags() -> NDArray[np.bool_]:
        return np.zeros(n, np.bool_)

    return PairScores(
        start=start,
        kl=numbers(),
        rkl=numbers(),
        js=numbers(),
        tv=numbers(),
        ref_mass=numbers(),
        cand_mass=numbers(),
        shared_mass=numbers(),
        shared_cand_mass=numbers(),
        flip=flags(),
        tie=flags(),
        p1=numbers(),
        margin=numbers(),
        top1_ref=np.full(n, NO_TOKEN, np.int32),
        top1_cand=np.full(n, NO_TOKEN, np.int32),
        ref_logprob=numbers(),
        cand_logprob=numbers(),
        equal=flags(),
        state=np.full(n, RowState.MISSING, np.uint8),
    )


def _score_chunk(scores: PairScores, at: int, p: TokenStream, q: TokenStream) -> None:
    """Fill `scores` from index `at` with what the two aligned chunks say."""
    part = slice(at, at + len(p))
    listed = (*p.listed(), *q.listed())
    rows = merge_rows(*listed)
    found = divergences(rows)
    chosen = choices(*listed)

    state = rows.state.copy()
    one_sided = (chosen.reference == NO_TOKEN) | (chosen.candidate == NO_TOKEN)
    state[(state == RowState.VALID) & one_sided] = RowState.MISSING
    excess = np.maximum(found.reference_mass, found.candidate_mass) > MAX_MASS
    state[(state == RowState.VALID) & excess] = RowState.EXCESS
    if p.start == 0 and p.kind == "forced":
        state[0] = RowState.FIRST
    valid = state == RowState.VALID

    for target, values in (
        (scores.kl, found.kl),
        (scores.rkl, found.rkl),
        (scores.js, found.js),
        (scores.tv, found.tv),
        (scores.ref_mass, found.reference_mass),
        (scores.cand_mass, found.candidate_mass),
        (scores.shared_mass, found.shared_mass),
        (scores.shared_cand_mass, found.shared_candidate_mass),
    ):
        np.copyto(target[part], values, where=valid)
    scores.flip[part] = chosen.flip & valid
    scores.tie[part] = chosen.tie & valid
    scores.p1[part] = chosen.p1
    scores.margin[part] = chosen.margin
    scores.top1_ref[part] = chosen.reference
    scores.top1_cand[part] = chosen.candidate
    scores.ref_logprob[part] = _finite(p.logprob)
    scores.cand_logprob[part] = _finite(q.logprob)
    scores.equal[part] = _equal_rows(p, q) & (state != RowState.FIRST)
    scores.state[part] = state


def _finite(logprob: NDArray[np.float32]) -> NDArray[np.float64]:
    usable = (logprob > OUTSIDE) & (logprob <= MAX_LOGPROB)
    return np.where(usable, logprob, np.float32(np.nan)).astype(np.float64)


def _equal_rows(p: TokenStream, q: TokenStream) -> NDArray[np.bool_]:
    """Rows with the same ids, ranks and float32 bit patterns."""
    if p.k != q.k:
        return np.zeros(len(p), np.bool_)
    equal: NDArray[np.bool_] = (p.rank == q.rank) & (p.logprob.view(np.int32) == q.logprob.view(np.int32))
    rows = np.flatnonzero(equal)
    if len(rows):
        a, b = p.top_logprobs[rows].view(np.int32), q.top_logprobs[rows].view(np.int32)
        equal[rows] = (a == b).all(axis=1) & (p.top_ids[rows] == q.top_ids[rows]).all(axis=1)
    return equal
