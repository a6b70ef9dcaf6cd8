"""What cannot be scored is left out, counted, and named; nothing that a file can hold breaks the scorer."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from made_captures import forced, stream_of

from probe.errors import NotComparableError
from probe.score.pairs import score_pair
from probe.score.rows import RowState
from probe.stream import NO_TOKEN, TokenStream

HONEST = {1: math.log(0.6), 2: math.log(0.3)}


def raw(ids: list[list[int]], logprobs: list[list[float]]) -> TokenStream:
    """A stream of exactly these rows; the text is token 1, and no row says more of it than it lists."""
    n = len(ids)
    return TokenStream(
        "generated",
        1,
        np.ones(n, np.int32),
        np.full(n, np.nan, np.float32),
        np.zeros(n, np.int32),
        np.array(ids, np.int32),
        np.array(logprobs, np.float32),
    )


@pytest.mark.parametrize(
    ("ids", "logprobs", "state"),
    [
        ([NO_TOKEN, NO_TOKEN], [math.nan, math.nan], RowState.MISSING),
        ([1, 2], [-9999.0, -9999.0], RowState.MISSING),
        ([1, 2], [-math.inf, -math.inf], RowState.MISSING),
        ([1, 2], [math.nan, -1.0], RowState.NON_FINITE),
        ([1, 2], [-1.0, math.nan], RowState.NON_FINITE),
        ([1, 2], [math.inf, -1.0], RowState.NON_FINITE),
        ([1, 1], [-1.0, -2.0], RowState.DUPLICATE),
        ([1, 1], [-1.0, -1.0], RowState.DUPLICATE),
        ([1, 2], [0.0, 0.0], RowState.EXCESS),
        ([1, 2], [3e38, -1.0], RowState.EXCESS),
        ([1, 2], [-0.5, -2.0], RowState.VALID),
        ([2, NO_TOKEN], [-0.5, math.nan], RowState.VALID),
    ],
)
@pytest.mark.parametrize("side", ["reference", "candidate"])
def test_a_row_that_is_no_distribution_is_excluded_and_named(
    ids: list[int], logprobs: list[float], state: RowState, side: str
) -> None:
    odd, honest = raw([[1, 2], ids], [[-0.5, -2.0], logprobs]), stream_of([HONEST, HONEST], [1, 1])
    scores = score_pair(odd, honest) if side == "reference" else score_pair(honest, odd)
    assert scores.state.tolist() == [RowState.VALID, state]
    assert np.isfinite(scores.kl[0])
    if state == RowState.VALID:
        assert scores.excluded() == {}
        return
    assert scores.excluded() == {state: 1}
    for numbers in (scores.kl, scores.rkl, scores.js, scores.tv, scores.shared_mass, scores.ref_mass):
        assert np.isnan(numbers[1])
    assert not scores.flip[1]
    assert not scores.tie[1]


def test_an_alternative_at_minus_9999_counts_as_not_listed() -> None:
    """0.3 x (ln 0.3 + 9999) would be 3,000 nats; the id joins the rest instead, which keeps the KL a floor."""
    clamped = score_pair(stream_of([HONEST]), stream_of([{1: math.log(0.6), 2: -9999.0, 3: math.log(0.3)}]))
    unlisted = score_pair(stream_of([HONEST]), stream_of([{1: math.log(0.6), 3: math.log(0.3)}]))
    assert clamped.valid[0]
    assert clamped.kl[0] == unlisted.kl[0] < 1
    assert clamped.shared_mass[0] == pytest.approx(0.6)
    assert clamped.ref_mass[0] == pytest.approx(0.9)


def test_minus_9999_on_both_sides_changes_nothing() -> None:
    with_it = score_pair(stream_of([{**HONEST, 9: -9999.0}]), stream_of([{**HONEST, 9: -9999.0}]))
    assert with_it.valid[0]
    assert with_it.kl[0] == 0


@pytest.mark.parametrize("absent", [-9999.0, -math.inf, math.nan, math.inf])
def test_an_actual_token_without_a_finite_logprob_has_no_delta_but_its_row_counts(absent: float) -> None:
    rows, text = [{5: -0.2, 6: -2.5}] * 2, [5, 6]
    reference, candidate = stream_of(rows, text), stream_of(rows, text)
    candidate.logprob[1] = absent
    scores = score_pair(reference, candidate)
    assert scores.valid.all()
    assert np.isfinite(scores.delta_p).tolist() == [True, False]
    assert np.isfinite(scores.delta_logp).tolist() == [True, False]


def test_the_first_token_of_a_text_is_nobodys_fault() -> None:
    text = forced([HONEST, HONEST], [4, 1, 1])
    scores = score_pair(text, text)
    assert scores.state.tolist() == [RowState.FIRST, RowState.VALID, RowState.VALID]
    assert (scores.predicted, scores.equal_rows) == (2, 2)
    assert scores.identical
    assert scores.excluded() == {}


def test_one_bit_makes_two_rows_unequal() -> None:
    one, other = stream_of([HONEST] * 3), stream_of([HONEST] * 3)
    other.top_logprobs[1, 1] = np.nextafter(other.top_logprobs[1, 1], np.float32(0))
    scores = score_pair(one, other)
    assert scores.equal.tolist() == [True, False, True]
    assert not scores.identical


def test_a_rank_outside_the_row_is_part_of_it() -> None:
    one, other = stream_of([HONEST]), stream_of([HONEST])
    other.rank[0] = 40
    assert score_pair(one, other).equal_rows == 0


def test_rows_of_another_k_are_compared_and_never_equal() -> None:
    wide, narrow = stream_of([HONEST]), stream_of([HONEST], k=1)
    scores = score_pair(wide, narrow)
    assert scores.valid[0]
    assert scores.shared_mass[0] == pytest.approx(0.6)
    assert scores.equal_rows == 0


def test_only_positions_that_both_cover_are_scored() -> None:
    whole = forced([HONEST] * 5, [0, 1, 2, 1, 2, 1])
    scores = score_pair(whole, whole.rows(2, 4))
    assert (scores.start, len(scores)) == (2, 2)
    assert len(score_pair(whole.rows(0, 2), whole.rows(4, 6))) == 0
    nothing = stream_of([], [], k=20)
    assert len(score_pair(nothing, nothing)) == 0
    assert not score_pair(nothing, nothing).identical


def test_rows_without_room_for_alternatives_are_missing() -> None:
    bare = stream_of([{}, {}], [1, 1], k=0)
    scores = score_pair(bare, bare)
    assert scores.excluded() == {RowState.MISSING: 2}


def test_different_texts_are_refused_with_both_tokens() -> None:
    one, other = forced([HONEST] * 3, [0, 1, 2, 1]), forced([HONEST] * 3, [0, 1, 1, 2])
    with pytest.raises(NotComparableError, match=r"position 2: token 2 in the reference, 1 in the candidate"):
        score_pair(one, other)


def test_chunks_leave_no_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    rows = [
        [
            {int(token): float(-rng.exponential(2) - 1.5) for token in rng.choice(30, 6, replace=False)}
            for _ in range(50)
        ]
        for _ in range(2)
    ]
    streams = [stream_of(side, list(range(50))) for side in rows]
    whole = score_pair(*streams)
    monkeypatch.setattr("probe.score.pairs._ENTRIES", 7 * 14)
    pieces = score_pair(*streams)
    for name in ("kl", "rkl", "js", "tv", "margin", "top1_ref", "flip", "tie", "state", "delta_p", "equal"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(pieces, name))


def hostile(n: int, k: int) -> st.SearchStrategy[TokenStream]:
    """Any bits that the types allow: negative ids, repeated ones, NaN, infinities, huge values, wild order."""
    ids = hnp.arrays(np.int32, (n, k), elements=st.integers(-3, 6) | st.sampled_from([2**31 - 1, -(2**31)]))
    logprobs = hnp.arrays(np.float32, (n, k), elements=st.floats(width=32, allow_nan=True, allow_infinity=True))
    tame = hnp.arrays(np.float32, (n, k), elements=st.sampled_from([-0.5, -1.0, -9999.0, 0.0, math.nan]))
    actual = hnp.arrays(np.float32, (n,), elements=st.floats(width=32, allow_nan=True, allow_infinity=True))
    build: Callable[..., TokenStream] = lambda ids, rows, own: TokenStream(  # noqa: E731
        "generated", 1, np.zeros(n, np.int32), own, np.zeros(n, np.int32), ids, rows
    )
    return st.builds(build, ids, logprobs | tame, actual)


@given(st.data(), st.integers(0, 5), st.integers(0, 4), st.integers(0, 4))
@settings(max_examples=400, deadline=None)
def test_any_bits_end_in_numbers_or_an_exclusion(data: st.DataObject, n: int, k: int, other_k: int) -> None:
    scores = score_pair(data.draw(hostile(n, k)), data.draw(hostile(n, other_k)))
    valid = scores.valid
    for numbers in (scores.kl, scores.rkl, scores.js, scores.tv, scores.shared_mass, scores.margin):
        assert np.isfinite(numbers[valid]).all()
    assert (scores.kl[valid] >= -0.02).all()  # two masses between 1 and 1.01
    assert np.isnan(scores.kl[~valid]).all()
    assert not scores.flip[~valid].any()
    assert sum(scores.excluded().values()) == n - valid.sum()
