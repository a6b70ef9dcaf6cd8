"""One prompt, read and scored: everything the screen needs of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from probe.comparison import Comparison
from probe.score.flips import triage
from probe.stream import NO_TOKEN, TokenStream
from tui.lanes import Lanes


@dataclass(frozen=True, slots=True, eq=False)
class OpenPrompt:
    """A prompt in full.

    Attributes:
        lanes: What every runtime would have said.
        streams: Per lane its forced stream, None where it has none.
        delta_p: float32 `[L, n]`, q - p of the actual token; 0 in lane 0, NaN where it cannot be computed.
        output: bool `[n]`, positions of the headline.
    """

    lanes: Lanes
    streams: tuple[TokenStream | None, ...]
    delta_p: NDArray[np.float32]
    output: NDArray[np.bool_]

    def probability(self, position: int) -> float:
        """What the reference gave the actual token; NaN where it gave nothing."""
        reference = self.streams[0]
        if reference is None or not reference.start <= position < reference.stop:
            return math.nan
        return math.exp(float(reference.logprob[position - reference.start]))


def open_prompt(comparison: Comparison, prompt_id: str) -> OpenPrompt:
    """Read and score a prompt and lay it out by lane. Slow.

    Raises:
        FlipscopeError: Its record cannot be read, or the captures hold different texts.
    """
    scores = comparison.scores(prompt_id)
    shape = len(comparison.labels), len(scores.ids)
    top1 = np.full(shape, NO_TOKEN, np.int32)
    kl = np.full(shape, np.nan, np.float32)
    kl[0] = 0
    delta_p = kl.copy()
    flip, tie = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
    kinds = np.zeros(shape, np.uint8)
    loose = np.zeros(shape[1], np.bool_)
    for lane, stream in enumerate(scores.streams):
        if stream is not None and stream.k:
            top1[lane, stream.start : stream.stop] = stream.top_ids[:, 0]
    for lane, pair in enumerate(scores.pairs, start=1):
        if pair is None:
            continue
        part = slice(pair.start, pair.start + len(pair))
        kl[lane, part], delta_p[lane, part] = pair.kl, pair.delta_p
        flip[lane, part], tie[lane, part] = pair.flip, pair.tie
        kinds[lane, part] = triage(pair.flip, pair.margin, pair.p1, rules=comparison.rules)
        loose[part] |= pair.loose()
    lanes = Lanes(
        prompt_id=prompt_id,
        labels=comparison.labels,
        ids=scores.ids,
        top1=top1,
        kl=kl,
        flip=flip,
        tie=tie,
        triage=kinds,
        loose=loose,
        prompt_length=scores.prompt_length,
        ranges=scores.ranges,
        missing=scores.missing,
    )
    return OpenPrompt(lanes, scores.streams, delta_p, scores.output_mask())
