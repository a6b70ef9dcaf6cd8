"""Whether captures speak about the same thing, and what a reader must know before trusting a difference."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from probe.errors import NotComparableError
from probe.records import Header, ServerFacts

_CAPACITY = frozenset(
    {
        "cpu_kvcache_space_bytes",
        "cpu_offload_gb",
        "engine",
        "gpu_memory_utilization",
        "kv_cache_max_concurrency",
        "kv_cache_memory_bytes",
        "kv_cache_size_tokens",
        "num_cpu_blocks",
        "num_gpu_blocks",
        "num_gpu_blocks_override",
        "swap_space",
        "swap_space_bytes",
    }
)
"""Settings that say how much fits, not what is computed."""

_PART_OF_WEIGHTS = frozenset({"quantization", "model", "load_format", "revision"})
"""Settings that follow from the checkpoint: they are no second change beside it."""

_NAMED = 5  # prompts named in a warning before "and N more"


def refuse_incomparable(headers: Sequence[Header], labels: Sequence[str]) -> None:
    """Check everything that headers can tell.

    Args:
        headers: Of the captures, the reference first.
        labels: Their names in messages.

    Raises:
        NotComparableError: Tokenizers or log-prob modes differ; the detail holds both values.
    """
    reference, name = headers[0], labels[0]
    for header, label in zip(headers[1:], labels[1:], strict=True):
        ours, theirs = reference.tokenizer, header.tokenizer
        if ours.fingerprint and theirs.fingerprint and ours.fingerprint != theirs.fingerprint:
            raise NotComparableError(
                f"tokenizers differ: {name} has {_short(ours.fingerprint)} ({ours.source}), "
                f"{label} has {_short(theirs.fingerprint)} ({theirs.source})",
                hint="The same ids mean different text. Compare runtimes of models that share a vocabulary.",
            )
        if reference.protocol.logprobs_mode != header.protocol.logprobs_mode:
            raise NotComparableError(
                f"log-prob modes differ: {name} has {reference.protocol.logprobs_mode}, "
                f"{label} has {header.protocol.logprobs_mode}",
                hint="Start both servers with the same --logprobs-mode and capture again.",
            )


def circumstances(headers: Sequence[Header], labels: Sequence[str]) -> Iterator[str]:
    """Sentences about how the captures were made that bear on a difference between them.

    Args:
        headers: Of the captures, the reference first.
        labels: Their names.
    """
    reference, name = headers[0], labels[0]
    for header, label in zip(headers[1:], labels[1:], strict=True):
        if reference.protocol.top_k != header.protocol.top_k:
            yield (
                f"{name} lists {reference.protocol.top_k} alternatives, {label} {header.protocol.top_k}: "
                "only tokens that both list are compared one by one"
            )
        for what, ours, theirs in (
            ("scored", reference.protocol.concurrency, header.protocol.concurrency),
            ("generated", reference.protocol.generate_concurrency, header.protocol.generate_concurrency),
        ):
            if ours != theirs:
                yield f"{name} was {what} with {ours} requests in flight, {label} with {theirs}"
        changed = changes(reference, header)
        if len(changed) > 1:
            yield (
                f"{len(changed)} things changed at once between {name} and {label} ({', '.join(changed)}): "
                "a difference cannot be put down to one of them"
            )


def changes(reference: Header, candidate: Header) -> list[str]:
    """What is known to have been turned between two runtimes, one entry a thing: `dtype float32 → bfloat16`.

    The servers' resolved facts count, since a flag may have switched something else along; the user's own `--dim`
    entries count where they tell more than the facts.
    """
    ours, theirs = reference.facts, candidate.facts
    facts = []
    weights = _weights(ours) != _weights(theirs)
    if weights:
        facts.append(_arrow("weights", _weights(ours), _weights(theirs)))
    if ours.engine != theirs.engine:
        facts.append(_arrow("engine", ours.engine, theirs.engine))
    if ours.version != theirs.version:
        facts.append(_arrow("version", ours.version, theirs.version))
    for key in sorted(ours.settings.keys() & theirs.settings.keys()):  # a setting only one server tells is no change
        if key in _CAPACITY or (weights and key in _PART_OF_WEIGHTS):
            continue
        if ours.settings[key] != theirs.settings[key]:
            facts.append(_arrow(key, ours.settings[key], theirs.settings[key]))
    dims = [
        _arrow(key, reference.dims.get(key, ""), candidate.dims.get(key, ""))
        for key in sorted(reference.dims.keys() | candidate.dims.keys())
        if reference.dims.get(key) != candidate.dims.get(key)
    ]
    return facts if len(facts) >= len(dims) else dims


def missing_prompts(prompts: Sequence[Collection[str]], labels: Sequence[str]) -> Iterator[str]:
    """One sentence per capture that lacks prompts which another one has.

    Args:
        prompts: Prompt ids of every capture.
        labels: Their names.
    """
    everything = list(dict.fromkeys(prompt for each in prompts for prompt in each))
    for own, label in zip(prompts, labels, strict=True):
        held = set(own)
        lacking = [prompt for prompt in everything if prompt not in held]
        if lacking:
            yield f"{label} lacks {_listing(lacking)}"


def failed_prompts(failed: Sequence[str], label: str) -> str:
    """The sentence about prompts whose recording failed."""
    return f"{label} failed on {_listing(failed)}"


def _listing(prompts: Sequence[str]) -> str:
    noun = "prompt" if len(prompts) == 1 else "prompts"
    more = f" and {len(prompts) - _NAMED} more" if len(prompts) > _NAMED else ""
    return f"{len(prompts)} {noun}: {', '.join(prompts[:_NAMED])}{more}"


def _weights(facts: ServerFacts) -> str:
    return facts.root or facts.model


def _arrow(what: str, before: str, after: str) -> str:
    return f"{what} {before or 'unset'} → {after or 'unset'}"


def _short(fingerprint: str) -> str:
    return fingerprint[:12]
