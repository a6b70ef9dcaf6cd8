"""llama.cpp in this process, through cyllama. Importing this module needs the `embedded` extra."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cyllama
import numpy as np
from cyllama._internal import build_config
from cyllama.llama import llama_cpp
from numpy.typing import NDArray

from probe.errors import InputError
from probe.records import Piece
from probe.wire.embedded.engine import EngineFacts, InterruptedWorkError
from probe.wire.embedded.pieces import read_pieces
from probe.wire.embedded.settings import DEFAULT_CONTEXT, Settings

BATCH = 256
"""Tokens per prefill batch. Part of the numbers: the last digits differ between 64 and 128 (KL 7e-4), though not
between 128 and 256. llama.cpp holds the logits of one batch: 256 x 49,152 x 4 B = 50 MB."""
BLOCK = 16
"""Rows handed over at once: their float64 softmax takes 16 x 49,152 x 16 B = 13 MB."""
_KV_CODES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "bf16": 30}

llama_cpp.disable_logging()


def engine_version() -> str:
    """llama.cpp's release and the wrapper's."""
    release = build_config.get().get("versions", {}).get("llama_cpp_version", "unknown")
    return f"llama.cpp {release} (cyllama {cyllama.__version__})"


class _Model(llama_cpp.LlamaModel):  # type: ignore[misc]
    """cyllama 0.2.18's `get_logits_ith` asks its model for `n_vocab`, which only the vocabulary has."""

    n_vocab = 0


