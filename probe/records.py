"""What a capture holds: facts, protocol, one record per prompt. Plain data, no file format and no server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import msgspec

from probe.stream import TokenStream

FORMAT_VERSION = 1


class ServerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a server says about itself. Everything that can change a number is kept as the server gave it."""

    url: str
    """Address without credentials."""
    engine: Literal["vllm", "embedded", "unknown"] = "unknown"
    model: str
    """The name requests must carry."""
    root: str = ""
    """Where the server loaded the weights from: a path or a hub id."""
    version: str = ""
    fingerprint: str = ""
    """`system_fingerprint`: a hash of the server's configuration."""
    max_model_len: int = 0
    """Longest text in tokens, 0 when the server does not say."""
    max_top_k: int = 0
    """Largest `prompt_logprobs` the server was seen to accept, 0 when unknown."""
    settings: dict[str, str] = {}
    """Resolved settings: `cache_dtype`, `block_size`, … from /metrics, `dtype`, `quantization`, … from /server_info."""


class Protocol(msgspec.Struct, frozen=True, kw_only=True):
    """How a capture was made. Two captures compare only where these agree."""

    top_k: int
    max_tokens: int
    """Budget of the server's own greedy text, in tokens."""
    seed: int = 0
    logprobs_mode: str = "raw_logprobs"
    concurrency: int = 1
    """Scoring requests in flight per server."""
    generate_concurrency: int = 1
    """Generation requests in flight per server; above 1 a bf16 server changes its own tokens."""


class PromptSetFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Which prompts were captured."""

    name: str
    sha256: str
    """Over the chosen prompts as resolved lines, so a renamed file is the same set and an edited one is not."""
    count: int


class TokenizerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Where token bytes came from."""

    source: str
    """A path, a hub id, `embedded`, or `server words` when only decoded text could be had."""
    fingerprint: str = ""
    """Hash over the vocabulary; empty when unknown. Captures with two different ones are not comparable."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """First record of a capture file."""

    format: int = FORMAT_VERSION
    label: str
    created: str
    """ISO 8601, UTC."""
    facts: ServerFacts
    protocol: Protocol
    prompts: PromptSetFacts
    tokenizer: TokenizerFacts
    dims: dict[str, str] = {}
    """What the user says was turned: `kv=fp8`, `weights=int4`, …"""
    reference: str = ""
    """Label of the capture that wrote the text; empty when this runtime wrote it."""
    written_by: str = ""
    """`flipscope` and its version."""


class Range(msgspec.Struct, frozen=True, order=True):
    """A named span of positions, `start` inclusive, `stop` exclusive."""

    start: int
    stop: int
    name: str


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Wall seconds spent waiting for the server."""

    started: str = ""
    """ISO 8601, UTC."""
    score_s: float = 0.0
    generate_s: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class PromptRecord:
    """Everything recorded from one runtime over one prompt.

    Attributes:
        prompt_id: Name of the prompt, unique in its set.
        category: Kind of text, `""` when the set gives none.
        index: Place in the prompt set, from 0.
        prompt_length: Number of tokens before the continuation.
        ranges: Named spans of positions.
        output: Spans whose positions make the headline: the continuation, or the assistant turns of a transcript.
        forced: Predictions over prompt + continuation; None when `failure` says why.
        generated: The runtime's own greedy text; None when not asked for, or when `failure` says why.
        finish_reason: Why the generation ended: `stop`, `length`, or `""` without one.
        timing: How long the server took.
        failure: Why something is missing, `""` when nothing is. A record with a failure is captured again on resume.
        evidence: What the capture noticed about the server's trustworthiness, by name.
    """

    prompt_id: str
    category: str
    index: int
    prompt_length: int
    ranges: tuple[Range, ...] = ()
    output: tuple[tuple[int, int], ...] = ()
    forced: TokenStream | None = None
    generated: TokenStream | None = None
    finish_reason: str = ""
    timing: Timing = field(default_factory=Timing)
    failure: str = ""
    evidence: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Piece:
    """The text of one token id.

    Attributes:
        data: The token's bytes. When `exact` is false: the server's own words for it in UTF-8, possibly empty.
        exact: Whether `data` are the token's real bytes.
        special: Whether it is a control token such as `<|im_end|>`.
    """

    data: bytes
    exact: bool = True
    special: bool = False
