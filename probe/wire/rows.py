"""From the alternatives a server listed, position after position, to the arrays of a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from probe.errors import ServerAnswerError
from probe.stream import NO_TOKEN, StreamKind, TokenStream, sort_rows
from probe.wire.limits import widest_row

LARGEST_ID = 2**31 - 1
FLOOR = np.float32(-9999.0)
"""What vLLM writes for minus infinity."""
CERTAIN = np.float32(1e-3)
"""A log-probability may stand this far above 0 by rounding."""
_FLOAT32 = float(np.finfo(np.float32).max)
_Number = TypeVar("_Number", np.int32, np.float32)


@dataclass(slots=True)
class Listing:
    """What a server listed for `n` positions, flat, in the order of its answer.

    Attributes:
        counts: int64 `[n]`, entries per position.
        ids: int64 `[sum of counts]`, token ids.
        logprobs: float64 `[sum of counts]`, NaN where the server wrote null.
        evidence: What is odd about the answer, by name: a sentence each.
    """

    counts: NDArray[np.int64]
    ids: NDArray[np.int64]
    logprobs: NDArray[np.float64]
    evidence: dict[str, str] = field(default_factory=dict)

    def note(self, name: str, where: NDArray[np.bool_] | NDArray[np.int64], what: str) -> None:
        """Keep an oddity with the number of positions and the first of them, if there is any.

        Args:
            name: Key of the evidence.
            where: Flag per position, or the positions.
            what: What holds there.
        """
        positions = np.flatnonzero(where) if where.dtype == np.bool_ else where
        if len(positions):
            self.evidence[name] = f"{len(positions)} positions, the first {int(positions[0])}: {what}"


def token_array(ids: Sequence[int] | NDArray[np.int32], what: str) -> NDArray[np.int32]:
    """Token ids as int32 `[n]`.

    Raises:
        ServerAnswerError: An id is negative or wider than 31 bits.
    """
    try:
        wide = np.asarray(ids, dtype=np.int64).reshape(-1)
    except (OverflowError, TypeError, ValueError):
        raise ServerAnswerError(f"{what} holds something that is no token id") from None
    if len(wide) and (wide.min() < 0 or wide.max() > LARGEST_ID):
        raise ServerAnswerError(f"{what} holds {int(wide.min())} … {int(wide.max())}, which are no token ids")
    return wide.astype(np.int32)


def build_stream(
    kind: StreamKind,
    start: int,
    tokens: NDArray[np.int32],
    k: int,
    listing: Listing,
    rank_of: Callable[[int], int | None] | None = None,
) -> TokenStream:
    """Lay a listing out as a stream: canonical rows of `k` alternatives, the actual token found by its id.

    A server lists the actual token in any case, so a row holds `k` or `k + 1` ids. Of `k + 1`, the alternatives are the
    `k` most likely; where the actual token ties exactly for the last place it is the one that stays outside.

    Args:
        kind: Kind of the stream.
        start: Position of the first token.
        tokens: int32 `[n]`, the actual tokens.
        k: Alternatives asked for.
        listing: What the server listed; gains evidence.
        rank_of: The server's rank of the actual token at an index, asked only where it stands outside.

    Raises:
        ServerAnswerError: A row is absurdly long, an id or a log-probability cannot be one.
    """
    n = len(tokens)
    _check(listing, k)
    width = max(int(listing.counts.max(initial=0)), 1)
    filled = np.arange(width) < listing.counts[:, None]
    ids = np.full((n, width), NO_TOKEN, dtype=np.int32)
    logprobs = np.full((n, width), np.nan, dtype=np.float32)
    ids[filled] = listing.ids
    logprobs[filled] = listing.logprobs

    actual = ids == tokens[:, None]
    found = actual.any(axis=1)
    column = actual.argmax(axis=1)
    logprob = np.where(found, logprobs[np.arange(n), column], np.float32(np.nan)).astype(np.float32)

    crowded = listing.counts > k
    if crowded.any():
        ids[crowded], logprobs[crowded] = _most_likely_first(ids[crowded], logprobs[crowded], actual[crowded])
    top_ids, top_logprobs = _fit(ids, k, NO_TOKEN), _fit(logprobs, k, np.nan)
    top_ids, top_logprobs = sort_rows(top_ids, top_logprobs)

    outside = found & ~(top_ids == tokens[:, None]).any(axis=1)
    rank = np.zeros(n, dtype=np.int32)
    if rank_of is not None:
        for index in np.flatnonzero(outside):
            rank[index] = min(max(rank_of(int(index)) or 0, 0), LARGEST_ID)
    stream = TokenStream(kind, start, tokens, logprob, rank, top_ids, top_logprobs)
    _observe(listing, stream, found, column == 0)
    return stream


def best_words(pairs: Iterable[tuple[int, str | None]]) -> dict[int, str]:
    """One text per token id: the first that is whole.

    The same id reads differently from place to place: a part of a character is `""` or U+FFFD until a later token
    completes it, and that one carries the whole character.
    """
    words: dict[int, str] = {}
    for token, word in pairs:
        if word is None:
            continue
        if token not in words or (not _whole(words[token]) and _whole(word)):
            words[token] = word
    return words


def _whole(word: str) -> bool:
    return bool(word) and "�" not in word


def _check(listing: Listing, k: int) -> None:
    """Refuse what no runtime can mean, before any array of its size is made."""
    longest = int(listing.counts.max(initial=0))
    if longest > widest_row(k):
        position = int(listing.counts.argmax())
        raise ServerAnswerError(
            f"position {position} lists {longest} alternatives where {k} were asked for",
            hint="Ask for fewer alternatives, or look at what stands between flipscope and the server.",
        )
    if len(listing.ids) and (listing.ids.min() < 0 or listing.ids.max() > LARGEST_ID):
        odd = listing.ids[(listing.ids < 0) | (listing.ids > LARGEST_ID)][0]
        raise ServerAnswerError(f"{int(odd)} is listed, which is no token id")
    size = np.abs(listing.logprobs)
    if (size > _FLOAT32).any():
        odd_value = listing.logprobs[size > _FLOAT32][0]
        raise ServerAnswerError(f"{odd_value} is listed as a log-probability, which no float32 holds")


def _most_likely_first(
    ids: NDArray[np.int32], logprobs: NDArray[np.float32], actual: NDArray[np.bool_]
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Rows by falling log-probability; among equals the actual token comes last, then the lower id first."""
    order = np.lexsort((ids, actual, -logprobs, np.isnan(logprobs), ids == NO_TOKEN), axis=1)
    return np.take_along_axis(ids, order, axis=1), np.take_along_axis(logprobs, order, axis=1)


