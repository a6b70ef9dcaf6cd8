"""Every position stands in one block, every block fits, every map has its inverse."""

from __future__ import annotations

import time

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tui.layout import FOLD, MARK_CELLS, cell_widths, lay_out, wrap


def edges_of(widths: list[int]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(widths, dtype=np.int64)]).astype(np.int64)


@st.composite
def texts(draw: st.DrawFn) -> tuple[list[int], NDArray[np.bool_], NDArray[np.bool_], list[int], int]:
    widths = draw(st.lists(st.integers(1, 25), max_size=120))
    n = len(widths)
    lines = np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)), dtype=np.bool_)
    words = np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)), dtype=np.bool_)
    forced = sorted(draw(st.sets(st.integers(0, n + 2), max_size=3)))
    return widths, lines, words, forced, draw(st.integers(0, 90))


@given(texts())
def test_blocks_cover_every_position_once_and_fit(
    text: tuple[list[int], NDArray[np.bool_], NDArray[np.bool_], list[int], int],
) -> None:
    widths, lines, words, forced, width = text
    starts = wrap(edges_of(widths), width, line_starts=lines, word_starts=words, forced=forced)
    assert starts[0] == 0
    assert starts[-1] == len(widths)
    assert (np.diff(starts) > 0).all()
    for start, stop in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        assert sum(widths[start:stop]) <= width or stop == start + 1
    assert {at for at in forced if 0 < at < len(widths)} <= set(starts.tolist())


@given(texts(), st.integers(1, 5), st.booleans(), st.randoms(use_true_random=False))
def test_positions_blocks_and_lines_agree(
    text: tuple[list[int], NDArray[np.bool_], NDArray[np.bool_], list[int], int],
    lanes: int,
    fold: bool,
    random: np.random.RandomState,
) -> None:
    widths, lines, words, forced, width = text
    n = len(widths)
    flip = np.array([[random.random() < 0.1 for _ in range(n)] for _ in range(lanes)], dtype=np.bool_).reshape(lanes, n)
    flip[0] = False
    shown = np.array([True, *(random.random() < 0.8 for _ in range(lanes - 1))])
    starts = wrap(edges_of(widths), width, line_starts=lines, word_starts=words, forced=forced)
    layout = lay_out(edges_of(widths), starts, flip, shown, fold=fold)
    for position in range(n):
        block = layout.block_of(position)
        start, stop = layout.span(block)
        assert start <= position < stop
        assert layout.position_at(block, layout.x_of(position)) == position
    for block in range(layout.blocks):
        first, last = layout.line_span(block)
        rows = layout.rows(block)
        assert last - first == 2 + len(rows)
        assert all(layout.block_at(line) == block for line in range(first, last))
        start, stop = layout.span(block)
        for lane in range(1, lanes):
            if flip[lane, start:stop].any() and shown[lane]:
                assert lane in rows
            if not shown[lane]:
                assert lane not in rows
        quiet = sum(shown[1:]) - sum(row != FOLD for row in rows)
        assert quiet == 0 or (FOLD in rows and quiet >= 2)
    assert layout.height == sum(2 + len(layout.rows(block)) for block in range(layout.blocks))


def test_nothing_to_lay_out() -> None:
    starts = wrap(edges_of([]), 80)
    layout = lay_out(edges_of([]), starts, np.zeros((3, 0), dtype=np.bool_), np.ones(3, dtype=np.bool_))
    assert (layout.blocks, layout.height) == (0, 0)


def test_a_flip_makes_room_for_itself_and_its_mark() -> None:
    reference = np.array([3, 3, 3], dtype=np.uint8)
    candidates = np.array([[9, 9, 9], [9, 5, 2], [9, 9, 2]], dtype=np.uint8)
    flip = np.array([[False] * 3, [False, True, True], [False, False, True]])
    assert cell_widths(reference, candidates, flip).tolist() == [3, 5 + MARK_CELLS, 3]
    assert cell_widths(np.array([0], dtype=np.uint8), candidates[:, :1], flip[:, :1]).tolist() == [1]


def test_blocks_end_at_line_ends_then_at_words_then_anywhere() -> None:
    edges = edges_of([1] * 30)
    none = np.zeros(30, dtype=np.bool_)
    at = none.copy()
    at[7] = True
    assert wrap(edges, 10).tolist() == [0, 10, 20, 30]
    assert wrap(edges, 10, line_starts=at).tolist()[:2] == [0, 7]
    assert wrap(edges, 10, word_starts=at).tolist()[:2] == [0, 10]  # 7 of 10 is too early for a word
    at[8] = True
    assert wrap(edges, 10, word_starts=at).tolist()[:2] == [0, 8]
    assert wrap(edges, 10, line_starts=at, word_starts=at).tolist()[:2] == [0, 8]


def test_clicks_beside_the_text_find_its_nearest_end() -> None:
    edges = edges_of([4, 4, 4, 4])
    layout = lay_out(edges, wrap(edges, 8), np.zeros((2, 4), dtype=np.bool_), np.ones(2, dtype=np.bool_))
    assert layout.position_at(0, -5) == 0
    assert layout.position_at(0, 99) == 1
    assert layout.position_at(1, 99) == 3


def test_100_000_positions_are_laid_out_while_a_window_is_dragged() -> None:
    rng = np.random.default_rng(5)
    n = 100_000
    edges = edges_of(rng.integers(1, 9, n).tolist())
    flip = rng.random((5, n)) < 0.05
    lines, words = rng.random(n) < 0.05, rng.random(n) < 0.6
    shown = np.ones(5, dtype=np.bool_)
    best = 1e9
    for width in (190, 100, 180, 71):
        begin = time.process_time()
        lay_out(edges, wrap(edges, width, line_starts=lines, word_starts=words), flip, shown)
        best = min(best, time.process_time() - begin)
    # 12 ms on an idle core; the bound is for a loaded one.
    assert best < 0.1
