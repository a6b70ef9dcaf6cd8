"""500 damaged answers of a real vLLM: a named error, or exactly what a slow decoder makes of the same bytes."""

from __future__ import annotations

import json
import random
import re
import resource
import time

import httpx
import pytest
from wire_answers import (
    REF,
    client_of,
    naive_generate,
    naive_score,
    prompt_ids,
    recorded,
    text_ids,
)

from probe.errors import FlipscopeError
from probe.wire.client import RuntimeClient

PROMPT = min(REF, key=lambda prompt: len(text_ids(prompt)))
BATCHES, PER_BATCH = 20, 25
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:e-?\d+)?")
KEY = re.compile(rb'"[^"\\]{1,30}":')
INSTEAD = (
    *(b"null", b"NaN", b"-Infinity", b"1e309", b"-1e309", b"1e39", b"-1", b"0", b"-0.0", b"-9999.0", b"2147483648"),
    *(b"99999999999999999999999", b'"7"', b"[]", b"{}", b"true", b"1e-400", b"007", b"1.5", b"[" * 3000, b"9" * 400),
)


def flip_bytes(body: bytearray, chance: random.Random) -> bytearray:
    for _ in range(chance.randint(1, 8)):
        body[chance.randrange(len(body))] = chance.randrange(256)
    return body


def cut(body: bytearray, chance: random.Random) -> bytearray:
    return body[: chance.randrange(len(body))]


def remove(body: bytearray, chance: random.Random) -> bytearray:
    at = chance.randrange(len(body))
    del body[at : at + chance.choice((1, 2, 40, 2000))]
    return body


def repeat(body: bytearray, chance: random.Random) -> bytearray:
    at, size = chance.randrange(len(body)), chance.choice((1, 60, 1500, 20_000))
    body[at:at] = body[at : at + size] * chance.choice((1, 1, 50))
    return body


def insert(body: bytearray, chance: random.Random) -> bytearray:
    at = chance.randrange(len(body))
    body[at:at] = chance.choice(
        (b"\x00", b"\xff\xfe", b"{", b"[" * 50_000, b'{"a":' * 50_000, b"{}," * 300_000, b"\\u")
    )
    return body


def other_number(body: bytearray, chance: random.Random) -> bytearray:
    found = chance.choice(list(NUMBER.finditer(body)))
    body[found.start() : found.end()] = chance.choice(INSTEAD)
    return body


def other_key(body: bytearray, chance: random.Random) -> bytearray:
    one, other = (chance.choice(list(KEY.finditer(body))) for _ in range(2))
    body[one.start() : one.end()] = chance.choice((other.group(), b'"":', b'"logprob":', b'"-5":', b'"token_id:":'))
    return body


def restructure(body: bytearray, chance: random.Random) -> bytearray:
    answer = json.loads(body)
    choice = answer["choices"][0]
    rows = choice["prompt_logprobs"] or choice["logprobs"]["top_logprobs"]
    at, to = chance.randrange(len(rows)), chance.randrange(len(rows))
    change = chance.randrange(9)
    if change == 0:
        del rows[at]
    elif change == 1:
        rows[at], rows[to] = rows[to], rows[at]
    elif change == 2:
        rows.insert(at, rows[to])
    elif change == 3:
        rows[at] = chance.choice((None, {}, [], "x", 5))
    elif change == 4 and rows[at]:
        for key in list(rows[at])[:: chance.choice((1, 2, 5))]:
            del rows[at][key]
    elif change == 5 and rows[at] and rows[to]:
        rows[at] |= rows[to]
    elif change == 6:
        del choice[chance.choice(list(choice))]
    elif change == 7:
        choice[chance.choice(list(choice))] = chance.choice((None, [], {}, "x", -1, [None]))
    else:
        answer["choices"] = chance.choice(([], [choice, choice], {}, None, [None]))
    return bytearray(json.dumps(answer).encode())


MUTATIONS = (flip_bytes, cut, remove, repeat, insert, other_number, other_number, other_key, restructure, restructure)


def client_for(body: bytes) -> RuntimeClient:
    """A client whose completions are these bytes; its model and nothing else is known."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "smol"}]})
        if b"logprobs" in request.content:
            return httpx.Response(200, content=body)
        return httpx.Response(200, json={"choices": []})

    return client_of(answer)


@pytest.mark.parametrize("batch", range(BATCHES))
async def test_mutated_answers(batch: int) -> None:
    chance = random.Random(batch)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = 0
    for _ in range(PER_BATCH):
        kind = chance.choice(("score", "score", "generate"))
        config = chance.choice(("f32", "bf16", "w4a16-g64"))
        mutate = chance.choice(MUTATIONS)
        body = bytes(mutate(bytearray(recorded(config, PROMPT, kind)), chance))
        ids = text_ids(PROMPT) if kind == "score" else prompt_ids(PROMPT)
        began = time.monotonic()
        client = client_for(body)
        try:
            if kind == "score":
                stream = (await client.score(ids, 20, words=chance.random() < 0.2)).stream
            else:
                stream = (await client.generate(ids, 128, 20)).stream
        except FlipscopeError as error:
            assert error.detail
            assert error.detail.isprintable()
            assert len(error.detail) < 1000
            refused += 1
        else:
            expected = naive_score(body, ids, 20) if kind == "score" else naive_generate(body, ids, 20)
            assert stream.equals(expected), mutate.__name__
        assert time.monotonic() - began < 10
    assert 0 < refused < PER_BATCH
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1_000_000
