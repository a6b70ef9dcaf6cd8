"""How long a request may take, how large its answer may be, and what it costs the server."""

from __future__ import annotations

import random
from dataclasses import dataclass

KB = 1024
MB = 1024 * KB

ERROR_BYTES = 64 * KB
"""Bytes of an error body that are read: the sentence stands at its beginning."""

SMALL_BYTES = 4 * MB
"""Answers whose size does not depend on a text: /v1/models, /version, /server_info."""

METRICS_BYTES = 16 * MB
"""/metrics of one vLLM server is 63 kB and grows with the number of data-parallel engines."""

ENTRY_BYTES = 256
"""Room per listed alternative; vLLM spends 72 on average, a token of many escaped control characters a few hundred."""

ALTERNATIVES_SLACK = 4
"""A row may list this many times what was asked for before the answer counts as nonsense."""

DEFAULT_CHUNK = 8192
"""Tokens that vLLM prefills at once at most by default; the rows of one chunk are in memory together."""

DANGEROUS_BYTES = 2 * 1024 * MB
"""Memory beside weights and KV cache from which on a request may end a server that was sized to fill its GPU."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Deadlines and retries of one client. Seconds, tokens per second, tries."""

    connect_s: float = 40.0
    """To connect. A server whose event loop stands still for half a minute answers no TLS greeting meanwhile."""
    small_s: float = 90.0
    """For answers that need no model. /health took 28.5 s while one large answer was being written."""
    base_s: float = 120.0
    """Every model request gets this, and its tokens on top: it may wait behind others."""
    prefill_rate: float = 10.0
    """Slowest prefill that is waited for; a loaded 2-core CPU server did 48 tokens/s."""
    decode_rate: float = 0.5
    """Slowest decode that is waited for; a CPU server on a missing kernel did 0.3 to 0.5 tokens/s."""
    body_s: float = 60.0
    """From the answer's head to its end, 400 kB/s on top: the server writes an answer in one piece."""
    request_s: float | None = None
    """When given, the deadline of every request, whatever its size."""
    run_s: float | None = None
    """Deadline of everything that one client does, from its creation on."""
    busy_tries: int = 8
    """How often a request is sent to a server that says it is busy."""
    busy_first_s: float = 0.5
    """First wait after "busy"; it doubles from try to try."""
    busy_longest_s: float = 20.0
    """Longest wait between two tries."""

    def model_seconds(self, prompt: int, generated: int, in_flight: int = 1) -> float:
        """Deadline of a request, scaled with its tokens and the requests that share the server with it."""
        if self.request_s is not None:
            return self.request_s
        own = prompt / self.prefill_rate + generated / self.decode_rate
        return self.base_s + own * max(in_flight, 1)

    @property
    def small_seconds(self) -> float:
        """Deadline of a request that needs no model."""
        return self.small_s if self.request_s is None else min(self.small_s, self.request_s)

    def body_seconds(self, cap: int) -> float:
        """How long the body of an answer may take once its head is there."""
        return self.body_s + cap / 400_000

    def busy_seconds(self, attempt: int, asked: float | None = None) -> float:
        """Wait before the next try, spread by chance so that many clients do not come back together.

        Args:
            attempt: How many tries were refused so far, from 1.
            asked: What the server's Retry-After header says, if anything.
        """
        if asked is not None and asked >= 0:  # false for NaN
            return min(asked, self.busy_longest_s)
        longest = min(self.busy_first_s * 2.0 ** (attempt - 1), self.busy_longest_s)
        return longest * random.uniform(0.5, 1.0)


def widest_row(k: int) -> int:
    """How many ids a row may list when `k` were asked for, before the answer counts as nonsense."""
    return max(64, ALTERNATIVES_SLACK * (k + 1))


def score_bytes(tokens: int, k: int) -> int:
    """Largest body that is read as the answer to scoring `tokens` tokens."""
    return MB + tokens * (ENTRY_BYTES * (k + 1) + 16)


def generate_bytes(prompt: int, n: int, k: int) -> int:
    """Largest body that is read as the answer to generating `n` tokens."""
    return MB + prompt * 16 + n * (ENTRY_BYTES * (k + 1) + 1024)


def stream_bytes(prompt: int, n: int, k: int) -> int:
    """The same for an event stream, whose every token brings an envelope of its own."""
    return generate_bytes(prompt, n, k) + n * 2 * KB


def tokens_bytes(characters: int) -> int:
    """Largest body that is read as the answer to /tokenize: at most one token per byte."""
    return MB + characters * 64


@dataclass(frozen=True, slots=True)
class Cost:
    """What scoring one text asks of a server, beside weights and KV cache.

    Attributes:
        logits: Bytes of the float32 log-probabilities over the whole vocabulary that are in memory together.
        answer: Bytes of the answer's body.
        chunk: Tokens that are prefilled together.
    """

    logits: int
    answer: int
    chunk: int

    @property
    def dangerous(self) -> bool:
        """Whether a server that was sized to fill its memory may die of it."""
        return self.logits >= DANGEROUS_BYTES


def score_cost(tokens: int, k: int, vocabulary: int, chunk: int = 0) -> Cost:
    """Estimate what `prompt_logprobs` costs the server: vocabulary x 4 bytes for every token of a prefill chunk.

    With 152,000 ids that is 0.6 MB per token: 5 GB for a chunk of 8,192.

    Args:
        tokens: Length of the text.
        k: Alternatives asked for.
        vocabulary: Number of token ids.
        chunk: The server's `--max-num-batched-tokens`, 0 when unknown.
    """
    together = min(tokens, chunk or DEFAULT_CHUNK)
    return Cost(logits=vocabulary * 4 * together, answer=tokens * (k + 1) * 72, chunk=together)
