"""What a server says about itself: /version, /v1/models, /metrics, /server_info. Pure functions of bodies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from probe.errors import ServerAnswerError, ServerRefusedError
from probe.wire.answers import decode_as
from probe.wire.failures import plain

VALUE_LENGTH = 200
"""Characters of a setting that are kept."""

CAPACITIES = frozenset(
    {"engine", "gpu_memory_utilization", "kv_cache_max_concurrency", "kv_cache_memory_bytes", "kv_cache_size_tokens"}
    | {"num_cpu_blocks", "num_gpu_blocks", "num_gpu_blocks_override"}
)
"""Labels of cache_config_info that tell the size of the memory: they differ from start to start, the numbers do not."""

SETTINGS: Mapping[str, tuple[str, ...]] = {
    "model_config": (
        *("dtype", "quantization", "enforce_eager", "max_logprobs", "logprobs_mode", "seed", "model_impl"),
        *("enable_trace_replay", "disable_cascade_attn", "disable_sliding_window"),
    ),
    "cache_config": ("cache_dtype", "block_size", "enable_prefix_caching", "kv_cache_dtype_skip_layers"),
    "parallel_config": (
        *("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "enable_expert_parallel"),
        *("decode_context_parallel_size", "prefill_context_parallel_size"),
    ),
    "scheduler_config": ("max_num_batched_tokens", "max_num_seqs", "enable_chunked_prefill", "async_scheduling"),
    "device_config": ("device",),
    "load_config": ("load_format",),
    "attention_config": ("backend", "flash_attn_version"),
    "kernel_config": ("moe_backend", "linear_backend"),
    "speculative_config": ("method", "num_speculative_tokens", "model"),
    "compilation_config": ("mode", "cudagraph_mode"),
}
"""What is read out of /server_info, by section. A list of names, since that body holds a `hf_token` too."""

_AMBIGUOUS = frozenset({"backend", "method", "model", "mode", "device"})
_CACHE_INFO = re.compile(rb"^vllm:cache_config_info\{([^\n]{0,20000})\} ", re.M)
_LABEL = re.compile(r'(\w{1,100})="((?:[^"\\]|\\.)*)"')


class ModelCard(msgspec.Struct):
    """One entry of /v1/models."""

    id: str
    root: str | None = None
    parent: str | None = None
    owned_by: str | None = None
    max_model_len: int | None = None


class _Models(msgspec.Struct):
    data: list[ModelCard]


class _Version(msgspec.Struct):
    version: str


class _Fingerprint(msgspec.Struct):
    system_fingerprint: str | None = None


_FINGERPRINT = msgspec.json.Decoder(_Fingerprint)
_MODELS = msgspec.json.Decoder(_Models)
_VERSION = msgspec.json.Decoder(_Version)
_ANYTHING = msgspec.json.Decoder(dict[str, Any])


def choose_model(body: bytes, wanted: str) -> ModelCard:
    """The model that requests will name: the wanted one, else the first that is no adapter of another.

    Raises:
        ServerAnswerError: The body lists no models.
        ServerRefusedError: The wanted model is not among them; the detail lists them.
    """
    cards = decode_as(_MODELS, body, "/v1/models").data
    if not cards:
        raise ServerAnswerError("/v1/models lists no model", hint="Is the server still loading?")
    if not wanted:
        return next((card for card in cards if not card.parent), cards[0])
    for card in cards:
        if card.id == wanted:
            return card
    names = ", ".join(plain(card.id, 60) for card in cards[:10])
    raise ServerRefusedError(f"the server has no model {plain(wanted, 60)!r}; it has {names}", status=404)


def read_version(body: bytes) -> str:
    """The version in /version."""
    return plain(decode_as(_VERSION, body, "/version").version, VALUE_LENGTH)


def read_cache_info(metrics: bytes) -> dict[str, str]:
    """Resolved cache settings out of /metrics: what is set, without what merely tells the size of the machine."""
    found = _CACHE_INFO.search(metrics)
    if not found:
        return {}
    labels = {
        name: value.replace('\\"', '"').replace("\\\\", "\\")
        for name, value in _LABEL.findall(found.group(1).decode("utf-8", "replace"))
    }
    return {
        name: plain(value, VALUE_LENGTH)
        for name, value in sorted(labels.items())
        if name not in CAPACITIES and not name.startswith("_") and value not in ("None", "", "[]")
    }


def read_server_info(body: bytes) -> dict[str, str]:
    """Resolved settings out of `/server_info?config_format=json`, which only a server in dev mode opens."""
    sections = decode_as(_ANYTHING, body, "/server_info").get("vllm_config")
    if not isinstance(sections, dict):
        return {}
    settings: dict[str, str] = {}
    for section, names in SETTINGS.items():
        values = sections.get(section)
        if not isinstance(values, dict):
            continue
        for name in names:
            value = values.get(name)
            if value is not None and value != []:
                key = f"{section.removesuffix('_config')}_{name}" if name in _AMBIGUOUS else name
                settings[key] = plain(str(value).removeprefix("torch."), VALUE_LENGTH)
    return settings


def read_fingerprint(body: bytes) -> str:
    """`system_fingerprint` of any completion, `""` without one."""
    return plain(decode_as(_FINGERPRINT, body, "a completion").system_fingerprint or "", VALUE_LENGTH)
