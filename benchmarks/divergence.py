"""Positions scored per second on one core, against a KL over plain Python dicts.

Run: `python -m benchmarks.divergence [--positions 50000] [--rounds 7] [--json]`

The rows are real: recorded vLLM answers at K = 20, float32 against another configuration, repeated up to the number of
positions. `score` is everything `score_pair` gives (both KLs, JS, total variation, masses, flips, ties, margins, Δp,
bit-identity); `kl` is the pairing of ids and the divergences alone. The clock is the process's CPU time on one core,
the best of several rounds: wall time on a shared machine measures the neighbours.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from probe.score.divergence import divergences
from probe.score.pairs import score_pair
from probe.score.rows import merge_rows
from probe.stream import TokenStream
from probe.wire.answers import decode_score

RECORDINGS = Path(__file__).parent.parent / "tests" / "data" / "recordings"
TARGET = 1_000_000
"""Pairs of rows per second at K = 20 on one core."""

CHUNK = 1560
DICT_POSITIONS = 2000

Row = dict[int, float]


def recorded(config: str, positions: int) -> TokenStream:
    """Every recorded position of a configuration, repeated; kept apart from a text's first token."""
    ref = json.loads((RECORDINGS / "ref.json").read_text())
    streams = []
    for prompt, text in ref.items():
        ids = text["prompt_token_ids"] + text["continuation_token_ids"]
        body = gzip.decompress((RECORDINGS / config / f"{prompt}.score.json.gz").read_bytes())
        stream = decode_score(body, ids, 20).stream
        streams.append(stream.rows(1, stream.stop))
    repeats = -(-positions // sum(map(len, streams)))

    def joined(name: str) -> np.ndarray:
        return np.concatenate([getattr(stream, name) for stream in streams] * repeats)[:positions]

    names = ("ids", "logprob", "rank", "top_ids", "top_logprobs")
    return TokenStream("generated", 1, *(joined(name) for name in names))


def dict_rows(stream: TokenStream, positions: int) -> list[Row]:
    ids, logprobs = stream.rows(stream.start, stream.start + positions).listed()
    return [
        {token: value for token, value in zip(*row, strict=True) if token >= 0}
        for row in zip(ids.tolist(), logprobs.tolist(), strict=True)
    ]


def dict_kl(p: Row, q: Row) -> float:
    """What a straightforward script does: one dict per row, the shared ids and one class for the rest."""
    total = inside_p = inside_q = 0.0
    for token, log_p in p.items():
        log_q = q.get(token)
        if log_q is not None:
            mass_p = math.exp(log_p)
            inside_p += mass_p
            inside_q += math.exp(log_q)
            total += mass_p * (log_p - log_q)
    outside_p = sum(math.exp(value) for token, value in p.items() if token not in q)
    outside_q = sum(math.exp(value) for token, value in q.items() if token not in p)
    rest_p, rest_q = max(1 - inside_p, outside_p, 1e-10), max(1 - inside_q, outside_q, 1e-10)
    return total + rest_p * math.log(rest_p / rest_q)


def dict_kls(p_rows: list[Row], q_rows: list[Row]) -> list[float]:
    return [dict_kl(p, q) for p, q in zip(p_rows, q_rows, strict=True)]


def kl_only(p: TokenStream, q: TokenStream) -> np.ndarray:
    parts = []
    for begin in range(p.start, p.stop, CHUNK):
        rows = merge_rows(*p.rows(begin, begin + CHUNK).listed(), *q.rows(begin, begin + CHUNK).listed())
        parts.append(divergences(rows).kl)
    return np.concatenate(parts)


def best_time(work: Callable[[], object], rounds: int) -> float:
    """Least CPU seconds of several rounds, the first thrown away."""
    work()
    times = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--positions", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    found = {}
    reference = recorded("f32", options.positions)
    for config in ("bf16", "w4a16-g64"):
        candidate = recorded(config, options.positions)
        rows = [dict_rows(stream, DICT_POSITIONS) for stream in (reference, candidate)]
        plain = dict_kls(*rows)
        np.testing.assert_allclose(score_pair(reference, candidate).kl[: len(plain)], plain, rtol=1e-9, atol=1e-14)
        found[f"f32-{config}"] = {
            "score": round(options.positions / best_time(partial(score_pair, reference, candidate), options.rounds)),
            "kl": round(options.positions / best_time(partial(kl_only, reference, candidate), options.rounds)),
            "dict": round(len(plain) / best_time(partial(dict_kls, *rows), options.rounds)),
        }
    if options.json:
        print(json.dumps(found))
        return
    print(f"{options.positions} pairs of rows at K = 20, one core, pairs/s (target {TARGET:,})")
    for name, speed in found.items():
        print(
            f"{name:14} score {speed['score']:>10,} ({speed['score'] / speed['dict']:.0f}x)   "
            f"kl {speed['kl']:>10,} ({speed['kl'] / speed['dict']:.0f}x)   plain dict, KL only {speed['dict']:>8,}"
        )


if __name__ == "__main__":
    main()
