"""What every test shares: no colours, captures and configuration out of the way, a fake vLLM over real HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_vllm import FakeServer


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing a test does touches the user's captures or settings; the model cache is shared on purpose."""
    monkeypatch.setenv("FLIPSCOPE_CAPTURES", str(tmp_path / "captures"))
    monkeypatch.setenv("FLIPSCOPE_CONFIG", str(tmp_path / "config"))
    monkeypatch.delenv("FLIPSCOPE_API_KEY", raising=False)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    """A fake vLLM on a port of its own."""
    with FakeServer() as running:
        yield running


@pytest.fixture
def other_server() -> Iterator[FakeServer]:
    """A second one whose distributions differ slightly."""
    with FakeServer(noise=0.3) as running:
        yield running
