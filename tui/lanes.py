"""What the screen draws of one prompt: every lane's choice per position, as arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from probe.records import Range


@dataclass(frozen=True, slots=True, eq=False)
class Lanes:
    """One prompt's text and what every runtime would have said at each position.

    Lane 0 is the reference. Arrays run over positions `0 … n-1` of prompt + continuation; position 0 has no
    prediction: its `top1` is -1 and its numbers are NaN or false.

    Attributes:
        prompt_id: Name of the prompt.
        labels: Names of the `L` lanes, unique.
        ids: int32 `[n]`, the text.
        top1: int32 `[L, n]`, each lane's first choice (the lowest id of an exact tie); -1 where nothing is listed.
        kl: float32 `[L, n]`, KL(reference ‖ lane) in nats; 0 in lane 0, NaN where it cannot be computed.
        flip: bool `[L, n]`, the lane's top-1 set and the reference's are disjoint.
        tie: bool `[L, n]`, the sets intersect but greedy decoding would part.
        triage: uint8 `[L, n]`, of flips: 0 no flip, 1 noise, 2 near-tie, 3 uncertain, 4 strong.
        loose: bool `[n]`, the listed mass is too small for the KL to say much.
        prompt_length: Position where the continuation starts.
        ranges: Named spans.
        missing: Per lane why it has no predictions here, `""` when it has.
    """

    prompt_id: str
    labels: tuple[str, ...]
    ids: NDArray[np.int32]
    top1: NDArray[np.int32]
    kl: NDArray[np.float32]
    flip: NDArray[np.bool_]
    tie: NDArray[np.bool_]
    triage: NDArray[np.uint8]
    loose: NDArray[np.bool_]
    prompt_length: int
    ranges: tuple[Range, ...] = ()
    missing: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)