class LlamaEngine:
    """One model and one context of llama.cpp.

    cyllama releases the GIL while llama.cpp computes (measured: a 1 ms ticker keeps ticking), so engines in several
    threads run side by side and the event loop stays free.
    """

    def __init__(self, path: Path, settings: Settings, *, name: str, root: str, digest: str) -> None:
        """Load a model.

        Args:
            path: The GGUF file.
            settings: What is turned.
            name: The name requests will carry.
            root: Where the weights came from, for the facts.
            digest: SHA-256 of the source file, for the fingerprint.

        Raises:
            InputError: llama.cpp cannot load the file or cannot run it with these settings.
        """
        options = llama_cpp.LlamaModelParams()
        options.n_gpu_layers = 0  # the same numbers on every machine with this instruction set
        try:
            self._model: Any = _Model(str(path), options, False)
        except (ValueError, RuntimeError, OSError) as problem:
            raise InputError(
                f"llama.cpp cannot load {path}: {_one_line(problem)}", hint="Give a GGUF model file."
            ) from problem
        self._vocab: Any = self._model.get_vocab()
        self._model.n_vocab = self._vocab.n_vocab
        trained: int = self._model.n_ctx_train
        if settings.context > trained:
            raise InputError(f"embedded: ctx={settings.context}, but {name} knows {trained} positions")
        context = settings.context or min(trained, DEFAULT_CONTEXT)
        try:
            self._context: Any = llama_cpp.LlamaContext(self._model, _context_options(settings, context), False)
        except (ValueError, RuntimeError, MemoryError) as problem:
            raise InputError(
                f"llama.cpp cannot run {name} with kv={settings.kv}, ctx={context}: {_one_line(problem)}",
                hint="Try kv=f16 or a smaller ctx=.",
            ) from problem
        self._context.install_cancel_callback()
        self._batch: Any = llama_cpp.LlamaBatch(n_tokens=BATCH, embd=0, n_seq_max=1)
        self._position = 0
        self._closed = False
        self._facts = self._describe(settings, context, name, root, digest)

    @property
    def facts(self) -> EngineFacts:
        """What the engine says about itself."""
        return self._facts

    def prefill(self, ids: Sequence[int], *, every: bool) -> Iterator[NDArray[np.float32]]:
        """Forget everything, then read a text in batches; see `Engine.prefill`."""
        self._context.kv_cache_clear()
        self._position = 0
        for begin in range(0, len(ids), BATCH):
            part = list(ids[begin : begin + BATCH])
            self._decode(part, every=every)
            if every:
                for first in range(0, len(part), BLOCK):
                    yield np.stack([self._logits(row) for row in range(first, min(first + BLOCK, len(part)))])
        if not every:
            yield self._logits(-1)[None]

    def step(self, token: int) -> NDArray[np.float32]:
        """Append one token and return the logits after it, float32 `[V]`."""
        self._decode([token], every=False)
        return self._logits(-1)

    def tokenise(self, text: str, *, special: bool) -> list[int]:
        """Ids of a text; see `Engine.tokenise`."""
        ids: list[int] = self._vocab.tokenize(text, special, True) if text else []
        return ids

    def pieces(self) -> list[Piece]:
        """The bytes of every token id, in order of id."""
        return read_pieces(self._vocab)

    def spellings(self, ids: Sequence[int]) -> list[str]:
        """Tokens as the vocabulary spells them."""
        return [self._vocab.get_text(token) for token in ids]

    def ends(self, token: int) -> bool:
        """Whether a token ends a generation."""
        return bool(self._vocab.is_eog(token))

    def interrupt(self) -> None:
        """Make the computation that runs now, and every later one, raise until `resume`."""
        self._context.cancel = True

    def resume(self) -> None:
        """Allow computing again."""
        self._context.cancel = False

    def close(self) -> None:
        """Free the context before the model it points into. Idempotent."""
        if not self._closed:
            self._closed = True
            self._context.close()
            self._batch.close()
            self._model.close()

    def _decode(self, part: list[int], *, every: bool) -> None:
        if self._context.cancel:
            raise InterruptedWorkError
        self._batch.set_batch(part, self._position, every)
        if not every:
            self._batch.set_last_logits_to_true()
        try:
            self._context.decode(self._batch)
        except InterruptedError:
            raise InterruptedWorkError from None
        self._position += len(part)

    def _logits(self, row: int) -> NDArray[np.float32]:
        return np.fromiter(self._context.get_logits_ith(row), np.float32, self._model.n_vocab)

    def _describe(self, settings: Settings, context: int, name: str, root: str, digest: str) -> EngineFacts:
        resolved = {
            "cache_dtype": settings.kv,
            "flash_attention": "on" if settings.flash else "off",
            "weights": settings.weights or str(self._model.desc).rpartition(" ")[2],
            "context": str(context),
            "batch": str(BATCH),
            "model_sha256": digest,
        }
        version = engine_version()
        hashed = hashlib.sha256(json.dumps([version, resolved], sort_keys=True).encode()).hexdigest()[:8]
        release = version.split()[1]
        return EngineFacts(
            name=name,
            root=root,
            version=version,
            fingerprint=f"llama.cpp-{release}-{hashed}",
            context=context,
            vocabulary=self._model.n_vocab,
            max_logprobs=settings.max_logprobs if settings.max_logprobs >= 0 else self._model.n_vocab,
            settings={**resolved, "threads": str(settings.threads), "max_logprobs": str(settings.max_logprobs)},
            template=self._model.get_default_chat_template() or "",
            specials=self._specials(),
        )

    def _specials(self) -> dict[str, str]:
        named = {"bos_token": self._vocab.token_bos(), "eos_token": self._vocab.token_eos()}
        return {name: self._vocab.get_text(token) for name, token in named.items() if token >= 0}


def _context_options(settings: Settings, context: int) -> Any:
    options = llama_cpp.LlamaContextParams()
    options.n_ctx = context
    options.n_batch = options.n_ubatch = BATCH
    options.n_seq_max = 1
    options.n_threads = options.n_threads_batch = settings.threads
    options.flash_attn_type = int(settings.flash)
    options.type_k = options.type_v = _KV_CODES[settings.kv]
    options.no_perf = True
    options.offload_kqv = options.op_offload = False
    return options


def _one_line(problem: Exception) -> str:
    return " ".join(str(problem).split())[:200]
