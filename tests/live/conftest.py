"""Real vLLM on the CPU, started once per session."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from real_vllm import VllmServer, free_port

VARIABLES = ("FLIPSCOPE_VLLM_PYTHON", "FLIPSCOPE_CHECKPOINTS")


Start = Callable[..., VllmServer]


@pytest.fixture(scope="session")
def checkpoints() -> Path:
    """Folder of the checkpoints that scripts/make_checkpoints.py made."""
    for name in VARIABLES:
        if name not in os.environ:
            pytest.fail(f"{name} is not set: see scripts/install_vllm.sh and scripts/make_checkpoints.py")
    return Path(os.environ["FLIPSCOPE_CHECKPOINTS"])


@pytest.fixture(scope="session")
def start_server(checkpoints: Path) -> Iterator[Start]:
    """Start a server: `start_server("smol-f32", "--dtype", "float32")`."""
    running: list[VllmServer] = []

    def start(checkpoint: str, *flags: str) -> VllmServer:
        server = VllmServer(free_port(), checkpoints / checkpoint, list(flags))
        running.append(server)
        server.start()
        return server

    yield start
    for server in running:
        server.kill()


@pytest.fixture(scope="session")
def f32(start_server: Start) -> VllmServer:
    """float32: the reference."""
    return start_server("smol-f32", "--dtype", "float32")


@pytest.fixture(scope="session")
def bf16(start_server: Start) -> VllmServer:
    """bfloat16: the same weights, rounded."""
    return start_server("smol-f32", "--dtype", "bfloat16")
