"""Speed of the embedded engine, and how far its configurations are from the default one.

Run: `python -m benchmarks.embedded_engine [--json]` (fetches the model on first use; about a minute on one free core)

The texts are the recorded prompts with float32 vLLM's continuations. Speed is per second of CPU time of one thread,
everything included: llama.cpp, the softmax, the top 20, JSON. KL is over the whole vocabulary, in float64, mean over
all positions; a flip is another argmax.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from probe.wire.embedded.completions import complete
from probe.wire.embedded.llama import LlamaEngine, engine_version
from probe.wire.embedded.model import SHA256, default_model
from probe.wire.embedded.requantise import requantised
from probe.wire.embedded.requests import CompletionRequest
from probe.wire.embedded.settings import parse_settings
from probe.wire.embedded.words import Words

REF = Path(__file__).parent.parent / "tests" / "data" / "recordings" / "ref.json"
K = 20
DECODED = 128
OPTIONS = ("fa=off", "kv=q8_0", "kv=q4_0", "weights=Q8_0", "weights=Q4_K_M", "weights=Q4_0", "weights=Q2_K")


def load(options: str) -> LlamaEngine:
    """An engine with one option turned, on one thread."""
    settings = parse_settings({"threads": "1", **dict([options.split("=")] if options else [])})
    source = default_model(print)
    path = requantised(source, SHA256, settings.weights) if settings.weights else source
    return LlamaEngine(path, settings, name=source.stem, root="", digest=SHA256)


def log_probs(engine: LlamaEngine, ids: list[int]) -> NDArray[np.float64]:
    """Log-probabilities after every token, float64 `[n, V]`."""
    wide = np.concatenate(list(engine.prefill(ids, every=True))).astype(np.float64)
    wide -= wide.max(axis=1, keepdims=True)
    wide -= np.log(np.exp(wide).sum(axis=1, keepdims=True))
    return wide


def speed(engine: LlamaEngine, texts: list[list[int]]) -> dict[str, float]:
    """Positions scored and tokens generated per CPU second of this thread."""
    words = Words(engine.pieces())
    began = time.thread_time()
    for ids in texts:
        request = CompletionRequest(prompt=ids, max_tokens=1, temperature=0, prompt_logprobs=K)
        msgspec.json.encode(complete(engine, words, request))
    scoring = time.thread_time() - began
    took = []
    for tokens in (1, 1 + DECODED):
        began = time.thread_time()
        request = CompletionRequest(prompt=texts[0][:32], max_tokens=tokens, temperature=0, logprobs=K, ignore_eos=True)
        msgspec.json.encode(complete(engine, words, request))
        took.append(time.thread_time() - began)
    return {"score_positions_s": sum(map(len, texts)) / scoring, "decode_tokens_s": DECODED / (took[1] - took[0])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    recorded = json.loads(REF.read_text()).values()
    texts = [[*each["prompt_token_ids"], *each["continuation_token_ids"]] for each in recorded]
    default = load("")
    results: dict[str, dict[str, float]] = {"default": speed(default, texts)}
    for options in OPTIONS:
        engine = load(options)
        divergences, flips = [], []
        for ids in texts:
            reference, candidate = log_probs(default, ids), log_probs(engine, ids)
            divergences.append((np.exp(reference) * (reference - candidate)).sum(axis=1))
            flips.append(reference.argmax(axis=1) != candidate.argmax(axis=1))
        engine.close()
        kl, flipped = np.concatenate(divergences), np.concatenate(flips)
        results[options] = {"kl_mean": kl.mean(), "kl_median": float(np.median(kl)), "flips": flipped.mean()}
    default.close()
    if wanted.json:
        print(json.dumps({"engine": engine_version(), "results": results}, indent=1))
        return
    positions = sum(map(len, texts))
    print(f"{engine_version()}, SmolLM2-135M Q4_1, {positions} positions, one thread")
    rates = results.pop("default")
    print(
        f"score k={K}: {rates['score_positions_s']:.0f} positions/CPU-s, "
        f"decode {rates['decode_tokens_s']:.0f} tokens/CPU-s"
    )
    print(f"{'against the default':20} {'KL mean':>10} {'KL median':>10} {'flips':>7}")
    for options, row in results.items():
        print(f"{options:20} {row['kl_mean']:10.5f} {row['kl_median']:10.5f} {row['flips']:7.2%}")


if __name__ == "__main__":
    main()
