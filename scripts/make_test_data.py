"""Copy a part of a folder of recorded vLLM answers to tests/data/recordings, with the numbers it must give.

    python scripts/make_test_data.py RECORDINGS [--prompts a,b] [--configs f32,bf16] [--out FOLDER] [--check]

RECORDINGS holds `<config>/<prompt>.{score,generate}.json.gz` (raw answers), `ref.json` (prompt and continuation
ids), `manifest.json` (how every configuration was started) and `expected.json` (numbers over every prompt). The copy
keeps the answers byte for byte and computes its own `expected.json` over the kept prompts: plain Python and fsum,
nothing of flipscope, so that it can stand as a second opinion. `--check` computes the numbers of the whole source
folder instead and compares them with its own expected.json.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

CONFIGS = "f32,bf16,w8a8-int8,w4a16-g64,bf16-kvfp8,f32-eager"
PROMPTS = "prose-en,python,cisco,emoji,finnish,chat-howto"
REFERENCE = "f32"
OUT = Path(__file__).resolve().parent.parent / "tests" / "data" / "recordings"

Row = dict[int, float]


def answer(folder: Path, config: str, prompt: str, kind: str) -> dict[str, Any]:
    """The one choice of a recorded answer."""
    body = json.loads(gzip.decompress((folder / config / f"{prompt}.{kind}.json.gz").read_bytes()))
    choice: dict[str, Any] = body["choices"][0]
    return choice


def rows(choice: dict[str, Any]) -> list[Row]:
    """Listed log-probabilities per position; position 0 has none."""
    return [{int(key): value["logprob"] for key, value in (row or {}).items()} for row in choice["prompt_logprobs"]]


def kl(p: Row, q: Row) -> float:
    """KL(p‖q) in nats over the ids both list, the rest in one class."""
    shared = p.keys() & q.keys()

    def rest(side: Row) -> float:
        listed = math.fsum(math.exp(value) for key, value in side.items() if key not in shared)
        return max(1 - math.fsum(math.exp(side[key]) for key in shared), listed, 1e-10)

    p_rest, q_rest = rest(p), rest(q)
    terms = [math.exp(p[key]) * (p[key] - q[key]) for key in shared]
    return math.fsum([*terms, p_rest * math.log(p_rest / q_rest)])


def top(row: Row) -> set[int]:
    """Every id at the maximum."""
    best = max(row.values())
    return {key for key, value in row.items() if value == best}


def first_split(one: list[int], other: list[int]) -> int | str:
    """First index where two generated texts differ."""
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return "identical" if len(one) == len(other) else f"identical for {min(len(one), len(other))}"


def numbers(folder: Path, config: str, prompts: Iterable[str], ref: dict[str, Any], output: bool) -> dict[str, Any]:
    """The table row of one configuration against the reference."""
    forward, backward, mass, delta, ours, theirs = [], [], [], [], [], []
    flips = ties = equal = 0
    splits: dict[str, int | str] = {}
    kept = [prompt for prompt in prompts if (folder / config / f"{prompt}.score.json.gz").is_file()]
    for prompt in kept:
        ids = ref[prompt]["prompt_token_ids"] + ref[prompt]["continuation_token_ids"]
        p_rows = rows(answer(folder, REFERENCE, prompt, "score"))
        q_rows = rows(answer(folder, config, prompt, "score"))
        for position in range(len(ref[prompt]["prompt_token_ids"]) if output else 1, len(ids)):
            p, q, token = p_rows[position], q_rows[position], ids[position]
            forward.append(kl(p, q))
            backward.append(kl(q, p))
            mass.append(math.fsum(math.exp(p[key]) for key in p.keys() & q.keys()))
            delta.append(math.exp(q[token]) - math.exp(p[token]))
            ours.append(-p[token])
            theirs.append(-q[token])
            if not top(p) & top(q):
                flips += 1
            elif min(top(p)) != min(top(q)):
                ties += 1
            equal += p == q
        generated = [answer(folder, side, prompt, "generate")["token_ids"] for side in (REFERENCE, config)]
        splits[prompt] = first_split(*generated)
    count = len(forward)
    return {
        "positions": count,
        "kl": math.fsum(forward) / count,
        "rkl": math.fsum(backward) / count,
        "mass": math.fsum(mass) / count,
        "flips": flips,
        "ties": ties,
        "bit_equal_rows": equal,
        "dp": math.fsum(delta) / count,
        "split": splits,
        "prompts": kept,
        "kl_median": statistics.median(forward),
        "kl_max": max(forward),
        "ppl_ref": math.exp(math.fsum(ours) / count),
        "ppl_cand": math.exp(math.fsum(theirs) / count),
    }


def table(folder: Path, configs: list[str], prompts: list[str], ref: dict[str, Any]) -> dict[str, Any]:
    """expected.json: every configuration but the reference, over all positions and over the output."""
    return {
        config: {
            "all": numbers(folder, config, prompts, ref, output=False),
            "output": numbers(folder, config, prompts, ref, output=True),
        }
        for config in configs
        if config != REFERENCE
    }


def differences(one: Any, other: Any, where: str = "") -> list[str]:
    """Where two trees of numbers differ by more than 1e-9 relative."""
    if isinstance(one, dict) and isinstance(other, dict):
        return [
            line
            for key in sorted(one.keys() | other.keys())
            for line in differences(one.get(key), other.get(key), f"{where}/{key}")
        ]
    if isinstance(one, float) and isinstance(other, int | float):
        return [] if math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-15) else [f"{where}: {one} {other}"]
    return [] if one == other else [f"{where}: {one} {other}"]


def main() -> None:
    """Copy, compute, report the size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("recordings", type=Path)
    parser.add_argument("--configs", default=CONFIGS)
    parser.add_argument("--prompts", default=PROMPTS)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--check", action="store_true", help="compare the source folder with its own expected.json")
    options = parser.parse_args()
    source: Path = options.recordings
    ref = json.loads((source / "ref.json").read_text())
    if options.check:
        expected = json.loads((source / "expected.json").read_text())
        found = differences(expected, table(source, [*expected], [*ref], ref))
        sys.exit("\n".join(found) or 0)
    configs, prompts = options.configs.split(","), options.prompts.split(",")
    out: Path = options.out
    for config in configs:
        (out / config).mkdir(parents=True, exist_ok=True)
        for prompt in prompts:
            for kind in ("score", "generate"):
                name = f"{config}/{prompt}.{kind}.json.gz"
                (out / name).write_bytes((source / name).read_bytes())
    manifest = json.loads((source / "manifest.json").read_text())
    manifest["prompts"] = {prompt: manifest["prompts"][prompt] for prompt in prompts}
    manifest["configs"] = {config: manifest["configs"][config] for config in configs}
    for config in manifest["configs"].values():
        config["files"] = {name: facts for name, facts in config["files"].items() if name.rsplit(".", 1)[0] in prompts}
        config.pop("determinism", None)
    manifest["notes"].append(f"copied by scripts/make_test_data.py: {len(prompts)} of {len(ref)} prompts")
    kept = {prompt: ref[prompt] for prompt in prompts}
    for name, content in (
        ("ref.json", kept),
        ("manifest.json", manifest),
        ("expected.json", table(source, configs, prompts, ref)),
    ):
        (out / name).write_text(json.dumps(content, indent=1) + "\n")
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(f"{out}: {len(configs)} configurations, {len(prompts)} prompts, {size / 1e6:.2f} MB", file=sys.stderr)


if __name__ == "__main__":
    main()
