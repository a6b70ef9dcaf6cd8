"""Means by token, quantiles that are supported, counts of what is left out; first splits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from made_captures import random_rows, stream_of

from probe.score.flips import triage
from probe.score.pairs import PairScores, score_pair
from probe.score.rows import RowState
from probe.score.splits import Split, first_split
from probe.score.summary import Summary, Tally, summarise


def scored(n: int, seed: int) -> PairScores:
    p, q, text = random_rows(n, np.random.default_rng(seed), noise=0.8)
    return score_pair(stream_of(p, text, k=20), stream_of(q, text, k=20))


def tallied(scores: PairScores, chosen: slice = slice(None)) -> Tally:
    mask = np.zeros(len(scores), np.bool_)
    mask[chosen] = True
    return Tally.of(scores, mask, triage(scores.flip, scores.margin, scores.p1))


def summed(*all_scores: PairScores) -> Summary:
    return summarise([tallied(each) for each in all_scores], np.concatenate([each.kl for each in all_scores]))


def test_means_are_weighted_by_token_not_by_prompt() -> None:
    short, long = scored(10, 1), scored(400, 2)
    found = summed(short, long)
    everything = np.concatenate([short.kl, long.kl])
    assert found.kl == pytest.approx(everything.mean(), rel=1e-12)
    assert found.kl != pytest.approx((short.kl.mean() + long.kl.mean()) / 2, rel=1e-3)
    assert found.kl_max == everything.max()
    assert found.quantiles[0.5] == pytest.approx(np.median(everything), rel=1e-12)
    assert found.tally.flips == short.flip.sum() + long.flip.sum() > 0
    assert sum(found.tally.triage) == found.tally.flips
    assert found.flip_rate == found.tally.flips / 410
    assert found.ppl_ref == pytest.approx(
        math.exp(-np.concatenate([short.ref_logprob, long.ref_logprob]).mean()), rel=1e-12
    )


def test_tallies_of_two_halves_are_the_tally_of_the_whole() -> None:
    scores = scored(300, 5)
    whole = tallied(scores)
    halves = tallied(scores, slice(0, 120)) + tallied(scores, slice(120, None))
    assert halves.kl == pytest.approx(whole.kl, rel=1e-12)
    for name in ("positions", "valid", "excluded", "equal", "loose", "flips", "ties", "triage", "paired"):
        assert getattr(halves, name) == getattr(whole, name)


@pytest.mark.parametrize(("n", "given"), [(1, 1), (99, 1), (100, 2), (200, 3), (999, 3), (1000, 4), (10_000, 5)])
def test_a_quantile_is_given_only_where_enough_positions_support_it(n: int, given: int) -> None:
    found = summarise([], np.arange(n, dtype=np.float64))
    assert sum(value is not None for value in found.quantiles.values()) == given


def test_excluded_positions_are_in_no_mean_and_counted() -> None:
    p, q, text = random_rows(50, np.random.default_rng(3))
    candidate = stream_of(q, text, k=20)
    candidate.top_logprobs[7, 3] = np.nan
    candidate.top_ids[9] = -1
    candidate.logprob[9] = np.nan
    candidate.logprob[11] = -9999.0
    scores = score_pair(stream_of(p, text, k=20), candidate)
    found = summed(scores)
    assert found.excluded == {RowState.NON_FINITE: 1, RowState.MISSING: 1}
    assert (found.tally.positions, found.tally.valid, found.unscored) == (50, 48, 1)
    assert found.kl == pytest.approx(np.nanmean(scores.kl), rel=1e-12)


def test_no_position_at_all() -> None:
    found = summarise([], np.zeros(0))
    assert all(math.isnan(value) for value in (found.kl, found.kl_max, found.ppl_ref, found.delta_p, found.flip_rate))
    assert not found.identical


def test_a_perplexity_beyond_float64_is_infinite() -> None:
    tally = Tally(positions=1, valid=1, paired=1, ref_logprob=-9998.0, cand_logprob=-1.0)
    assert summarise([tally], np.zeros(1)).ppl_ref == math.inf


def test_where_two_texts_part() -> None:
    def ids(*tokens: int) -> np.ndarray:
        return np.array(tokens, np.int32)

    assert first_split(ids(1, 2, 3), ids(1, 2, 4)) == Split(2, 3)
    assert first_split(ids(1, 2, 3), ids(1, 2)) == Split(None, 2)
    assert first_split(ids(), ids(1)) == Split(None, 0)
    split = first_split(ids(5, 6, 7), ids(5, 9, 7, 8))
    assert [split.identical_at(n) for n in (1, 2, 3)] == [True, False, False]
    assert [Split(None, 2).identical_at(n) for n in (2, 3)] == [True, None]
