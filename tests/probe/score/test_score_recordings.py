"""Recorded answers of real vLLM give the numbers that plain Python and fsum gave (scripts/make_test_data.py)."""

from __future__ import annotations

import gzip
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_captures import MadeCapture, header_of, record_of

from probe.comparison import Comparison, Positions, PromptOverview, summary
from probe.score.splits import first_split
from probe.stream import TokenStream
from probe.wire.answers import decode_score

BUNDLED = Path(__file__).parents[2] / "data" / "recordings"
RECORDINGS = Path(os.environ.get("FLIPSCOPE_RECORDINGS", BUNDLED))  # a whole folder of recordings, where there is one
REF = json.loads((RECORDINGS / "ref.json").read_text())
EXPECTED = json.loads((RECORDINGS / "expected.json").read_text())
CASES = [(config, part) for config in EXPECTED for part in ("all", "output")]


def body(config: str, prompt: str, kind: str) -> bytes:
    return gzip.decompress((RECORDINGS / config / f"{prompt}.{kind}.json.gz").read_bytes())


@cache
def stream(config: str, prompt: str) -> TokenStream:
    ids = REF[prompt]["prompt_token_ids"] + REF[prompt]["continuation_token_ids"]
    return decode_score(body(config, prompt, "score"), ids, 20).stream


def capture(config: str, prompts: list[str]) -> MadeCapture:
    return MadeCapture(
        header_of(config),
        {
            prompt: record_of(prompt, stream(config, prompt), prompt_length=len(REF[prompt]["prompt_token_ids"]))
            for prompt in prompts
        },
    )


@cache
def overviews(config: str) -> list[PromptOverview]:
    prompts = EXPECTED[config]["all"]["prompts"]
    comparison = Comparison.of([capture("f32", prompts), capture(config, prompts)])
    return [comparison.overview(prompt) for prompt in comparison.prompt_ids]


# The rest is 1 - mass, which float64 knows to 1e-16. Against 80-bit arithmetic a single KL is off by up to 1e-16 with
# fsum and by 7e-16 with vectorised sums, a mean over 900 positions by 5e-18 with either: of a KL of 1e-11 (f32-eager)
# the seventh digit is nobody's. Everywhere else these allow nothing.
ONE_VALUE = 1e-15
A_MEAN = 2e-17


def same_digits(found: float | None, expected: float, unknowable: float) -> bool:
    """The seven digits that the table prints."""
    assert found is not None
    return f"{found:.6e}" == f"{expected:.6e}" or abs(found - expected) < unknowable


@pytest.mark.parametrize(("config", "part"), CASES)
def test_float32_against_another_configuration(config: str, part: Positions) -> None:
    expected: dict[str, Any] = EXPECTED[config][part]
    found = summary(overviews(config), 0, part)
    assert found.tally.valid == found.tally.positions == expected["positions"]
    assert found.tally.flips == expected["flips"]
    assert found.tally.ties == expected["ties"]
    assert found.tally.equal == expected["bit_equal_rows"]
    assert found.unscored == 0
    assert same_digits(found.kl, expected["kl"], A_MEAN)
    assert same_digits(found.rkl, expected["rkl"], A_MEAN)
    assert same_digits(found.quantiles[0.5], expected["kl_median"], ONE_VALUE)
    assert same_digits(found.kl_max, expected["kl_max"], ONE_VALUE)
    assert same_digits(found.shared_mass, expected["mass"], A_MEAN)
    assert same_digits(found.ppl_ref, expected["ppl_ref"], A_MEAN)
    assert same_digits(found.ppl_cand, expected["ppl_cand"], A_MEAN)
    assert same_digits(found.delta_p, expected["dp"], A_MEAN)


@pytest.mark.parametrize("config", EXPECTED)
def test_first_splits_of_the_generated_texts(config: str) -> None:
    for prompt, expected in EXPECTED[config]["all"]["split"].items():
        texts = [
            np.array(json.loads(body(each, prompt, "generate"))["choices"][0]["token_ids"], np.int32)
            for each in ("f32", config)
        ]
        split = first_split(*texts)
        if split.index is not None:
            assert expected == split.index
        elif len(texts[0]) == len(texts[1]):
            assert expected == "identical"
        else:
            assert expected == f"identical for {split.compared}"


def test_a_configuration_against_itself_is_bit_identical() -> None:
    prompts = EXPECTED["bf16"]["all"]["prompts"]
    twice = capture("bf16", prompts)
    comparison = Comparison.of([twice, twice])
    found = summary([comparison.overview(prompt) for prompt in prompts], 0, "all")
    assert found.identical
    assert found.kl == found.rkl == found.js == found.tv == found.kl_max == 0.0
    assert found.tally.flips == found.tally.ties == 0
