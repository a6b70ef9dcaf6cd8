"""Size of a capture per position, and what opening a large set of captures costs.

Run: `python -m benchmarks.capture_file [RECORDINGS] [--positions 100000] [--captures 5]`

Sizes are of real answers of a float32 and of a bfloat16 server. The large set tiles the same rows, every tile with its
own permutation of the vocabulary, so that no tile resembles another one. Opening is timed in a fresh process with warm
disk caches; its memory is the peak resident size less what the imports took.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from probe.records import Header, Piece, PromptRecord, PromptSetFacts, Protocol, ServerFacts, TokenizerFacts
from probe.store.reader import Capture
from probe.store.schema import PromptFields, StreamFields, parse, write_prompt
from probe.store.writer import CaptureWriter
from probe.stream import NO_TOKEN, TokenStream, sort_rows
from probe.wire.answers import decode_generate, decode_score

K = 20
VOCABULARY = 49152
CONFIGS = ("f32", "bf16", "bf16-kvfp8", "w8a8-int8", "w4a16-g64")
ARRAYS = ("ids", "top_ids", "top_logprobs", "apart", "apart_logprob", "apart_rank")


def recorded(folder: Path, config: str) -> Iterator[tuple[PromptRecord, dict[int, Piece]]]:
    """Every recorded prompt of a configuration as a prompt record, with the server's words as pieces."""
    chosen = json.loads((folder / "ref.json").read_text())
    prompts = chosen.get("prompts", chosen)
    for index, (name, prompt) in enumerate(sorted(prompts.items())):
        score = folder / config / f"{name}.score.json.gz"
        generate = folder / config / f"{name}.generate.json.gz"
        if not score.is_file() or not generate.is_file():
            continue
        before, after = prompt["prompt_token_ids"], prompt["continuation_token_ids"]
        scored = decode_score(gzip.decompress(score.read_bytes()), before + after, K, words=True)
        own = decode_generate(gzip.decompress(generate.read_bytes()), before, 128, K)
        yield (
            PromptRecord(
                prompt_id=name,
                category="recorded",
                index=index,
                prompt_length=len(before),
                output=((len(before), len(before) + len(after)),),
                forced=scored.stream,
                generated=own.stream,
                finish_reason=own.finish_reason,
            ),
            {each: Piece(word.encode()) for each, word in scored.words.items()},
        )


def header(label: str, count: int) -> Header:
    return Header(
        label=label,
        created="2026-11-29T00:00:00Z",
        facts=ServerFacts(url="http://127.0.0.1:8000", engine="vllm", model="smol"),
        protocol=Protocol(top_k=K, max_tokens=128),
        prompts=PromptSetFacts(name="recordings", sha256="0" * 64, count=count),
        tokenizer=TokenizerFacts(source="smol"),
    )


def packed_sizes(stream: StreamFields) -> dict[str, int]:
    return {name: getattr(stream, name).size for name in ARRAYS}


def measure_sizes(folder: Path, config: str, scratch: Path) -> None:
    """Print bytes per position of one configuration's recordings."""
    sizes = dict.fromkeys(ARRAYS, 0)
    forced = rows = records = positions_forced_only = 0
    path = scratch / f"size-{config}.msgpack"
    clock = 0.0
    with CaptureWriter.create(path, header(config, 99)) as writer:
        for record, pieces in recorded(folder, config):
            begin = time.process_time()
            payload = write_prompt(record)
            clock += time.process_time() - begin
            fields = parse(payload, PromptFields, "")
            assert fields.forced is not None and record.forced is not None and record.generated is not None
            for name, size in packed_sizes(fields.forced).items():
                sizes[name] += size
            forced += len(record.forced)
            rows += len(record.forced) + len(record.generated)
            records += len(payload)
            bare = PromptRecord(
                record.prompt_id, record.category, record.index, record.prompt_length, forced=record.forced
            )
            positions_forced_only += len(write_prompt(bare))
            writer.append(record, pieces)
        writer.finish()
    parts = ", ".join(f"{name} {size / forced:.1f}" for name, size in sizes.items())
    total = path.stat().st_size
    print(
        f"{config:11} {forced:6} positions: forced record {positions_forced_only / forced:5.1f} B/position ({parts}); "
        f"with the own generation {records / rows:5.1f} B/row; whole file with vocabulary {total / rows:5.1f} B/row; "
        f"packing {clock / rows * 1e6:.0f} µs CPU/row"
    )


