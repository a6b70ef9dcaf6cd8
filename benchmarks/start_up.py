"""How long `flipscope view` takes to its first picture and to the streams, and what memory it holds.

Run: `python -m benchmarks.start_up [--positions 100000]`

The real command on a real pseudo-terminal, once over the bundled captures and once over five made-up captures of one
text of that length. "first paint" is the first frame on the terminal, "streams" the first one that shows the text;
memory is the peak resident size of the process.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import resource
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

from benchmarks.made_captures import write_captures
from commands.view import BUNDLED
from probe import paths

LIMIT_S = 60.0
SIZE = struct.pack("HHHH", 50, 200, 0, 0)
STREAMS = b"prompt 1 of"
"""Stands in the title bar as soon as the first prompt is on the screen."""


def watch(files: list[Path], settle: float = 3.0) -> tuple[float, float, float]:
    """Seconds to the first paint and to the streams, and peak MB after `settle` seconds more of background scoring."""
    control, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, SIZE)
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "main.py", "view", *map(str, files)],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        env=os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor"},
    )
    os.close(terminal)
    seen = bytearray()
    first = streams = 0.0
    end = began + LIMIT_S
    while time.monotonic() < end:
        if select.select([control], [], [], 0.02)[0]:
            try:
                seen += os.read(control, 1 << 16)
            except OSError:
                break
        now = time.monotonic()
        if not first and b"flipscope" in seen:
            first = now - began
        if not streams and STREAMS in seen:
            streams = now - began
            end = now + settle
    peak = peak_mb(process.pid)
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=10)
    os.close(control)
    if not streams:
        sys.exit(f"the streams did not appear in {LIMIT_S:.0f} s")
    return first, streams, peak


def peak_mb(pid: int) -> float:
    """Peak resident size of a running process, in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def main() -> None:
    """Print one line per set of captures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--positions", type=int, default=100_000)
    asked = parser.parse_args()
    print(f"{'captures':>24} {'first paint s':>14} {'streams s':>10} {'peak MB':>8}")
    bundled = [paths.bundled_captures() / f"{label}.msgpack" for label in BUNDLED]
    watch(bundled)  # warms disk caches and .pyc files
    print("{:>24} {:>14.2f} {:>10.2f} {:>8.0f}".format("bundled", *watch(bundled)))
    with tempfile.TemporaryDirectory() as folder:
        made = write_captures(Path(folder), asked.positions)
        print("{:>24} {:>14.2f} {:>10.2f} {:>8.0f}".format(f"5 x {asked.positions:,}", *watch(made, settle=8.0)))


if __name__ == "__main__":
    main()
