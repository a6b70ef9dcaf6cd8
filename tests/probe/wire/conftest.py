"""The embedded engine, loaded once per session: the model comes through flipscope's own download, then the cache."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from probe.wire.address import parse_address
from probe.wire.embedded import EmbeddedTransport, open_embedded
from probe.wire.embedded.model import SHA256, default_model
from probe.wire.embedded.settings import parse_settings

if TYPE_CHECKING:
    from probe.wire.embedded.llama import LlamaEngine


@pytest.fixture(scope="session")
def model() -> Path:
    """The default model's file."""
    if importlib.util.find_spec("cyllama") is None:
        pytest.skip("the embedded extra is not installed: pip install 'flipscope[embedded]'")
    return default_model()


@pytest.fixture(scope="session")
def make_engine(model: Path) -> Iterator[Callable[..., LlamaEngine]]:
    """Loads an engine with options as in an address; all are freed at the end of the session."""
    from probe.wire.embedded.llama import LlamaEngine
    from probe.wire.embedded.requantise import requantised

    made: dict[tuple[tuple[str, str], ...], LlamaEngine] = {}

    def make(**options: str) -> LlamaEngine:
        key = tuple(sorted(options.items()))
        if key not in made:
            settings = parse_settings(options)
            path = requantised(model, SHA256, settings.weights) if settings.weights else model
            made[key] = LlamaEngine(path, settings, name=model.stem, root="test", digest=SHA256)
        return made[key]

    yield make
    for engine in made.values():
        engine.close()


@pytest.fixture(scope="session")
def engine(make_engine: Callable[..., LlamaEngine]) -> LlamaEngine:
    """An engine with the default settings, without a transport around it."""
    return make_engine()


@pytest.fixture(scope="session")
def make_transport(model: Path) -> Iterator[Callable[[str], EmbeddedTransport]]:
    """Opens an `embedded:` address, once per session."""
    opened: dict[str, EmbeddedTransport] = {}

    def make(address: str) -> EmbeddedTransport:
        if address not in opened:
            opened[address] = open_embedded(parse_address(address))
        return opened[address]

    yield make
    for transport in opened.values():
        asyncio.run(transport.aclose())
