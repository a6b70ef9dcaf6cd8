"""A real model in this process behind the same client: llama.cpp that answers vLLM's routes with vLLM's shapes."""

from probe.wire.embedded.opening import open_embedded
from probe.wire.embedded.transport import EmbeddedTransport

__all__ = ["EmbeddedTransport", "open_embedded"]
