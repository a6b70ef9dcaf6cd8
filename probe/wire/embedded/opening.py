"""From an `embedded:` address to a transport whose engine is loading."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

from probe.errors import EngineMissingError, InputError
from probe.wire.address import Address
from probe.wire.embedded.engine import Engine, InterruptedWorkError
from probe.wire.embedded.lock import file_digest
from probe.wire.embedded.model import PACKAGE, SHA256, Notice, Progress, default_model
from probe.wire.embedded.settings import Settings, parse_settings
from probe.wire.embedded.transport import EmbeddedTransport

_GGUF_MAGIC = b"GGUF"


def open_embedded(
    address: Address,
    *,
    notice: Notice = lambda text: None,
    progress: Progress = lambda done, total: None,
) -> EmbeddedTransport:
    """Check an address and start its engine. Returns at once; the model is fetched and loaded in a thread.

    Args:
        address: `embedded:[PATH.gguf][?options]`.
        notice: Told what is fetched, made or worth knowing. Called from the engine's thread too.
        progress: Told how far a download is, in bytes done and bytes in all; called from the engine's thread.

    Returns:
        A transport; `await transport.ready()` to learn whether loading went well.

    Raises:
        InputError: The options or the file cannot be used.
        EngineMissingError: The `embedded` extra is not installed.
    """
    settings = parse_settings(address.options)
    path = _model_file(address.path) if address.path else None
    if importlib.util.find_spec("cyllama") is None:
        raise EngineMissingError(
            "embedded: needs llama.cpp in-process (cyllama), which is not installed",
            hint="pip install 'flipscope[embedded]'",
        )
    for note in settings.notes():
        notice(note)

    def load(abandoned: Callable[[], bool]) -> Engine:
        def watched(done: int, total: int) -> None:
            if abandoned():
                raise InterruptedWorkError
            progress(done, total)

        return _load(path, settings, notice, watched)

    return EmbeddedTransport(load)


def _load(path: Path | None, settings: Settings, notice: Notice, progress: Progress) -> Engine:
    try:
        from probe.wire.embedded.llama import LlamaEngine
        from probe.wire.embedded.requantise import requantised
    except ImportError as problem:
        raise EngineMissingError(
            f"cyllama is installed but cannot be used: {problem}",
            hint="pip install --force-reinstall 'flipscope[embedded]'",
        ) from problem
    source = path or default_model(notice, progress)
    digest = file_digest(source) if path else SHA256
    chosen = requantised(source, digest, settings.weights, notice) if settings.weights else source
    root = str(path) if path else PACKAGE
    return LlamaEngine(chosen, settings, name=source.stem, root=root, digest=digest)


def _model_file(text: str) -> Path:
    path = Path(text)
    try:
        path = path.expanduser()
        with path.open("rb") as file:
            magic = file.read(len(_GGUF_MAGIC))
    except (OSError, RuntimeError, ValueError) as problem:  # also ~somebody who is not there, and a NUL in the name
        reason = problem.strerror if isinstance(problem, OSError) else problem
        raise InputError(
            f"The model {path} cannot be read: {reason}",
            hint="Write embedded:PATH.gguf, or embedded: for the model that flipscope fetches.",
        ) from problem
    if magic != _GGUF_MAGIC:
        raise InputError(f"{path} is no GGUF file", hint="The embedded engine runs GGUF models only.")
    return path
