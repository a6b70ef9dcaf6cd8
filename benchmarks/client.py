"""What the vLLM client costs: decoding against plain json, and its CPU time as a share of the server's.

    python -m benchmarks.client [--recordings FOLDER] [--json] decode [--rounds 9]
    python -m benchmarks.client [--recordings FOLDER] [--json] share URL PID [--max-tokens 64] [--top-k 20]

`decode` reads recorded answers. `typed` is the JSON decoding alone, `stream` everything up to the arrays of a stream,
`plain pipeline` json.loads and the same arrays in plain Python. `share` scores every recorded text and generates after
every prompt on a running server (it starts none), one request at a time; PID is the server's process, and the CPU time
of its descendants counts as the server's (Linux). The clock is CPU time, the best of several rounds for `decode`.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from probe.wire.address import parse_address
from probe.wire.answers import SCORE_DECODER, decode_score
from probe.wire.connect import connect

RECORDINGS = Path(__file__).parent.parent / "tests" / "data" / "recordings"
DECODE_TARGET = 4.0
"""Decoding is to be this many times as fast as json.loads."""
SHARE_TARGET = 0.05
"""Client CPU seconds per CPU second of the server."""


def best(work: Callable[[], object], rounds: int) -> float:
    """CPU seconds of the fastest round."""
    times = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def score_answers(folder: Path) -> Iterator[tuple[list[int], bytes]]:
    """Text and recorded answer of every scoring request."""
    ref = json.loads((folder / "ref.json").read_text())
    for path in sorted(folder.glob("*/*.score.json.gz")):
        text = ref[path.name.removesuffix(".score.json.gz")]
        yield text["prompt_token_ids"] + text["continuation_token_ids"], gzip.decompress(path.read_bytes())


def plain_pipeline(body: bytes, ids: list[int], k: int) -> tuple[np.ndarray, np.ndarray]:
    """Ids and log-probabilities `[n, k]` the obvious way."""
    rows = json.loads(body)["choices"][0]["prompt_logprobs"]
    top_ids = np.full((len(ids), k), -1, np.int32)
    top = np.full((len(ids), k), np.nan, np.float32)
    for position, row in enumerate(rows[1:], 1):
        entries = sorted((-entry["logprob"], int(token)) for token, entry in row.items())[:k]
        top_ids[position, : len(entries)] = [token for _, token in entries]
        top[position, : len(entries)] = [-value for value, _ in entries]
    return top_ids, top


def decode(folder: Path, rounds: int) -> dict[str, Any]:
    """CPU milliseconds over all recorded scoring answers."""
    answers = list(score_answers(folder))
    ways: dict[str, Callable[[list[int], bytes], object]] = {
        "json": lambda ids, body: json.loads(body),
        "typed": lambda ids, body: SCORE_DECODER.decode(body),
        "stream": lambda ids, body: decode_score(body, ids, 20),
        "stream with words": lambda ids, body: decode_score(body, ids, 20, words=True),
        "plain pipeline": lambda ids, body: plain_pipeline(body, ids, 20),
    }
    spent = {
        name: 1000 * sum(best(partial(way, ids, body), rounds) for ids, body in answers) for name, way in ways.items()
    }
    return {
        "bytes": sum(len(body) for _, body in answers),
        "positions": sum(len(ids) for ids, _ in answers),
        "ms": spent,
        "typed_against_json": spent["json"] / spent["typed"],
        "stream_against_json": spent["json"] / spent["stream"],
        "stream_against_plain_pipeline": spent["plain pipeline"] / spent["stream"],
        "target": DECODE_TARGET,
    }


def server_seconds(pid: int) -> float:
    """CPU seconds of a process and its descendants so far."""
    parents: dict[int, int] = {}
    used: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # the process ended meanwhile
            continue
        parents[int(stat.parent.name)] = int(fields[1])
        used[int(stat.parent.name)] = int(fields[11]) + int(fields[12])
    family = {pid}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(used.get(member, 0) for member in family) / os.sysconf("SC_CLK_TCK")


async def share(url: str, pid: int, folder: Path, max_tokens: int, k: int) -> dict[str, Any]:
    """Capture every recorded text on a server, and read both clocks."""
    ref = json.loads((folder / "ref.json").read_text())
    positions = generated = 0
    async with connect(parse_address(url)) as client:
        await client.preflight(k=k, longest=1, max_tokens=1)
        client_began, server_began, wall_began = time.process_time(), server_seconds(pid), time.monotonic()
        for text in ref.values():
            prompt = text["prompt_token_ids"]
            positions += len((await client.score(prompt + text["continuation_token_ids"], k)).stream)
            generated += len((await client.generate(prompt, max_tokens, k)).stream)
        spent = time.process_time() - client_began
        served = server_seconds(pid) - server_began
    return {
        "positions_scored": positions,
        "tokens_generated": generated,
        "wall_s": time.monotonic() - wall_began,
        "client_cpu_s": spent,
        "server_cpu_s": served,
        "share": spent / served,
        "target": SHARE_TARGET,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--recordings", type=Path, default=RECORDINGS)
    parser.add_argument("--json", action="store_true")
    kinds = parser.add_subparsers(dest="kind", required=True)
    kinds.add_parser("decode").add_argument("--rounds", type=int, default=9)
    sharing = kinds.add_parser("share")
    sharing.add_argument("url")
    sharing.add_argument("pid", type=int)
    sharing.add_argument("--max-tokens", type=int, default=64)
    sharing.add_argument("--top-k", type=int, default=20)
    options = parser.parse_args()
    if options.kind == "decode":
        found = decode(options.recordings, options.rounds)
    else:
        found = asyncio.run(share(options.url, options.pid, options.recordings, options.max_tokens, options.top_k))
    if options.json:
        print(msgspec.json.encode(found).decode())
        return
    for name, value in found.items():
        for label, number in value.items() if isinstance(value, dict) else [("", value)]:
            print(f"{name} {label}".strip().ljust(34), f"{number:,.4g}" if isinstance(number, float) else f"{number:,}")


if __name__ == "__main__":
    main()
