from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from probe.records import Piece
from probe.wire.embedded.words import Words

if TYPE_CHECKING:
    from probe.wire.embedded.llama import LlamaEngine

RECORDINGS = Path(__file__).parents[3] / "data" / "recordings"

LLAMA = " 🦙".encode()
WORDS = Words([Piece(b" a"), Piece(LLAMA[:3]), Piece(LLAMA[3:4]), Piece(LLAMA[4:]), Piece(b"<|end|>", special=True)])


def test_the_completing_piece_shows_the_whole_character_with_what_stood_before_it() -> None:
    pending, shown = b"", []
    for token in (0, 1, 2, 3, 0):
        shown.append(WORDS.word(token, pending))
        pending = WORDS.after(token, pending)
    assert shown == [" a", "", "", " 🦙", " a"]


def test_a_piece_that_completes_nothing_is_empty_and_forgotten() -> None:
    assert WORDS.word(3, b"") == ""
    assert WORDS.after(3, b"") == b""


def test_text_leaves_out_special_tokens_and_an_unfinished_end() -> None:
    assert WORDS.text([0, 4, 1]) == " a "
    assert WORDS.verbatim([0, 4, 99, -1]) == " a<|end|>"


@pytest.mark.parametrize("prompt", ["emoji", "finnish", "cisco", "chat-howto"])
def test_words_are_those_that_vllm_sent(engine: LlamaEngine, prompt: str) -> None:
    """Every `decoded_token` of the recorded answers: 21 alternatives at up to 232 positions."""
    words = Words(engine.pieces())
    recorded = json.loads(gzip.decompress((RECORDINGS / "f32" / f"{prompt}.score.json.gz").read_bytes()))["choices"][0]
    ids, pending, wrong, checked = recorded["prompt_token_ids"], b"", [], 0
    for position, row in enumerate(recorded["prompt_logprobs"]):
        if row is not None:
            for token, entry in row.items():
                checked += 1
                if words.word(int(token), pending) != entry["decoded_token"]:
                    wrong.append((position, token, entry["decoded_token"], words.word(int(token), pending)))
        pending = words.after(ids[position], pending)
    assert checked > 1000
    assert wrong == []
