"""Two to five captures side by side, the first of them the reference. Reads and scores one prompt at a time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from probe.comparability import circumstances, failed_prompts, missing_prompts, refuse_incomparable
from probe.errors import NotComparableError
from probe.records import Header, Piece, PromptRecord, Range
from probe.score.flips import TriageRules, triage
from probe.score.pairs import PairScores, score_pair
from probe.score.summary import Summary, Tally, summarise
from probe.stream import TokenStream

MAX_CAPTURES = 5
"""More lanes than this cannot be told apart at a glance, nor do they fit 24 lines."""
Positions = Literal["output", "prompt", "all"]
"""Which positions a summary is over: the headline's, the others, or both."""
_PARTS: tuple[Positions, ...] = ("output", "prompt")

_KEPT = 2  # prompts kept in full; a 100,000-position prompt of 5 captures holds 90 MB of rows and 70 MB of scores


class SummaryLike(Protocol):
    """What a capture tells of a prompt without decoding its arrays."""

    @property
    def category(self) -> str: ...  # noqa: D102
    @property
    def positions(self) -> int: ...  # noqa: D102
    @property
    def prompt_length(self) -> int: ...  # noqa: D102
    @property
    def failure(self) -> str: ...  # noqa: D102


class VocabularyLike(Protocol):
    """Bytes of token ids."""

    def piece(self, token_id: int) -> Piece: ...  # noqa: D102


