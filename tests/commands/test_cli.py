from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from fake_vllm import FakeServer

ROOT = Path(__file__).parents[2]


def flipscope(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "main.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
    )


def prompt_file(folder: Path) -> str:
    path = folder / "p.jsonl"
    path.write_text('{"id": "a", "text": "abc"}\n{"id": "b", "text": "defg", "category": "two"}\n')
    return str(path)


def test_capture_prints_results_on_stdout_and_everything_else_on_stderr(tmp_path: Path, server: FakeServer) -> None:
    done = flipscope(
        "capture", f"a={server.url}", "--prompts", prompt_file(tmp_path), "--max-tokens", "4", "--top-k", "3",
        "--dim", "kv=fp8", "--out", str(tmp_path / "out"), "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert (row["label"], row["recorded"], row["failed"]) == ("a", 2, {})
    assert Path(row["path"]).stat().st_size == row["bytes"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["capture", "http://127.0.0.1:1"], 2, "has no label"),
        (["capture", "a=http://127.0.0.1:1", "--prompts", "samples"], 3, "127.0.0.1:1"),
        (["capture", "a=nonsense"], 2, "nonsense"),
        (["capture", "a=http://x:1", "a=http://x:2"], 2, "given twice"),
        (["capture", "../a=http://127.0.0.1:1"], 2, "../a"),
        (["capture", "a=http://127.0.0.1:1", "--prompts", "none.jsonl"], 2, "none.jsonl"),
        (["capture", "a=http://127.0.0.1:1", "--category", "nope", "--prompts", "samples"], 2, "no category nope"),
        (["capture", "a=http://127.0.0.1:1", "--ref", "nope"], 2, "nope"),
        (["capture", "a=http://127.0.0.1:1", "--dim", "b:x=1"], 2, "names no runtime"),
        (["capture", "a=http://127.0.0.1:1", "--limit", "0"], 2, "--limit"),
        (["capture", "a=http://127.0.0.1:1", "--ref", ""], 2, "no capture ''"),
        (["capture", "a=http://127.0.0.1:1", "--prompts", ""], 2, "directory"),
        (["capture", "a=http://127.0.0.1:1", "--seed", "9" * 30], 2, "--seed"),
        (["capture", "a=http://127.0.0.1:1", "--max-tokens", "9" * 30], 2, "--max-tokens"),
        (["capture", "a=embedded:~nobody-of-this-name/x.gguf"], 2, "x.gguf cannot be read"),
        (["view", "nope", "nor-this"], 2, "nope"),
        (["view", "one"], 2, ""),
        (["nonsense"], 2, "nonsense"),
    ],
)
def test_bad_input_is_named_with_its_exit_code(arguments: list[str], code: int, said: str, tmp_path: Path) -> None:
    done = flipscope(*arguments, COLUMNS="200", FLIPSCOPE_CAPTURES=str(tmp_path))
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_results_that_cannot_be_printed_are_an_error_and_not_a_traceback(tmp_path: Path, server: FakeServer) -> None:
    arguments = ["capture", f"a={server.url}", "--prompts", prompt_file(tmp_path), "--top-k", "3", "--max-tokens", "2"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, str(ROOT / "main.py"), *arguments, "--out", str(tmp_path), "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert done.returncode == 2
    assert "No space left" in done.stderr and "Traceback" not in done.stderr


def test_the_app_without_a_terminal_says_so() -> None:
    done = flipscope()
    assert done.returncode == 2
    assert "terminal" in done.stderr


def test_an_api_key_stands_in_no_output_and_no_file(tmp_path: Path, server: FakeServer) -> None:
    key = "sk-very-secret-key"
    done = flipscope(
        "capture", f"a={server.url}", "--prompts", prompt_file(tmp_path), "--max-tokens", "2", "--out", str(tmp_path),
        FLIPSCOPE_API_KEY=key,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert key not in done.stdout + done.stderr
    assert not any(key.encode() in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


def test_help_is_quick_to_import() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", str(ROOT / "main.py"), "--help"], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert "capture" in done.stdout
    for heavy in ("transformers", "textual.app", "httpx", "numpy", "torch"):
        assert f" {heavy}\n" not in done.stderr


def test_version() -> None:
    assert flipscope("--version").stdout.startswith("flipscope ")


def test_readme_lists_every_option_of_capture() -> None:
    help_text = flipscope("capture", "--help", COLUMNS="200").stdout
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", help_text)) - {"--help"}
    readme = (ROOT / "README.md").read_text()
    missing = sorted(option for option in options if option not in readme)
    assert len(options) > 12
    assert not missing