def permuted(stream: TokenStream, order: np.ndarray) -> TokenStream:
    """The stream in a language with other ids."""
    top_ids = np.where(stream.top_ids == NO_TOKEN, NO_TOKEN, order[stream.top_ids]).astype(np.int32)
    ids, logprobs = sort_rows(top_ids, stream.top_logprobs)
    actual = order[stream.ids].astype(np.int32)
    return TokenStream(stream.kind, stream.start, actual, stream.logprob, stream.rank, ids, logprobs)


def build_large(folder: Path, config: str, positions: int, path: Path) -> None:
    """Write a capture of at least so many forced positions."""
    tiles = list(recorded(folder, config))
    length = sum(len(record.forced) for record, _ in tiles if record.forced is not None)
    rounds = -(-positions // length)
    random = np.random.default_rng(0)
    left = positions
    with CaptureWriter.create(path, header(config, rounds * len(tiles))) as writer:
        for round_number in range(rounds):
            order = random.permutation(VOCABULARY).astype(np.int32)
            for record, pieces in tiles:
                if record.forced is None or left <= 0:
                    continue
                forced = permuted(record.forced.rows(0, left), order)
                left -= len(forced)
                index = round_number * len(tiles) + record.index
                name = f"{record.prompt_id}-{round_number}"
                prompt_length = min(record.prompt_length, len(forced))
                writer.append(
                    PromptRecord(name, record.category, index, prompt_length, forced=forced),
                    {int(order[each]): piece for each, piece in pieces.items()},
                )
        writer.finish()


def peak_mb() -> float:
    """Peak resident size of this process in MiB. VmHWM, since ru_maxrss outlives an exec."""
    for line in Path("/proc/self/status").read_text().splitlines() if sys.platform == "linux" else ():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "linux" else 1 << 20)


def open_large(paths: list[Path]) -> None:
    """In a fresh process: open the set, look at one prompt of each, then at everything."""
    imported = peak_mb()
    begin, cpu = time.perf_counter(), time.process_time()
    captures = [Capture.open(path) for path in paths]
    opened, opened_cpu = time.perf_counter() - begin, time.process_time() - cpu
    opened_mb = peak_mb()
    for capture in captures:
        capture.record(capture.prompt_ids[0])
        capture.vocabulary.piece(0)
    first, first_mb = time.perf_counter() - begin, peak_mb()
    begin, cpu = time.perf_counter(), time.process_time()
    total = sum(len(record.forced or ()) for each in captures[:1] for record in map(each.record, each.prompt_ids))
    decoded, decoded_cpu = time.perf_counter() - begin, time.process_time() - cpu
    for capture in captures[1:]:
        for prompt_id in capture.prompt_ids:
            capture.record(prompt_id)
    print(
        f"open {len(paths)} captures: {opened * 1e3:.1f} ms ({opened_cpu * 1e3:.1f} CPU), "
        f"+{opened_mb - imported:.1f} MB"
    )
    print(f"and the first prompt and vocabulary of each: {first * 1e3:.1f} ms, +{first_mb - imported:.1f} MB")
    print(f"decode all {total} positions of one: {decoded * 1e3:.0f} ms ({decoded_cpu * 1e3:.0f} CPU)")
    print(f"after decoding all of all: +{peak_mb() - imported:.1f} MB on {imported:.0f} MB of imports")
    walked = bytearray(paths[0].read_bytes())[:-1]
    cut = paths[0].with_name("cut.msgpack")
    cut.write_bytes(walked)
    begin, cpu = time.perf_counter(), time.process_time()
    Capture.open(cut).close()
    print(
        f"open one without its trailer (a walk over {len(walked) / 1e6:.1f} MB): "
        f"{(time.perf_counter() - begin) * 1e3:.0f} ms ({(time.process_time() - cpu) * 1e3:.0f} CPU)"
    )


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("recordings", nargs="?", type=Path, default=Path("tests/data/recordings"))
    parser.add_argument("--positions", type=int, default=100_000)
    parser.add_argument("--captures", type=int, default=5)
    parser.add_argument("--open", type=Path, nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.open:
        open_large(options.open)
        return
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        configs = [each for each in CONFIGS if (options.recordings / each).is_dir()]
        for config in configs:
            measure_sizes(options.recordings, config, scratch)
        paths = []
        for number in range(options.captures if options.positions else 0):
            paths.append(scratch / f"large-{number}.msgpack")
            build_large(options.recordings, configs[number % len(configs)], options.positions, paths[-1])
        if paths:
            size = sum(each.stat().st_size for each in paths) / 1e6
            print(f"large set: {len(paths)} captures of {options.positions} positions, {size:.1f} MB")
            sys.stdout.flush()
            subprocess.run([sys.executable, "-m", "benchmarks.capture_file", "--open", *map(str, paths)], check=True)


if __name__ == "__main__":
    main()
