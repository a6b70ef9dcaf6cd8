"""Where every position stands: cells, blocks and lines of the flow, as pure functions of arrays."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MARK_CELLS = 1
"""A flip carries its mark in front of its token."""

LINE_BREAK_ROOM = 0.55
"""A block ends early at a line end of the text when at least this share of its width is used."""

WORD_BREAK_ROOM = 0.75
"""Else it ends early at a word's start, so that no word is torn, when at least this share is used."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Layout:
    """Positions cut into blocks for one width.

    A block is drawn from top to bottom as a ruler, the reference, one line per lane that flips in it, and at most
    one line for all lanes that do not.

    Attributes:
        edges: int64 `[n + 1]`, cells before each position as if there were one endless line.
        starts: int64 `[B + 1]`, first position of each block; the last entry is `n`.
        lines: int64 `[B + 1]`, lines before each block; the last entry is the height of everything.
        active: bool `[L, B]`, lanes that have a line of their own in a block.
        folded: bool `[B]`, blocks with one line for the lanes that have none.
        shown: bool `[L]`, lanes that are drawn at all.
    """

    edges: NDArray[np.int64]
    starts: NDArray[np.int64]
    lines: NDArray[np.int64]
    active: NDArray[np.bool_]
    folded: NDArray[np.bool_]
    shown: NDArray[np.bool_]

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return len(self.starts) - 1

    @property
    def height(self) -> int:
        """Lines of everything."""
        return int(self.lines[-1])

    def block_of(self, position: int) -> int:
        """The block in which a position stands."""
        return min(max(int(np.searchsorted(self.starts, position, side="right")) - 1, 0), max(self.blocks - 1, 0))

    def block_at(self, line: int) -> int:
        """The block that a line belongs to."""
        return min(max(int(np.searchsorted(self.lines, line, side="right")) - 1, 0), max(self.blocks - 1, 0))

    def span(self, block: int) -> tuple[int, int]:
        """First position of a block and the one after its last."""
        return int(self.starts[block]), int(self.starts[block + 1])

    def line_span(self, block: int) -> tuple[int, int]:
        """First line of a block and the one after its last."""
        return int(self.lines[block]), int(self.lines[block + 1])

    def x_of(self, position: int) -> int:
        """Cells in front of a position in its block."""
        return int(self.edges[position] - self.edges[self.starts[self.block_of(position)]])

    def position_at(self, block: int, x: int) -> int:
        """The position that covers a cell of a block; its first or last one when the cell is outside."""
        start, stop = self.span(block)
        at = int(np.searchsorted(self.edges[start : stop + 1], self.edges[start] + x, side="right")) - 1
        return min(max(start + at, start), max(stop - 1, start))

    def rows(self, block: int) -> list[int]:
        """What stands on each line below the ruler and the reference: a lane, or `FOLD`."""
        rows = np.flatnonzero(self.active[:, block]).tolist()
        return [*rows, FOLD] if self.folded[block] else rows


FOLD = -1
"""Row of the lanes that do not flip in a block."""


def cell_widths(
    reference: NDArray[np.uint8],
    candidates: NDArray[np.uint8],
    flip: NDArray[np.bool_],
) -> NDArray[np.int64]:
    """How wide each position is: its own token, or the widest flip with its mark.

    Args:
        reference: uint8 `[n]`, width of the text's tokens.
        candidates: uint8 `[L, n]`, width of every lane's first choice.
        flip: bool `[L, n]`, where that choice is drawn.

    Returns:
        int64 `[n]`, at least 1.
    """
    flips = np.where(flip, candidates.astype(np.int64) + MARK_CELLS, 0).max(axis=0, initial=0)
    widths: NDArray[np.int64] = np.maximum(np.maximum(reference, flips), 1)
    return widths


def wrap(
    edges: NDArray[np.int64],
    width: int,
    *,
    line_starts: NDArray[np.bool_] | None = None,
    word_starts: NDArray[np.bool_] | None = None,
    forced: Sequence[int] = (),
) -> NDArray[np.int64]:
    """Cut positions into blocks that fit a width.

    Args:
        edges: int64 `[n + 1]`, prefix sums of the cell widths.
        width: Cells to fill. A position wider than that has a block for itself.
        line_starts: bool `[n]`, positions that begin a line of the text.
        word_starts: bool `[n]`, positions that begin a word.
        forced: Positions that begin a block in any case, rising.

    Returns:
        int64 `[B + 1]`, first positions of the blocks, then `n`.
    """
    n = len(edges) - 1
    if n <= 0:
        return np.zeros(1, dtype=np.int64)
    # Lists: bisect on a list is 10 times as fast as searchsorted for one value, and there is one value per block.
    before = edges.tolist()
    line_before = _latest(line_starts, n)
    word_before = _latest(word_starts, n)
    walls = [*(p for p in forced if 0 < p < n), n]
    width = max(width, 1)
    starts = [0]
    start = 0
    wall = 0
    while start < n:
        while walls[wall] <= start:
            wall += 1
        stop = bisect_right(before, before[start] + width, start + 1, n + 1) - 1
        stop = max(stop, start + 1)
        if stop >= walls[wall]:
            stop = walls[wall]
        else:
            origin = before[start]
            line, word = line_before[stop], word_before[stop]
            if line > start and before[line] - origin >= width * LINE_BREAK_ROOM:
                stop = line
            elif word > start and before[word] - origin >= width * WORD_BREAK_ROOM:
                stop = word
        starts.append(stop)
        start = stop
    return np.asarray(starts, dtype=np.int64)


def _latest(marks: NDArray[np.bool_] | None, n: int) -> list[int]:
    """Per position the last marked one up to and including it, 0 without one; `n` itself counts as marked."""
    if marks is None:
        return [0] * (n + 1)
    latest = np.maximum.accumulate(np.where(marks, np.arange(n), 0))
    return [*latest.tolist(), n]


def lay_out(
    edges: NDArray[np.int64],
    starts: NDArray[np.int64],
    flip: NDArray[np.bool_],
    shown: NDArray[np.bool_],
    *,
    fold: bool = True,
) -> Layout:
    """Give every block its lines.

    Args:
        edges: int64 `[n + 1]`, prefix sums of the cell widths.
        starts: int64 `[B + 1]`, from `wrap`.
        flip: bool `[L, n]`.
        shown: bool `[L]`, lanes that are drawn at all; lane 0, the reference, always is.
        fold: Whether two or more lanes without a flip share a line.

    Returns:
        The layout.
    """
    candidates = np.asarray(shown, dtype=np.bool_).copy()
    candidates[:1] = False
    blocks = len(starts) - 1
    active = np.zeros((len(candidates), blocks), dtype=np.bool_)
    folded = np.zeros(blocks, dtype=np.bool_)
    if blocks and fold:
        active = np.logical_or.reduceat(flip, starts[:-1], axis=1) & candidates[:, None]
        quiet = candidates.sum() - active.sum(axis=0)
        folded = quiet >= 2
        active |= candidates[:, None] & ~folded
    elif blocks:
        active |= candidates[:, None]
    heights = 2 + active.sum(axis=0) + folded
    lines = np.concatenate([[0], np.cumsum(heights)]).astype(np.int64)
    return Layout(edges, starts, lines, active, folded, np.asarray(shown, dtype=np.bool_))
