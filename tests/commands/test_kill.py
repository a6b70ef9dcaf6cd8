"""A capture that is killed at any moment resumes to the file an undisturbed one writes."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_vllm import FakeServer

from probe.store.reader import Capture

ROOT = Path(__file__).parents[2]
KILLS = 20


def command(folder: Path, prompts: Path, *servers: FakeServer) -> list[str]:
    targets = [f"{label}={server.url}" for label, server in zip("ab", servers, strict=True)]
    options = ["--prompts", str(prompts), "--out", str(folder), "--max-tokens", "6", "--top-k", "5"]
    return [sys.executable, str(ROOT / "main.py"), "capture", *targets, *options]


def digests(folder: Path) -> dict[str, str]:
    found = {}
    for label in "ab":
        with Capture.open(folder / f"{label}.msgpack") as capture:
            assert capture.complete and not capture.damage
            found[label] = capture.digest()
    return found


def killed(arguments: list[str], folder: Path, chance: random.Random) -> bool:
    """Start a capture and kill it at a random moment of its work; whether it was still at it."""
    before = sum(file.stat().st_size for file in folder.glob("*.msgpack"))
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while process.poll() is None and sum(f.stat().st_size for f in folder.glob("*.msgpack")) <= before:
        time.sleep(0.001)
    time.sleep(chance.uniform(0, 0.2))
    process.send_signal(signal.SIGKILL)
    _, said = process.communicate()
    assert process.returncode in (0, -signal.SIGKILL), said.decode()
    return process.returncode != 0


def test_killed_twenty_times_the_file_is_as_if_undisturbed(
    tmp_path: Path, server: FakeServer, other_server: FakeServer
) -> None:
    prompts = tmp_path / "prompts.jsonl"
    lines = [{"id": f"p{n}", "text": "ab" * (n % 7 + 1) + str(n), "category": "x"} for n in range(60)]
    prompts.write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "calm").mkdir()
    done = subprocess.run(command(tmp_path / "calm", prompts, server, other_server), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    undisturbed = digests(tmp_path / "calm")

    chance = random.Random(20)
    kills = rounds = 0
    while kills < KILLS:
        rounds += 1
        folder = tmp_path / f"round{rounds}"
        folder.mkdir()
        arguments = command(folder, prompts, server, other_server)
        while kills < KILLS and killed(arguments, folder, chance):
            kills += 1
        done = subprocess.run(arguments, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert digests(folder) == undisturbed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_and_its_like_keep_what_is_done_and_say_how_to_resume(
    tmp_path: Path, server: FakeServer, number: signal.Signals
) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("\n".join(json.dumps({"id": f"p{n}", "text": "abc", "continuation": "d"}) for n in range(50)))
    server.delay = 0.05
    arguments = command(tmp_path, prompts, server, server)
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while len(server.completions()) < 12 and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(number)
    out, said = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "run the same command again" in said and "Traceback" not in said
    assert out == ""
    server.delay = 0.0
    done = subprocess.run([*arguments, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(row["kept"] > 0 and row["kept"] + row["recorded"] == 50 for row in json.loads(done.stdout))
