from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import log_softmax as oracle

from probe.wire.embedded.rows import log_softmax, rank_of, top_row

LOGITS = st.lists(st.floats(-60, 60, width=32), min_size=1, max_size=40).map(lambda v: np.array([v], np.float32))
# Few distinct values, so that ties are the rule.
TIED = st.lists(st.sampled_from([-3.0, -1.5, -0.5, -np.inf]), min_size=1, max_size=30).map(
    lambda v: np.array(v, np.float32)
)


@given(LOGITS)
def test_log_softmax_is_the_float64_one_rounded_once(logits: NDArray[np.float32]) -> None:
    expected = oracle(logits.astype(np.float64), axis=1)
    np.testing.assert_allclose(log_softmax(logits), expected, rtol=1e-7, atol=1e-12)


def test_a_nan_makes_its_whole_row_nan_and_no_other() -> None:
    logprobs = log_softmax(np.array([[1, np.nan, 2], [1, 2, 3]], np.float32))
    assert np.isnan(logprobs[0]).all()
    assert np.isfinite(logprobs[1]).all()


def test_minus_infinity_stays() -> None:
    assert log_softmax(np.array([[0, -np.inf]], np.float32)).tolist() == [[0.0, -np.inf]]


@given(TIED, st.data())
def test_top_row_is_a_full_sort_by_falling_value_then_rising_id(row: NDArray[np.float32], data: st.DataObject) -> None:
    k = data.draw(st.integers(0, len(row)))
    expected = sorted(range(len(row)), key=lambda token: (-row[token], token))[:k]
    assert top_row(row, k).tolist() == expected


@given(TIED, st.data())
def test_rank_counts_what_is_at_least_as_likely(row: NDArray[np.float32], data: st.DataObject) -> None:
    token = data.draw(st.integers(0, len(row) - 1))
    assert rank_of(row, token) == sum(value >= row[token] for value in row)
