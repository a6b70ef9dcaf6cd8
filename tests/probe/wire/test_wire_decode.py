"""Answers to streams: recordings against a second decoder, and every oddity on its own."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from wire_answers import (
    CONFIGS,
    FINGERPRINT,
    PROMPTS,
    generate_body,
    naive_generate,
    naive_score,
    prompt_ids,
    recorded,
    score_body,
    text_ids,
)

from probe.errors import ServerAnswerError
from probe.stream import NO_TOKEN, sort_rows
from probe.wire.answers import decode_generate, decode_score

ALL = [(config, prompt) for config in CONFIGS for prompt in PROMPTS]


def scored(ids: list[int], rows: list[Any], k: int, **more: Any) -> Any:
    return decode_score(json.dumps(score_body(ids, rows, **more)).encode(), ids, k)


@pytest.mark.parametrize(("config", "prompt"), ALL)
def test_recorded_scores_decode_bit_for_bit(config: str, prompt: str) -> None:
    body, ids = recorded(config, prompt, "score"), text_ids(prompt)
    answer = decode_score(body, ids, 20)
    assert answer.stream.equals(naive_score(body, ids, 20))
    assert answer.evidence == {}
    assert answer.fingerprint == json.loads(body)["system_fingerprint"]


@pytest.mark.parametrize(("config", "prompt"), ALL)
def test_recorded_generations_decode_bit_for_bit(config: str, prompt: str) -> None:
    body, ids = recorded(config, prompt, "generate"), prompt_ids(prompt)
    answer = decode_generate(body, ids, 128, 20)
    assert answer.stream.equals(naive_generate(body, ids, 20))
    assert answer.evidence == {}
    assert answer.stream.start == len(ids)
    assert answer.text == json.loads(body)["choices"][0]["text"]


def test_every_recorded_number_is_a_float32() -> None:
    rows = json.loads(recorded("bf16", "emoji", "score"))["choices"][0]["prompt_logprobs"]
    numbers = np.array([entry["logprob"] for row in rows[1:] for entry in row.values()])
    assert np.array_equal(numbers.astype(np.float32).astype(np.float64), numbers)


def test_first_row_is_padding() -> None:
    stream = decode_score(recorded("f32", "emoji", "score"), text_ids("emoji"), 20).stream
    assert np.isnan(stream.logprob[0])
    assert (stream.top_ids[0] == NO_TOKEN).all()
    assert np.isnan(stream.top_logprobs[0]).all()


def test_rows_are_canonical_and_unique() -> None:
    stream = decode_score(recorded("bf16", "python", "score"), text_ids("python"), 20).stream
    ids, logprobs = sort_rows(stream.top_ids, stream.top_logprobs)
    assert np.array_equal(ids, stream.top_ids)
    assert np.array_equal(logprobs, stream.top_logprobs, equal_nan=True)
    assert all(len(set(row)) == 20 for row in stream.top_ids[1:].tolist())


def test_rank_is_kept_only_outside_the_alternatives() -> None:
    answer = scored([1, 2], [None, [(2, -9.5, 2923), (5, -0.5), (6, -1.5)]], 2)
    assert answer.stream.rank.tolist() == [0, 2923]
    assert answer.stream.top_ids[1].tolist() == [5, 6]
    inside = scored([1, 2], [None, [(2, -1.5, 2), (5, -0.5, 1)]], 2)
    assert inside.stream.rank.tolist() == [0, 0]
    assert inside.stream.top_ids[1].tolist() == [5, 2]


def test_actual_token_that_ties_for_the_last_place_stays_outside() -> None:
    stream = scored([1, 2], [None, [(2, -1.5, 3), (5, -0.5), (9, -1.5)]], 2).stream
    assert stream.top_ids[1].tolist() == [5, 9]
    assert stream.logprob[1] == np.float32(-1.5)
    assert stream.rank[1] == 3


def test_equal_alternatives_stand_by_rising_id() -> None:
    stream = scored([1, 2], [None, [(2, -5.0), (110, -0.85), (86, -0.85), (7, -3.0)]], 3).stream
    assert stream.top_ids[1].tolist() == [86, 110, 7]


def test_minus_9999_and_null_are_kept() -> None:
    answer = scored([1, 2, 3], [None, [(2, -9999.0), (5, -0.5)], [(3, None), (6, None)]], 2)
    assert answer.stream.logprob[1] == np.float32(-9999)
    assert np.isnan(answer.stream.logprob[2])
    assert answer.stream.top_ids[2].tolist() == [3, 6]
    assert "non-finite" in answer.evidence
    assert answer.evidence["non-finite"].startswith("2 positions, the first 1")


def test_a_listed_null_sorts_behind_numbers_and_before_padding() -> None:
    stream = scored([1, 2], [None, [(2, None), (5, -0.5)]], 3).stream
    assert stream.top_ids[1].tolist() == [5, 2, NO_TOKEN]


@pytest.mark.parametrize("first", [None, []])
def test_first_element_is_null_or_empty(first: list[Any] | None) -> None:
    assert scored([1, 2], [first, [(2, -1.0)]], 1).evidence == {}


def test_one_token_text() -> None:
    stream = scored([7], [None], 20).stream
    assert len(stream) == 1
    assert stream.top_ids.shape == (1, 20)


def test_no_alternatives_asked_for() -> None:
    answer = scored([1, 2], [None, [(2, -3.25, 40)]], 0)
    assert answer.stream.top_ids.shape == (2, 0)
    assert answer.stream.logprob[1] == np.float32(-3.25)
    assert answer.stream.rank[1] == 40
    assert answer.evidence == {}


@pytest.mark.parametrize(
    ("rows", "name"),
    [
        ([None, [(2, -1.0)], [(3, -1.0), (4, -2.0)]], "few-alternatives"),
        ([None, [(2, -1.0), (4, -2.0)], None], "few-alternatives"),
        ([None, [(2, -1.0), (4, -2.0)], []], "actual-missing"),
        ([None, [(9, -1.0), (4, -2.0)], [(3, -1.0), (4, -2.0)]], "actual-missing"),
        ([None, [(4, -1.0), (2, -2.0)], [(3, -1.0), (4, -2.0)]], "actual-not-first"),
        ([None, [(2, -1.0), (4, -2.0), (5, -3.0), (6, -4.0)], [(3, -1.0), (4, -2.0)]], "many-alternatives"),
        ([[(1, -1.0)], [(2, -1.0), (4, -2.0)], [(3, -1.0), (4, -2.0)]], "first-row"),
        ([None, [(2, 0.5), (4, -2.0)], [(3, -1.0), (4, -2.0)]], "positive"),
    ],
)
def test_oddities_are_kept_and_noted(rows: list[Any], name: str) -> None:
    answer = scored([1, 2, 3], rows, 2)
    assert name in answer.evidence
    assert len(answer.stream) == 3


def test_repeated_ids_are_kept_once_and_noted() -> None:
    body = json.dumps(score_body([1, 2], [None, [(2, -1.0, 1), (4, -2.0, 2)]]))
    entry = '"4": {"logprob": -3.0, "rank": 2, "decoded_token": "t4"}'
    repeated = body.replace('"4": {', entry + ', "4": {', 1).encode()
    answer = decode_score(repeated, [1, 2], 2)
    assert answer.evidence["duplicate-ids"].startswith("1 positions, the first 1")
    assert answer.stream.top_ids[1].tolist() == [2, 4]
    assert answer.stream.equals(naive_score(repeated, [1, 2], 2))


def test_a_token_that_looks_like_a_key_is_no_repetition() -> None:
    body = score_body([1, 2], [None, [(2, -1.0), (4, -2.0)]])
    body["choices"][0]["prompt_logprobs"][1]["2"]["decoded_token"] = '"logprob":'
    assert decode_score(json.dumps(body).encode(), [1, 2], 2).evidence == {}


def test_words_are_the_first_whole_text_of_an_id() -> None:
    ids = text_ids("emoji")
    answer = decode_score(recorded("f32", "emoji", "score"), ids, 20, words=True)
    assert answer.stream.equals(decode_score(recorded("f32", "emoji", "score"), ids, 20).stream)
    assert answer.words[29] == "-"
    assert set(answer.stream.top_ids[1:].ravel().tolist()) <= answer.words.keys()
    assert decode_score(recorded("f32", "emoji", "score"), ids, 20).words == {}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"prompt_token_ids": None}, "prompt_token_ids"),
        ({"prompt_token_ids": [1, 2]}, "2 tokens came back for 3"),
        ({"prompt_token_ids": [1, 2, 4]}, "token 2 came back as 4, sent as 3"),
        ({"prompt_token_ids": [1, 2, -3]}, "no token ids"),
        ({"prompt_token_ids": [1, 2, 2**80]}, "no token id"),
        ({"prompt_logprobs": None}, "has no prompt_logprobs"),
        ({"prompt_logprobs": [None, {"2": {"logprob": -1.0}}]}, "2 rows for 3 tokens"),
        ({"prompt_logprobs": [None] * 4}, "4 rows for 3 tokens"),
        ({"prompt_logprobs": [None, {"Paris": {"logprob": -1.0}}, None]}, "Expected"),
        ({"prompt_logprobs": [None, {"2": {"logprob": "-1"}}, None]}, "Expected"),
        ({"prompt_logprobs": [None, {"2": {"rank": 1}}, None]}, "logprob"),
        ({"prompt_logprobs": [None, {"-2": {"logprob": -1.0}}, None]}, "no token id"),
        ({"prompt_logprobs": [None, {str(2**40): {"logprob": -1.0}}, None]}, "no token id"),
        ({"prompt_logprobs": [None, {str(2**70): {"logprob": -1.0}}, None]}, "63 bits"),
        ({"prompt_logprobs": [None, {"2": {"logprob": -1e300}}, None]}, "no float32"),
        ({"prompt_logprobs": [None, {str(i): {"logprob": -1.0} for i in range(300)}, None]}, "log-probabilities"),
        ({"prompt_logprobs": [None, {str(i): {"logprob": -1.0} for i in range(100)}, None]}, "100 alternatives"),
        ({"prompt_logprobs": "none"}, "Expected"),
    ],
)
def test_answers_to_something_else_are_refused(change: dict[str, Any], says: str) -> None:
    body = score_body([1, 2, 3], [None, [(2, -1.0)], [(3, -1.0)]])
    body["choices"][0] |= change
    with pytest.raises(ServerAnswerError) as raised:
        decode_score(json.dumps(body).encode(), [1, 2, 3], 2)
    assert says in raised.value.detail


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"<html>no</html>",
        b'{"choices":[]}',
        b'{"choices":[{},{}]}',
        b'{"choices":' + b"[" * 100_000,
        b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b',"choices":[{}]}',
        b'{"choices":[{"prompt_logprobs":[null,{"2":{"logprob":NaN}}]}]}',
        b'{"choices":[{"prompt_logprobs":[null,{"2":{"logprob":-1e999}}]}]}',
        b'{"choices":[{"text":"\xff\xfe"}],"system_fingerprint":"\xff"}',
        recorded("f32", "emoji", "score")[:5000],
    ],
)
def test_broken_bodies_are_refused(body: bytes) -> None:
    with pytest.raises(ServerAnswerError):
        decode_score(body, [1, 2], 2)


def test_a_million_choices_are_not_unfolded() -> None:
    body = b'{"choices":[' + b"{}," * 5_000_000 + b"{}]}"
    with pytest.raises(ServerAnswerError):
        decode_score(body, [1, 2], 2)


def test_a_million_empty_rows_are_not_unfolded() -> None:
    body = b'{"choices":[{"prompt_logprobs":[' + b"{}," * 7_000_000 + b"{}]}]}"
    with pytest.raises(ServerAnswerError):
        decode_score(body, [1, 2], 2)


def made(ids: list[int], rows: list[Any], n: int = 5, k: int = 2, **more: Any) -> Any:
    return decode_generate(json.dumps(generate_body([1, 2], ids, rows, **more)).encode(), [1, 2], n, k)


def test_generation_rows_find_their_ids() -> None:
    answer = made([7, 8], [[(7, -0.25), (4, -3.0)], [(8, -4.5), (3, -0.5), (6, -1.0)]])
    assert answer.stream.ids.tolist() == [7, 8]
    assert answer.stream.top_ids.tolist() == [[7, 4], [3, 6]]
    assert answer.stream.logprob.tolist() == [-0.25, -4.5]
    assert answer.stream.kind == "generated"
    assert answer.stream.start == 2
    assert answer.fingerprint == FINGERPRINT


def test_silent_cut_is_told() -> None:
    row = [(7, -0.25), (4, -3.0)]
    assert made([7, 7], [row, row], n=5, finish_reason="length").cut
    assert not made([7, 7], [row, row], n=2, finish_reason="length").cut
    assert not made([7, 7], [row, row], n=5, finish_reason="stop").cut


def test_rows_keyed_by_text_are_refused() -> None:
    body = generate_body([1, 2], [7], [[(7, -0.25)]])
    body["choices"][0]["logprobs"]["top_logprobs"] = [{" Paris": -0.25, "": -3.0}]
    with pytest.raises(ServerAnswerError, match="keyed by text") as raised:
        decode_generate(json.dumps(body).encode(), [1, 2], 5, 2)
    assert "return_tokens_as_token_ids" in raised.value.hint


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"token_ids": None}, "lacks token_ids"),
        ({"logprobs": None}, "lacks token_ids or logprobs"),
        ({"token_ids": [7]}, "1 token_ids, 2 tokens"),
        ({"token_ids": [7, 8, 9]}, "3 token_ids"),
        ({"prompt_token_ids": [2]}, "not what was sent"),
        ({"prompt_token_ids": None}, "prompt_token_ids"),
        ({"finish_reason": "abort"}, "'abort'"),
    ],
)
def test_generations_that_do_not_add_up_are_refused(change: dict[str, Any], says: str) -> None:
    row = [(7, -0.25), (4, -3.0)]
    with pytest.raises(ServerAnswerError) as raised:
        made([7, 8], [row, row], **change)
    assert says in raised.value.detail


def test_more_tokens_than_asked_for_are_refused() -> None:
    row = [(7, -0.25), (4, -3.0)]
    with pytest.raises(ServerAnswerError, match="at most 1"):
        made([7, 7], [row, row], n=1)


def test_generation_of_nan_keeps_its_rows() -> None:
    answer = made([7], [[(7, None), (4, None)]])
    assert np.isnan(answer.stream.logprob[0])
    assert answer.stream.top_ids[0].tolist() == [4, 7]
    assert "non-finite" in answer.evidence


def test_two_names_for_one_token_are_noted() -> None:
    row = [(7, -0.25), (4, -3.0)]
    body = generate_body([1, 2], [7], [row])
    body["choices"][0]["logprobs"]["tokens"] = ["token_id:4"]
    body["choices"][0]["logprobs"]["token_logprobs"] = [-3.0]
    evidence = decode_generate(json.dumps(body).encode(), [1, 2], 5, 2).evidence
    assert {"tokens-differ", "chosen-differs"} <= evidence.keys()


def test_empty_generation() -> None:
    answer = made([], [], finish_reason="stop")
    assert len(answer.stream) == 0
    assert answer.stream.k == 2
