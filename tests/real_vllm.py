"""Real vLLM on the CPU, started by scripts/serve_vllm.sh."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass
class VllmServer:
    """One real server.

    Attributes:
        port: Where it listens.
        checkpoint: What it serves.
        flags: vLLM's flags.
        group: Its process group, 0 while it is down.
    """

    port: int
    checkpoint: Path
    flags: list[str] = field(default_factory=list)
    group: int = 0

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it has answered a request."""
        command = [str(ROOT / "scripts/serve_vllm.sh"), str(self.checkpoint), str(self.port), *self.flags]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=600, check=True)
        self.group = int(done.stdout)

    def kill(self) -> None:
        """End it at once, engine and workers included."""
        if self.group:
            os.killpg(self.group, signal.SIGKILL)
            self.group = 0


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