class CaptureLike(Protocol):
    """What a comparison needs of a capture: `probe.store.reader.Capture`, or anything in memory."""

    @property
    def path(self) -> Path: ...  # noqa: D102
    @property
    def header(self) -> Header: ...  # noqa: D102
    @property
    def damage(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def complete(self) -> bool: ...  # noqa: D102
    @property
    def prompt_ids(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def vocabulary(self) -> VocabularyLike: ...  # noqa: D102
    def record(self, prompt_id: str) -> PromptRecord: ...  # noqa: D102
    def summary(self, prompt_id: str) -> SummaryLike: ...  # noqa: D102


@dataclass(frozen=True, slots=True, eq=False)
class PromptScores:
    """One prompt, read and scored in full.

    Attributes:
        prompt_id: Name of the prompt.
        category: Kind of text.
        ids: int32 `[n]`, the text; empty when no capture has it.
        prompt_length: Position where the continuation starts.
        ranges: Named spans.
        output: Spans that make the headline.
        streams: Per capture its forced stream, None where it has none.
        missing: Per capture why it has none, `""` where it has.
        pairs: Per candidate its scores over positions 0 … n-1; None where its stream or the reference's is missing.
    """

    prompt_id: str
    category: str
    ids: NDArray[np.int32]
    prompt_length: int
    ranges: tuple[Range, ...]
    output: tuple[tuple[int, int], ...]
    streams: tuple[TokenStream | None, ...]
    missing: tuple[str, ...]
    pairs: tuple[PairScores | None, ...]

    def output_mask(self) -> NDArray[np.bool_]:
        """Positions of the headline, bool `[n]`; everything from `prompt_length` on when no span is given."""
        mask = np.zeros(len(self.ids), np.bool_)
        for start, stop in self.output or ((self.prompt_length, len(self.ids)),):
            mask[start:stop] = True
        return mask


@dataclass(frozen=True, slots=True, eq=False)
class PromptOverview:
    """What is kept of every prompt, whatever is looked at: 12 bytes a position and candidate.

    Arrays are `[c, n]` over `c` candidates and positions 0 … n-1. A candidate without scores has NaN and false.

    Attributes:
        prompt_id: Name of the prompt.
        category: Kind of text.
        prompt_length: Position where the continuation starts.
        output: bool `[n]`, positions of the headline.
        kl: float64, KL(reference ‖ candidate) in nats, NaN where not valid; in float32 a median loses its 7th digit.
        flip: bool, the two top-1 sets are disjoint.
        tie: bool, they intersect but greedy decoding would part.
        loose: bool, the shared mass is too small for the KL to say much.
        triage: uint8, a `Triage`.
        tallies: Per candidate the sums over output positions and over the others; None without scores.
        missing: Per capture why it has no predictions, `""` when it has.
    """

    prompt_id: str
    category: str
    prompt_length: int
    output: NDArray[np.bool_]
    kl: NDArray[np.float64]
    flip: NDArray[np.bool_]
    tie: NDArray[np.bool_]
    loose: NDArray[np.bool_]
    triage: NDArray[np.uint8]
    tallies: tuple[Mapping[Positions, Tally] | None, ...]
    missing: tuple[str, ...]


class Comparison:
    """Captures that may be compared. Safe to ask from several threads; the captures are read by one at a time.

    Attributes:
        captures: The reference first.
        labels: Their names, unique: a label that comes again gets a number.
        prompt_ids: Prompts that all of them have, in the reference's order.
        warnings: What a reader must know before trusting a difference, a sentence each.
        rules: Thresholds of the triage.
    """

    def __init__(
        self,
        captures: Sequence[CaptureLike],
        labels: tuple[str, ...],
        prompt_ids: tuple[str, ...],
        warnings: tuple[str, ...],
        rules: TriageRules,
    ) -> None:
        self.captures = tuple(captures)
        self.labels = labels
        self.prompt_ids = prompt_ids
        self.warnings = warnings
        self.rules = rules
        self._reading = threading.Lock()
        self._kept: OrderedDict[str, PromptScores] = OrderedDict()

    @classmethod
    def of(cls, captures: Sequence[CaptureLike], *, rules: TriageRules | None = None) -> Comparison:
        """Check that captures can be compared; decodes the first common prompt of each and nothing else.

        Args:
            captures: 2 to 5, the reference first. The same one may come twice.
            rules: Thresholds of the triage; the defaults when None.

        Raises:
            NotComparableError: With both values: too few or many captures, tokenizers or log-prob modes that differ,
                no common prompt, texts of different length, different tokens in the first common prompt.
            CaptureFormatError: A record cannot be read.
        """
        if not 2 <= len(captures) <= MAX_CAPTURES:
            raise NotComparableError(
                f"{len(captures)} {'capture' if len(captures) == 1 else 'captures'} given, "
                f"a comparison takes 2 to {MAX_CAPTURES}",
                hint="The first is the reference, the others are compared with it.",
            )
        headers = [capture.header for capture in captures]
        labels = _unique([header.label for header in headers])
        refuse_incomparable(headers, labels)
        prompts = [capture.prompt_ids for capture in captures]
        common = set.intersection(*map(set, prompts[1:]))
        prompt_ids = tuple(prompt for prompt in prompts[0] if prompt in common)
        if not prompt_ids:
            raise NotComparableError(
                "no prompt is in all captures: "
                + ", ".join(
                    f"{label} has {header.prompts.name} ({len(own)} prompts)"
                    for label, header, own in zip(labels, headers, prompts, strict=True)
                ),
                hint="Capture both runtimes over the same prompt set.",
            )
        failed = _check_lengths(captures, labels, prompt_ids)
        warnings = [
            *circumstances(headers, labels),
            *missing_prompts(prompts, labels),
            *(failed_prompts(names, label) for names, label in zip(failed, labels, strict=True) if names),
            *(
                f"{label}: {damage}"
                for capture, label in zip(captures, labels, strict=True)
                for damage in capture.damage
            ),
        ]
        comparison = cls(captures, labels, prompt_ids, tuple(dict.fromkeys(warnings)), rules or TriageRules())
        comparison._read(prompt_ids[0])
        return comparison

    def scores(self, prompt_id: str) -> PromptScores:
        """Read and score one prompt. The last two are kept.

        Args:
            prompt_id: One of `prompt_ids`.

        Raises:
            NotComparableError: The captures hold different texts under this name.
            CaptureFormatError: A record cannot be read.
        """
        with self._reading:
            kept = self._kept.get(prompt_id)
            if kept is not None:
                self._kept.move_to_end(prompt_id)
                return kept
        found = self._score(prompt_id)
        with self._reading:
            self._kept[prompt_id] = found
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return found

    def overview(self, prompt_id: str) -> PromptOverview:
        """Score one prompt and keep only what counting, finding and colouring need. Its rows are let go.

        Args:
            prompt_id: One of `prompt_ids`.

        Raises:
            NotComparableError: The captures hold different texts under this name.
            CaptureFormatError: A record cannot be read.
        """
        with self._reading:
            kept = self._kept.get(prompt_id)
        return _overview(kept or self._score(prompt_id), self.rules)

    def _score(self, prompt_id: str) -> PromptScores:
        records, ids = self._read(prompt_id)
        streams = tuple(record.forced for record in records)
        reference = streams[0]
        first = records[0]
        return PromptScores(
            prompt_id=prompt_id,
            category=first.category,
            ids=ids,
            prompt_length=first.prompt_length,
            ranges=first.ranges,
            output=first.output,
            streams=streams,
            missing=tuple("" if record.forced else record.failure or "nothing was scored" for record in records),
            pairs=tuple(
                score_pair(reference, stream) if reference is not None and stream is not None else None
                for stream in streams[1:]
            ),
        )

    def _read(self, prompt_id: str) -> tuple[list[PromptRecord], NDArray[np.int32]]:
        """Every capture's record of a prompt, and the text they agree on."""
        with self._reading:
            records = [capture.record(prompt_id) for capture in self.captures]
        texts = [
            (label, record.forced.ids)
            for label, record in zip(self.labels, records, strict=True)
            if record.forced is not None
        ]
        for label, ids in texts[1:]:
            _check_text(prompt_id, texts[0], (label, ids))
        return records, texts[0][1] if texts else np.zeros(0, np.int32)


def summary(overviews: Iterable[PromptOverview], candidate: int, positions: Positions = "output") -> Summary:
    """The first numbers of one candidate over many prompts, weighted by token.

    Args:
        overviews: One per prompt; those in which the candidate has no scores add nothing.
        candidate: 0 for the first capture after the reference.
        positions: Which positions to count.
    """
    tallies: list[Tally] = []
    values: list[NDArray[np.float64]] = []
    for overview in overviews:
        found = overview.tallies[candidate]
        if found is None:
            continue
        for part in _PARTS:
            if positions in (part, "all"):
                tallies.append(found[part])
                values.append(overview.kl[candidate][overview.output == (part == "output")])
    return summarise(tallies, np.concatenate(values) if values else np.zeros(0))


def _overview(scores: PromptScores, rules: TriageRules) -> PromptOverview:
    count, n = len(scores.pairs), len(scores.ids)
    output = scores.output_mask()
    kl = np.full((count, n), np.nan)
    flip, tie, loose = (np.zeros((count, n), np.bool_) for _ in range(3))
    kinds = np.zeros((count, n), np.uint8)
    tallies: list[Mapping[Positions, Tally] | None] = []
    for row, pair in enumerate(scores.pairs):
        if pair is None:
            tallies.append(None)
            continue
        kl[row], flip[row], tie[row], loose[row] = pair.kl, pair.flip, pair.tie, pair.loose()
        kinds[row] = triage(pair.flip, pair.margin, pair.p1, rules=rules)
        tallies.append({part: Tally.of(pair, output == (part == "output"), kinds[row]) for part in _PARTS})
    return PromptOverview(
        prompt_id=scores.prompt_id,
        category=scores.category,
        prompt_length=scores.prompt_length,
        output=output,
        kl=kl,
        flip=flip,
        tie=tie,
        loose=loose,
        triage=kinds,
        tallies=tuple(tallies),
        missing=scores.missing,
    )


def _check_lengths(
    captures: Sequence[CaptureLike], labels: Sequence[str], prompt_ids: Sequence[str]
) -> list[list[str]]:
    """Refuse texts of different length by the captures' indices alone; name every capture's failed prompts."""
    failed: list[list[str]] = [[] for _ in captures]
    for prompt_id in prompt_ids:
        known: tuple[str, int, int] | None = None
        for capture, label, failures in zip(captures, labels, failed, strict=True):
            found = capture.summary(prompt_id)
            if found.failure:
                failures.append(prompt_id)
            if not found.positions:
                continue
            length = (label, found.positions, found.prompt_length)
            known = known or length
            if known[1:] != length[1:]:
                raise NotComparableError(
                    f"prompt {prompt_id}: the text in {known[0]} has {known[1]} tokens, {known[2]} of them prompt, "
                    f"in {label} {length[1]}, {length[2]} of them prompt",
                    hint=_SAME_TEXT,
                )
    return failed


def _check_text(prompt_id: str, one: tuple[str, NDArray[np.int32]], other: tuple[str, NDArray[np.int32]]) -> None:
    (label, ids), (other_label, other_ids) = one, other
    if len(ids) != len(other_ids):
        raise NotComparableError(
            f"prompt {prompt_id}: the text in {label} has {len(ids)} tokens, in {other_label} {len(other_ids)}",
            hint=_SAME_TEXT,
        )
    different = np.flatnonzero(ids != other_ids)
    if len(different):
        at = int(different[0])
        raise NotComparableError(
            f"prompt {prompt_id}: the texts differ at position {at}: "
            f"token {ids[at]} in {label}, {other_ids[at]} in {other_label}",
            hint=_SAME_TEXT,
        )


_SAME_TEXT = "Score all runtimes on one text: capture them in one run, or the later ones with --ref."


def _unique(labels: Sequence[str]) -> tuple[str, ...]:
    taken: set[str] = set()
    named = []
    for label in labels:
        name, number = label, 2
        while name in taken or (name != label and name in labels):
            name, number = f"{label}-{number}", number + 1
        taken.add(name)
        named.append(name)
    return tuple(named)
