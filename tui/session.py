"""Where the user is and what has been read so far: one comparison, one cursor. No Textual, no I/O of its own."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from probe.comparison import Comparison, Positions, PromptOverview
from probe.errors import FlipscopeError, InputError
from probe.records import Piece
from probe.score.summary import Tally as Scored
from probe.stream import NO_TOKEN
from tui.glyphs import Glyphs, safe_text
from tui.opened import OpenPrompt, open_prompt

KEPT_POSITIONS = 600_000
"""Positions over all lanes kept in full, so that going back is instant: 100 MB at top-20."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What the prompt list says about one prompt.

    Attributes:
        prompt_id: Name of the prompt, free of control characters.
        flips: Per candidate how often it flips in the output; None while that is not known. A prompt without output
            positions is counted whole.
        total: The same over all shown candidates.
        everywhere: Their flips in the whole text, the prompt's own included.
        worst: Gravest triage of a shown candidate's flip in the output, 0 without one.
        failure: Why it cannot be scored, `""` when it can.
    """

    prompt_id: str
    flips: tuple[int, ...] | None
    total: int = 0
    everywhere: int = 0
    worst: int = 0
    failure: str = ""


class Session:
    """The state that several widgets share.

    `read` and `score` are slow and touch the captures: call them on one thread, the same for all. Everything else
    is quick.

    Args:
        comparison: What to look at.
        prompt: Id of the prompt to start with; the first one when None.

    Raises:
        InputError: There is no such prompt, or no prompt at all.
    """

    def __init__(self, comparison: Comparison, *, prompt: str | None = None) -> None:
        self.comparison = comparison
        self.labels: tuple[str, ...] = tuple(_safe(label) for label in comparison.labels)
        self._categories = {
            prompt_id: comparison.captures[0].summary(prompt_id).category for prompt_id in comparison.prompt_ids
        }
        self.prompt_ids = _by_category(comparison.prompt_ids, self._categories)
        if not self.prompt_ids:
            raise InputError("the captures share no prompt", hint="Capture them over the same prompt set.")
        if prompt is not None and prompt not in self._categories:
            raise InputError(f"no prompt is called {_safe(prompt)!r}", hint=f"There are {_some(self.prompt_ids)}.")
        self.prompt_id = prompt or self.prompt_ids[0]
        self.position = 0
        self.lane = 0
        self.shown = [True] * len(self.labels)
        self.glyphs = Glyphs(self.piece)
        self.opened: OpenPrompt | None = None
        self.notes: tuple[str, ...] = tuple(_safe(note) for note in comparison.warnings)
        self._overviews: dict[str, PromptOverview] = {}
        self._counts: dict[str, tuple[tuple[int, int, int], ...]] = {}
        self._failures: dict[str, str] = {}
        self._places: dict[str, tuple[int, int]] = {}
        self._kept: OrderedDict[str, OpenPrompt] = OrderedDict()

    def piece(self, token_id: int) -> Piece:
        """The text of a token id, from the first capture that knows its bytes."""
        best = Piece(b"", exact=False)
        for capture in self.comparison.captures:
            piece = capture.vocabulary.piece(token_id)
            if piece.exact:
                return piece
            if piece.data and not best.data:
                best = piece
        return best

    @property
    def title(self) -> str:
        """The current prompt's name, free of control characters."""
        return _safe(self.prompt_id)

    def categories(self) -> list[tuple[str, list[str]]]:
        """The prompts in the order of the list, under their categories."""
        groups = groupby(self.prompt_ids, key=lambda prompt_id: self._categories[prompt_id])
        return [(_safe(name), list(prompt_ids)) for name, prompt_ids in groups]

    def read(self, prompt_id: str) -> OpenPrompt:
        """Read and score one prompt in full. Slow the first time.

        Raises:
            FlipscopeError: Its record cannot be read.
        """
        kept = self._kept.get(prompt_id)
        if kept is not None:
            self._kept.move_to_end(prompt_id)
            return kept
        opened = open_prompt(self.comparison, prompt_id)
        self.glyphs.cells(opened.lanes.ids)
        self.glyphs.cells(opened.lanes.top1[opened.lanes.top1 != NO_TOKEN])
        self._kept[prompt_id] = opened
        while len(self._kept) > 1 and sum(prompt.lanes.top1.size for prompt in self._kept.values()) > KEPT_POSITIONS:
            self._kept.popitem(last=False)
        return opened

    def score(self, prompt_id: str) -> None:
        """Count the flips of one prompt, for the list and for travel. Slow. A prompt that fails is remembered."""
        if self.scored(prompt_id):
            return
        try:
            overview = self.comparison.overview(prompt_id)
        except FlipscopeError as error:
            self._failures[prompt_id] = _safe(error.detail)
            return
        # Counted here, on the reading thread: the list asks at every repaint.
        self._counts[prompt_id] = tuple(_counts(found, bool(overview.output.any())) for found in overview.tallies)
        self._overviews[prompt_id] = overview

    def scored(self, prompt_id: str) -> bool:
        """Whether `score` has been here."""
        return prompt_id in self._overviews or prompt_id in self._failures

    def unscored(self) -> list[str]:
        """Prompts still to be scored, the current one first, then those after it, round to those before it."""
        at = self.prompt_ids.index(self.prompt_id)
        return [name for name in self.prompt_ids[at:] + self.prompt_ids[:at] if not self.scored(name)]

    def tally(self, prompt_id: str) -> Tally:
        """What the list says about a prompt."""
        name = _safe(prompt_id)
        if prompt_id in self._failures:
            return Tally(name, None, failure=self._failures[prompt_id])
        counts = self._counts.get(prompt_id)
        if counts is None:
            return Tally(name, None)
        shown = [count for count, lane in zip(counts, self.shown[1:], strict=True) if lane]
        return Tally(
            name,
            tuple(count for count, _, _ in counts),
            sum(count for count, _, _ in shown),
            sum(count for _, count, _ in shown),
            max((kind for _, _, kind in shown), default=0),
        )

    def enter(self, prompt_id: str, opened: OpenPrompt, position: int | None = None) -> None:
        """Make a prompt the current one.

        Args:
            prompt_id: Which.
            opened: What `read` gave.
            position: Where to stand; where the user left it, else at its first flip, when None.
        """
        if self.opened is not None:
            self._places[self.prompt_id] = (self.position, self.lane)
        self.prompt_id, self.opened = prompt_id, opened
        kept, lane = self._places.get(prompt_id, (None, self.lane))
        if position is not None:
            self.position = min(max(position, 0), max(len(opened.lanes) - 1, 0))
        elif kept is not None:
            self.position, self.lane = kept, lane
        else:
            self.position = self._first_look(opened)

    def move(self, position: int, lane: int) -> None:
        """The cursor moved."""
        self.position, self.lane = position, lane

    def toggle_lane(self, lane: int) -> bool:
        """Show or hide a candidate; the reference always shows.

        Returns:
            Whether anything changed.
        """
        if not 0 < lane < len(self.shown):
            return False
        self.shown[lane] = not self.shown[lane]
        return True

    def neighbour(self, step: int, *, of: str | None = None) -> str:
        """The prompt `step` places further than `of` (the current one when None), round the ends."""
        at = self.prompt_ids.index(of or self.prompt_id)
        return self.prompt_ids[(at + step) % len(self.prompt_ids)]

    def others(self, step: int) -> Iterator[tuple[str, bool]]:
        """Prompts in the direction of travel, the current one last.

        Yields:
            A prompt id, and whether travel has gone round the end to reach it.
        """
        count = len(self.prompt_ids)
        at = self.prompt_ids.index(self.prompt_id)
        for distance in range(1, count + 1):
            place = at + step * distance
            yield self.prompt_ids[place % count], not 0 <= place < count

    def edge_flip(self, prompt_id: str, step: int, lane: int | None = None) -> int | None:
        """First (`step` 1) or last (-1) flip of a scored prompt, None when it has none of these lanes."""
        overview = self._overviews.get(prompt_id)
        if overview is None:
            return None
        rows = [candidate - 1 for candidate in self._lanes_of_interest(lane)]
        positions = np.flatnonzero(overview.flip[rows].any(axis=0))
        return int(positions[0 if step > 0 else -1]) if len(positions) else None

    def _lanes_of_interest(self, lane: int | None) -> list[int]:
        if lane is not None:
            return [lane] if lane else []
        return [candidate for candidate in range(1, len(self.shown)) if self.shown[candidate]]

    def _first_look(self, opened: OpenPrompt) -> int:
        """Where to stand in a prompt never seen: its first flip of the output, else its first, else its output."""
        rows = [lane for lane in range(1, len(self.shown)) if self.shown[lane]]
        flips = np.flatnonzero(opened.lanes.flip[rows].any(axis=0))
        inside = flips[flips >= opened.lanes.prompt_length]
        for positions in (inside, flips):
            if len(positions):
                return int(positions[0])
        return min(opened.lanes.prompt_length, max(len(opened.lanes) - 1, 0))


def _counts(found: Mapping[Positions, Scored] | None, has_output: bool) -> tuple[int, int, int]:
    """Flips of the output, flips in all, gravest triage in the output; a text without output counts whole."""
    if found is None:
        return 0, 0, 0
    whole = found["output"] + found["prompt"]
    headline = found["output"] if has_output else whole
    return headline.flips, whole.flips, max((kind for kind, count in enumerate(headline.triage) if count), default=0)


def _safe(text: str) -> str:
    return safe_text(text)[0]


def _by_category(prompt_ids: Sequence[str], categories: Mapping[str, str]) -> list[str]:
    """The prompts with those of one category together, categories in the order in which they first come."""
    places: dict[str, int] = {}
    for prompt_id in prompt_ids:
        places.setdefault(categories[prompt_id], len(places))
    return sorted(prompt_ids, key=lambda prompt_id: places[categories[prompt_id]])


def _some(names: Sequence[str]) -> str:
    """The first few names for an error message."""
    listed = ", ".join(_safe(name) for name in names[:8])
    return f"{listed}, …" if len(names) > 8 else listed
