"""Flips, exact ties, margins and triage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from made_captures import stream_of

from probe.score.flips import Triage, TriageRules, triage
from probe.score.pairs import PairScores, score_pair
from probe.stream import NO_TOKEN, TokenStream

Row = dict[int, float]
BF16_TIE = -0.8558279871940613  # a real tie of a bf16 server: two ids, one float32


def pair(p: Row, q: Row, actual: int = 0) -> PairScores:
    return score_pair(stream_of([p], [actual]), stream_of([q], [actual]))


def test_different_first_choices_are_a_flip() -> None:
    scores = pair({7: -0.2, 9: -2.0}, {9: -0.3, 7: -1.8})
    assert scores.flip[0]
    assert not scores.tie[0]
    assert (scores.top1_ref[0], scores.top1_cand[0]) == (7, 9)


def test_an_exact_tie_that_holds_the_others_choice_is_no_flip() -> None:
    scores = pair({33: -0.8, 32: -0.9}, {33: BF16_TIE, 32: BF16_TIE})
    assert not scores.flip[0]
    assert scores.tie[0]  # greedy takes 32 on one side and 33 on the other
    assert scores.top1_cand[0] == 32


def test_a_tie_whose_lowest_id_is_the_others_choice_is_nothing() -> None:
    scores = pair({32: -0.8, 33: -0.9}, {33: BF16_TIE, 32: BF16_TIE})
    assert not scores.flip[0]
    assert not scores.tie[0]


def test_two_tied_sets_that_share_an_id_are_a_tie() -> None:
    scores = pair({5: -1.0, 8: -1.0, 3: -4.0}, {8: -1.0, 9: -1.0, 3: -4.0})
    assert not scores.flip[0]
    assert scores.tie[0]
    assert (scores.top1_ref[0], scores.top1_cand[0]) == (5, 8)


def test_two_tied_sets_without_a_common_id_are_a_flip() -> None:
    scores = pair({5: -1.0, 6: -1.0}, {8: -1.0, 9: -1.0})
    assert scores.flip[0]
    assert not scores.tie[0]


def test_three_way_ties_meet_beyond_their_first_two() -> None:
    third = math.log(0.3)
    scores = pair({1: third, 2: third, 9: third}, {3: third, 4: third, 9: third})
    assert not scores.flip[0]
    assert scores.tie[0]


def test_the_order_of_a_row_does_not_decide() -> None:
    """A capture is a stranger's file: its rows need not be in a stream's order."""
    tidy = stream_of([{4: -0.1, 7: -3.0, 2: -3.5}] * 2)
    order = [[2, 0, 1]] * 2
    shuffled = TokenStream(
        tidy.kind,
        tidy.start,
        tidy.ids,
        tidy.logprob,
        tidy.rank,
        np.take_along_axis(tidy.top_ids, np.array(order), axis=1),
        np.take_along_axis(tidy.top_logprobs, np.array(order), axis=1),
    )
    scores = score_pair(shuffled, tidy)
    assert scores.top1_ref.tolist() == [4, 4]
    assert scores.kl.tolist() == [0.0, 0.0]
    np.testing.assert_allclose(scores.margin, math.exp(-0.1) - math.exp(-3.0), rtol=1e-6)


def test_an_actual_token_beside_the_alternatives_can_tie_at_k_1() -> None:
    reference = stream_of([{5: -0.7, 3: -0.7}], [3], k=1)
    assert reference.top_ids.tolist() == [[5]]
    scores = score_pair(reference, stream_of([{5: -0.2, 3: -2.0}], [3], k=1))
    assert scores.top1_ref[0] == 3
    assert scores.tie[0]
    assert scores.margin[0] == 0


def test_margin_is_the_lead_of_the_references_first_choice() -> None:
    scores = pair({1: math.log(0.7), 2: math.log(0.2)}, {1: -0.1, 2: -3.0})
    assert scores.margin[0] == pytest.approx(0.5, abs=1e-7)
    assert scores.p1[0] == pytest.approx(0.7, abs=1e-7)


def test_margin_with_one_listed_token_is_the_least_that_the_rest_allows() -> None:
    rows: list[Row] = [{1: math.log(0.7)}, {1: math.log(0.4)}]
    scores = score_pair(stream_of(rows), stream_of(rows))
    assert scores.margin.tolist() == pytest.approx([0.4, 0.0], abs=1e-7)


def test_a_side_that_lists_nothing_has_no_first_choice() -> None:
    scores = pair({}, {4: -0.5})
    assert (scores.top1_ref[0], scores.top1_cand[0]) == (NO_TOKEN, 4)
    assert not scores.flip[0]
    assert np.isnan(scores.margin[0])


@pytest.mark.parametrize("seed", range(4))
def test_random_ties_against_sets(seed: int) -> None:
    """Log-probs from a grid of four values tie all the time; the oracle works with Python sets."""
    rng = np.random.default_rng(seed)
    grid = [-1.0, -1.5, -2.0, -2.5]
    rows: list[tuple[Row, Row]] = []
    for _ in range(600):
        sides = []
        for _ in range(2):
            ids = rng.choice(12, size=4, replace=False)
            sides.append({int(token): float(rng.choice(grid)) - 0.5 for token in ids})
        rows.append((sides[0], sides[1]))
    scores = score_pair(stream_of([p for p, _ in rows]), stream_of([q for _, q in rows]))
    assert scores.valid.all()
    for at, (p, q) in enumerate(rows):
        p_top, q_top = ({t for t, v in row.items() if v == max(row.values())} for row in (p, q))
        assert scores.flip[at] == (not p_top & q_top)
        assert scores.tie[at] == (bool(p_top & q_top) and min(p_top) != min(q_top))
        assert (scores.top1_ref[at], scores.top1_cand[at]) == (min(p_top), min(q_top))
        first, second = sorted(p.values(), reverse=True)[:2]
        assert scores.margin[at] == pytest.approx(math.exp(first) - math.exp(second), abs=1e-7)


def test_triage_by_default_thresholds() -> None:
    flip = np.array([True, True, True, True, False])
    margin = np.array([0.05, 0.1, 0.89, 0.95, 0.95])
    p1 = np.array([0.5, 0.5, 0.899, 0.9, 0.99])
    assert triage(flip, margin, p1).tolist() == [
        Triage.NEAR_TIE,
        Triage.UNCERTAIN,
        Triage.UNCERTAIN,
        Triage.STRONG,
        Triage.NONE,
    ]
    assert [int(each) for each in Triage] == [0, 1, 2, 3, 4]


def test_triage_with_other_thresholds() -> None:
    flip, margin, p1 = np.array([True]), np.array([0.25]), np.array([0.6])
    assert triage(flip, margin, p1, rules=TriageRules(near_tie=0.3)).tolist() == [Triage.NEAR_TIE]
    assert triage(flip, margin, p1, rules=TriageRules(sure=0.6)).tolist() == [Triage.STRONG]


def test_only_a_measured_floor_makes_noise() -> None:
    flip, margin, p1 = np.array([True, True, False]), np.array([0.9, 0.9, 0.9]), np.array([0.95] * 3)
    inside = np.array([True, False, True])
    assert triage(flip, margin, p1, inside_floor=inside).tolist() == [Triage.NOISE, Triage.STRONG, Triage.NONE]
    assert Triage.NOISE not in triage(flip, margin, p1)
