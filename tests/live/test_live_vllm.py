"""flipscope against real vLLM: what it records, what it says, what it survives."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from real_vllm import VllmServer

from probe.comparison import Comparison
from probe.score.pairs import score_pair
from probe.store.reader import Capture
from probe.wire.answers import decode_score

pytestmark = [pytest.mark.live, pytest.mark.timeout(1500)]
ROOT = Path(__file__).parents[2]
RECORDINGS = ROOT / "tests/data/recordings"
RECORDED = json.loads((RECORDINGS / "ref.json").read_text())
SHORT = ("prose-en", "python", "chat-howto")
GENERATE = 24


def flipscope(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "main.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=1200,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"COLUMNS": "200"},
    )


def recorded_prompts(folder: Path) -> Path:
    """The recordings' own prompts and continuations as a prompt set of ids."""
    path = folder / "recorded.jsonl"
    lines = [
        {
            "id": name,
            "ids": RECORDED[name]["prompt_token_ids"],
            "continuation": RECORDED[name]["continuation_token_ids"],
            "max_tokens": GENERATE,
        }
        for name in SHORT
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


@pytest.fixture(scope="module")
def captured(f32: VllmServer, bf16: VllmServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """float32 and bfloat16 captured over the recorded texts by the command itself."""
    folder = tmp_path_factory.mktemp("captured")
    prompts = str(recorded_prompts(folder))
    done = flipscope("capture", f"f32={f32.url}", f"bf16={bf16.url}", "--prompts", prompts, "--out", str(folder))
    assert done.returncode == 0, done.stderr
    return folder


def test_float32_reproduces_its_recording(captured: Path) -> None:
    with Capture.open(captured / "f32.msgpack") as capture:
        for name in SHORT:
            record = capture.record(name)
            assert record.forced is not None and record.generated is not None
            ids = RECORDED[name]["prompt_token_ids"] + RECORDED[name]["continuation_token_ids"]
            body = gzip.decompress((RECORDINGS / "f32-eager" / f"{name}.score.json.gz").read_bytes())
            recording = decode_score(body, ids, 20).stream
            scores = score_pair(recording, record.forced)
            assert np.nanmax(scores.kl) < 1e-7
            assert not scores.flip.any()
            # The recorded continuation is float32's own greedy text.
            assert record.generated.ids.tolist() == RECORDED[name]["continuation_token_ids"][:GENERATE]


def test_the_capture_knows_its_server_and_its_tokens(captured: Path, f32: VllmServer) -> None:
    with Capture.open(captured / "f32.msgpack") as capture:
        facts = capture.header.facts
        assert facts.engine == "vllm" and facts.version == "0.32.0" and facts.fingerprint.startswith("vllm-0.32.0")
        assert facts.url == f32.url and facts.max_model_len >= 4096
        assert facts.settings["cache_dtype"] == "auto"
        assert capture.header.tokenizer.fingerprint
        pieces = [capture.vocabulary.piece(token) for token in RECORDED["prose-en"]["prompt_token_ids"]]
        assert all(piece.exact for piece in pieces)
        assert b"".join(piece.data for piece in pieces).decode() == RECORDED["prose-en"]["source"]


def test_bfloat16_is_near_but_not_identical(captured: Path) -> None:
    with Capture.open(captured / "f32.msgpack") as f32, Capture.open(captured / "bf16.msgpack") as bf16:
        comparison = Comparison.of([f32, bf16])
        for name in SHORT:
            scores = comparison.scores(name).pairs[0]
            assert scores is not None
            mean = float(np.nanmean(scores.kl))
            assert 1e-6 < mean < 0.01
            assert scores.equal.sum() < len(scores.equal) / 2


def test_more_alternatives_than_the_server_lists_are_refused_with_the_flag_to_raise(
    f32: VllmServer, tmp_path: Path
) -> None:
    prompts = str(recorded_prompts(tmp_path))
    done = flipscope("capture", f"f32={f32.url}", "--prompts", prompts, "--top-k", "21", "--out", str(tmp_path))
    assert done.returncode == 3
    assert "--max-logprobs" in done.stderr
    assert not list(tmp_path.glob("*.msgpack"))


def test_a_server_killed_in_mid_capture_is_resumed_to_the_same_file(
    f32: VllmServer, bf16: VllmServer, tmp_path: Path
) -> None:
    calm, storm = tmp_path / "calm", tmp_path / "storm"
    prompts = ["--prompts", "samples", "--limit", "6", "--max-tokens", "16"]
    done = flipscope("capture", f"bf16={bf16.url}", *prompts, "--out", str(calm))
    assert done.returncode == 0, done.stderr

    arguments = ["capture", f"bf16={bf16.url}", *prompts, "--out", str(storm), "--json"]
    running = subprocess.Popen(
        [sys.executable, str(ROOT / "main.py"), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while prompt_count(storm / "bf16.msgpack") < 2:
        assert running.poll() is None, "it ended before the server was killed"
        time.sleep(0.05)
    bf16.kill()
    _, said = running.communicate(timeout=600)
    assert running.returncode == 3
    assert "run the same command again" in " ".join(said.split())
    assert "Traceback" not in said

    bf16.start()
    done = flipscope(*arguments)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert row["kept"] >= 2 and row["kept"] + row["recorded"] == 6
    with Capture.open(calm / "bf16.msgpack") as one, Capture.open(storm / "bf16.msgpack") as two:
        assert one.digest() == two.digest()


def prompt_count(path: Path) -> int:
    """How many prompts are on disk in a file that is being written."""
    if not path.exists():
        return 0
    with Capture.open(path) as capture:
        return len(capture.prompt_ids)


async def test_the_app_opens_what_was_captured(captured: Path) -> None:
    from tui.app import FlipscopeApp

    with Capture.open(captured / "f32.msgpack") as f32, Capture.open(captured / "bf16.msgpack") as bf16:
        app: Any = FlipscopeApp(lambda: Comparison.of([f32, bf16]))
        async with app.run_test(size=(120, 36)) as pilot:
            await app.workers.wait_for_complete()
            await pilot.pause()
            await pilot.press("n", "right", "question_mark")
            assert app.return_value is None and app.is_running
