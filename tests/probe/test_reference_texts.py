"""Texts taken from a capture: how long another runtime's answer may be."""

from __future__ import annotations

import numpy as np
import pytest

from probe.capture.texts import texts_of
from probe.records import PromptRecord
from probe.stream import StreamKind, TokenStream


def stream(kind: StreamKind, start: int, n: int) -> TokenStream:
    ids = np.arange(n, dtype=np.int32)
    none = np.full((n, 1), -1, np.int32)
    return TokenStream(kind, start, ids, np.zeros(n, np.float32), ids * 0, none, none.astype(np.float32))


@pytest.mark.parametrize(
    ("finish", "budgets", "expected"),
    [
        ("stop", {}, 64),  # ended by itself: another runtime may need more
        ("length", {}, 5),  # cut by a budget of its own
        ("stop", {"p": 24}, 24),
        ("length", {"p": 5}, 5),
        ("stop", {"p": 200}, 64),
    ],
)
def test_a_reference_that_stopped_early_does_not_cut_the_candidates(
    finish: str, budgets: dict[str, int], expected: int
) -> None:
    record = PromptRecord(
        "p", "", 0, 3, forced=stream("forced", 0, 8), generated=stream("generated", 3, 5), finish_reason=finish
    )
    (text,) = texts_of([record], 64, budgets)
    assert (len(text.ids), text.max_tokens) == (3, expected)
    assert text.continuation is not None and len(text.continuation) == 5
