"""The same model with other weights: llama.cpp's own quantizer, once per type, kept in the user's cache."""

from __future__ import annotations

import os
from pathlib import Path

from cyllama.llama import llama_cpp

from probe import paths
from probe.errors import InputError
from probe.wire.embedded.llama import engine_version
from probe.wire.embedded.lock import exclusive
from probe.wire.embedded.model import Notice

_FILE_TYPES = {
    "F32": 0,
    "F16": 1,
    "BF16": 32,
    "Q8_0": 7,
    "Q6_K": 18,
    "Q5_K_M": 17,
    "Q4_K_M": 15,
    "Q4_1": 3,
    "Q4_0": 2,
    "Q3_K_M": 12,
    "Q2_K": 10,
}
"""Values of `llama_ftype`."""


def requantised(source: Path, digest: str, weights: str, notice: Notice = lambda text: None) -> Path:
    """A file with the source's weights in another type; made in about a second for 135M parameters, then reused.

    Args:
        source: GGUF file.
        digest: Its SHA-256 in hex, the key of the cache together with the type and llama.cpp's release.
        weights: One of `settings.WEIGHTS`.
        notice: Told when a file is made.

    Raises:
        InputError: llama.cpp cannot requantise this file.
        EngineMissingError: The cache folder cannot be written.
    """
    release = engine_version().split()[1]
    target = paths.cache() / "requantised" / f"{digest[:16]}-{weights}-{release}.gguf"
    if target.is_file():
        return target
    with exclusive(target) as partial:
        if target.is_file():
            return target
        notice(f"Requantising {source.name} to {weights}, once")
        options = llama_cpp.LlamaModelQuantizeParams()
        options.ftype = _FILE_TYPES[weights]
        options.allow_requantize = True
        try:
            llama_cpp.model_quantize(str(source), str(partial), options)
        except (RuntimeError, ValueError, OSError) as problem:
            raise InputError(
                f"llama.cpp cannot requantise {source} to {weights}: {' '.join(str(problem).split())[:200]}",
                hint="Leave weights= out, or choose another type.",
            ) from problem
        os.replace(partial, target)
    return target