def _fit(array: NDArray[_Number], k: int, padding: float) -> NDArray[_Number]:
    """The first `k` columns, padded where there are fewer."""
    n, width = array.shape
    if width >= k:
        return np.ascontiguousarray(array[:, :k])
    wide = np.full((n, k), padding, dtype=array.dtype)
    wide[:, :width] = array
    return wide


def _observe(listing: Listing, stream: TokenStream, found: NDArray[np.bool_], leads: NDArray[np.bool_]) -> None:
    """Write down what makes an answer less than trustworthy.

    Args:
        listing: The answer; gains evidence.
        stream: What was made of it.
        found: Flag per position: the actual token is listed.
        leads: Flag per position: it is listed first.
    """
    k, counts, top, logprob = stream.k, listing.counts, stream.top_logprobs, stream.logprob
    real = np.arange(len(stream)) >= (1 if stream.kind == "forced" else 0)
    missing = np.isnan(top) & (np.arange(k) < np.minimum(counts, k)[:, None])
    odd = missing.any(axis=1) | (found & np.isnan(logprob)) | (logprob <= FLOOR) | (top <= FLOOR).any(axis=1)
    listing.note("few-alternatives", real & (counts < max(k, 1)), f"fewer than {max(k, 1)} alternatives are listed")
    listing.note("many-alternatives", counts > k + 1, f"more than {k + 1} alternatives are listed")
    listing.note("actual-missing", real & ~found, "the actual token is not listed")
    listing.note("actual-not-first", found & ~leads, "the actual token is not listed first")
    listing.note("non-finite", real & odd, "a log-probability is null or -9999")
    listing.note("positive", (logprob > CERTAIN) | (top > CERTAIN).any(axis=1), "a probability is above 1")
