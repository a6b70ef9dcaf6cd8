"""What every lane listed at one position, aligned by token id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from probe.stream import NO_TOKEN, TokenStream

UNLISTED = 0
"""Rank of a token that a lane did not list."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One token id at one position.

    Attributes:
        token_id: The id.
        logprobs: Per lane its log-probability in nats, None where the lane did not list it. NaN and -9999 as sent.
        ranks: Per lane its rank from 1, `UNLISTED` where the lane did not list it.
    """

    token_id: int
    logprobs: tuple[float | None, ...]
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Choices:
    """Every id that any lane listed at a position.

    Attributes:
        position: Where.
        actual: Id of the token that stands there; `NO_TOKEN` outside the text.
        rows: The ids in the reference's order, then those only others listed by their largest probability.
        mass: Per lane the probability that its listed ids hold together; NaN where it lists nothing.
        least: Per lane the smallest log-probability among its top alternatives: an id it did not list is below.
            NaN where it lists nothing.
    """

    position: int
    actual: int
    rows: tuple[Choice, ...]
    mass: tuple[float, ...]
    least: tuple[float, ...]

    def top(self, lane: int) -> int:
        """The id that this lane ranks first, `NO_TOKEN` where it lists nothing."""
        return next((row.token_id for row in self.rows if row.ranks[lane] == 1), NO_TOKEN)


def choices_at(streams: Sequence[TokenStream | None], position: int) -> Choices:
    """Align the rows of all lanes at one position.

    Args:
        streams: Per lane its forced stream, the reference first; None where a lane has none.
        position: Position in the text.
    """
    listed = [_row(stream, position) for stream in streams]
    actual = next((row.actual for row in listed if row is not None), NO_TOKEN)
    found: dict[int, tuple[list[float | None], list[int]]] = {}
    for lane, row in enumerate(listed):
        for token_id, logprob, rank in row.entries if row is not None else ():
            logprobs, ranks = found.setdefault(token_id, ([None] * len(streams), [UNLISTED] * len(streams)))
            logprobs[lane], ranks[lane] = logprob, rank
    rows = [Choice(token_id, tuple(logprobs), tuple(ranks)) for token_id, (logprobs, ranks) in found.items()]
    rows.sort(key=_place)
    return Choices(
        position,
        actual,
        tuple(rows),
        tuple(row.mass if row is not None else np.nan for row in listed),
        tuple(row.least if row is not None else np.nan for row in listed),
    )


@dataclass(frozen=True, slots=True)
class _Listed:
    actual: int
    entries: list[tuple[int, float, int]]
    mass: float
    least: float


def _row(stream: TokenStream | None, position: int) -> _Listed | None:
    if stream is None or not stream.start <= position < stream.stop:
        return None
    index = position - stream.start
    actual = int(stream.ids[index])
    ids, logprobs = stream.top_ids[index].tolist(), stream.top_logprobs[index].tolist()
    entries = [
        (token_id, logprob, rank)
        for rank, (token_id, logprob) in enumerate(zip(ids, logprobs, strict=True), start=1)
        if token_id != NO_TOKEN
    ]
    finite = [logprob for _, logprob, _ in entries if np.isfinite(logprob)]
    least = min(finite, default=np.nan)
    outside = float(stream.logprob[index])
    if actual not in ids and not np.isnan(outside):
        entries.append((actual, outside, max(int(stream.rank[index]), len(entries) + 1)))
        finite.append(outside)
    mass = float(np.exp(finite).sum()) if finite else np.nan
    return _Listed(actual, entries, mass, least)


def _place(row: Choice) -> tuple[int, int, float, int]:
    """Sort key: the reference's own order first, then by the largest probability any other lane gives."""
    if row.ranks[0] != UNLISTED:
        return (0, row.ranks[0], 0.0, row.token_id)
    largest = max((value for value in row.logprobs if value is not None and not np.isnan(value)), default=-np.inf)
    return (1, 0, -largest, row.token_id)
