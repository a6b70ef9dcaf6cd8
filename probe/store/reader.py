"""A capture on disk, read on demand: opening costs the index, looking at a prompt costs that prompt."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import threading
from collections import OrderedDict
from pathlib import Path
from types import TracebackType

import msgspec
import numpy as np

from probe.errors import CaptureFormatError
from probe.records import Header, PromptRecord
from probe.store.container import Read, read_frame, read_payload
from probe.store.index import Contents, PromptSummary, summarise, survey
from probe.store.schema import PromptFields, parse, read_prompt
from probe.store.vocabulary import Vocabulary, read_tables
from probe.stream import NO_TOKEN, TokenStream

CACHE_BYTES = 16 << 20
"""Decoded prompts kept per capture: 97,000 positions at top-20."""


class Capture:
    """One runtime's capture. Safe to use from several threads; close it, or use it as a context manager.

    Attributes:
        path: The file.
        header: Its first record: label, facts, protocol.
        prompt_ids: Ids of the recorded prompts by their place in the prompt set.
        complete: Whether the file was finished: it ends with an index.
        damage: What is missing or broken, one human sentence each. With an index nothing but the index is read
            at opening, so a corrupted record shows only when it is asked for.
    """

    def __init__(self, path: Path, descriptor: int, contents: Contents, cache_bytes: int) -> None:
        self.path = path
        self.header: Header = contents.header
        self.prompt_ids: tuple[str, ...] = contents.order()
        self.complete: bool = contents.complete
        self.damage: tuple[str, ...] = tuple(contents.damage)
        self._contents = contents
        self._descriptor: int | None = descriptor
        self._cache: OrderedDict[str, PromptRecord] = OrderedDict()
        self._cache_bytes = cache_bytes
        self._cached = 0
        self._vocabulary: Vocabulary | None = None
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: Path, *, cache_bytes: int = CACHE_BYTES) -> Capture:
        """Open a capture file.

        Args:
            path: The file.
            cache_bytes: How much of decoded prompts to keep; the last one is always kept.

        Raises:
            CaptureFormatError: When it cannot be opened, or is no capture that this version reads.
        """
        descriptor = open_regular(path)
        try:
            size = os.fstat(descriptor).st_size
            contents = survey(reading(descriptor), size)
        except CaptureFormatError as error:
            os.close(descriptor)
            raise CaptureFormatError(f"{path}: {error.detail}", hint=error.hint) from error
        except BaseException:
            os.close(descriptor)
            raise
        return cls(path, descriptor, contents, cache_bytes)

    def __enter__(self) -> Capture:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; what was handed out stays valid."""
        with self._lock:
            descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def summary(self, prompt_id: str) -> PromptSummary:
        """What is known of a prompt without decoding it.

        Raises:
            KeyError: When the capture has no such prompt.
        """
        return self._contents.prompts[prompt_id]

    def record(self, prompt_id: str) -> PromptRecord:
        """A prompt's record; its arrays are read-only and shared between callers.

        Raises:
            KeyError: When the capture has no such prompt.
            CaptureFormatError: Names the record when it is corrupt.
        """
        summary = self._contents.prompts[prompt_id]
        with self._lock:
            cached = self._cache.get(prompt_id)
            if cached is not None:
                self._cache.move_to_end(prompt_id)
                return cached
        where = f"{self.path}: prompt {prompt_id!r:.80} (record at byte {summary.offset})"
        fields = parse(self._payload(summary.offset, "prompt", where), PromptFields, where)
        if fields.id != prompt_id:
            raise CaptureFormatError(f"{where}: the record is of prompt {fields.id!r:.80}")
        record = read_prompt(fields, where)
        if summarise(record, summary.offset, summary.length) != summary:
            raise CaptureFormatError(f"{where}: the index says otherwise about its category, place or lengths")
        with self._lock:
            if prompt_id not in self._cache:
                self._cache[prompt_id] = record
                self._cached += _weight(record)
            while self._cached > self._cache_bytes and len(self._cache) > 1:
                self._cached -= _weight(self._cache.popitem(last=False)[1])
        return record

    @property
    def vocabulary(self) -> Vocabulary:
        """The bytes of every token id that occurs; read at the first use.

        A corrupted vocabulary record leaves its ids unknown and is named in `damage`.
        """
        with self._lock:
            known = self._vocabulary
        if known is not None:
            return known
        tables, faults = read_tables(
            lambda offset, where: self._payload(offset, "vocabulary", where), self._contents.vocabulary
        )
        built = Vocabulary(tables)
        with self._lock:
            if self._vocabulary is None:
                self._vocabulary = built
                self.damage += tuple(faults)
            return self._vocabulary

    def others(self) -> dict[str, tuple[int, ...]]:
        """Offsets of the records whose kind this version keeps but does not read, by kind."""
        return {kind: tuple(offsets) for kind, offsets in self._contents.others.items()}

    def digest(self) -> str:
        """sha256 over everything that was measured, in hex.

        Taken: protocol, hash of the prompt set, per prompt its id, category, place, lengths, spans, finish reason,
        failure and both streams bit by bit, and the piece of every id that occurs. Left out: label, facts, times and
        evidence. So a capture that was interrupted and continued equals an undisturbed one.

        Raises:
            CaptureFormatError: When a record is corrupt.
        """
        total = hashlib.sha256(b"flipscope capture 1")
        _feed(total, [msgspec.to_builtins(self.header.protocol), self.header.prompts.sha256])
        seen: set[int] = set()
        for prompt_id in self.prompt_ids:
            record = self.record(prompt_id)
            spans = [[each.start, each.stop, each.name] for each in record.ranges]
            _feed(
                total,
                [record.prompt_id, record.category, record.index, record.prompt_length, spans]
                + [[list(each) for each in record.output], record.finish_reason, record.failure],
            )
            for stream in (record.forced, record.generated):
                _feed(total, None if stream is None else [stream.kind, stream.start, len(stream), stream.k])
                if stream is not None:
                    for array in _arrays(stream):
                        total.update(array.tobytes())
                    seen.update(np.unique(stream.ids).tolist(), np.unique(stream.top_ids).tolist())
        vocabulary = self.vocabulary
        for token_id in sorted(seen - {NO_TOKEN}):
            piece = vocabulary.piece(token_id)
            _feed(total, [token_id, piece.data.hex(), piece.exact, piece.special])
        return total.hexdigest()

    def _payload(self, offset: int, kind: str, where: str) -> bytes:
        with self._lock:  # so that close() in another thread cannot hand the descriptor's number to another file
            if self._descriptor is None:
                raise CaptureFormatError(f"{where}: the capture was closed")
            read = reading(self._descriptor)
            try:
                frame = read_frame(read, offset, os.fstat(self._descriptor).st_size)
                if frame.kind != kind:
                    raise ValueError(f"a {frame.kind!r:.40} record stands there")
                return read_payload(read, frame)
            except (ValueError, OSError) as error:
                raise CaptureFormatError(f"{where}: {error}") from error


def open_regular(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a file that must be a plain one: a pipe or a device would block or never end.

    Raises:
        CaptureFormatError: When it cannot be opened or is something else.
    """
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise CaptureFormatError(f"{path}: {reason}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise CaptureFormatError(f"{path}: not a file")
    return descriptor


def reading(descriptor: int) -> Read:
    """Reads of a file at any offset. pread and not mmap: a file cut while open gives short reads, not SIGBUS."""

    def read(offset: int, length: int) -> bytes:
        found = os.pread(descriptor, length, offset)
        while len(found) < length:
            more = os.pread(descriptor, length - len(found), offset + len(found))
            if not more:
                break
            found += more
        return found

    return read


def _arrays(stream: TokenStream) -> tuple[np.ndarray, ...]:
    return stream.ids, stream.logprob, stream.rank, stream.top_ids, stream.top_logprobs


def _weight(record: PromptRecord) -> int:
    """Bytes of a record's arrays."""
    streams = [each for each in (record.forced, record.generated) if each is not None]
    return 1024 + sum(array.nbytes for stream in streams for array in _arrays(stream))


def _feed(total: hashlib._Hash, value: object) -> None:
    total.update(json.dumps(value, sort_keys=True, separators=(",", ":")).encode() + b"\n")
