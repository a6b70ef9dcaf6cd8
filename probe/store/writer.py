"""Writing a capture: append only, on disk before it is believed, and continued after any interruption."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import msgspec
import numpy as np

from probe.errors import CaptureConflictError, CaptureFormatError, FlipscopeError
from probe.records import Header, Piece, PromptRecord
from probe.store.container import MARKER, Read, encode, encode_trailer, read_frame, read_payload
from probe.store.index import Contents, summarise, survey, walk, write_index
from probe.store.limits import MAX_HEADER
from probe.store.reader import open_regular, reading
from probe.store.schema import write_header, write_prompt
from probe.store.vocabulary import Vocabulary, better, read_tables, write_vocabulary
from probe.stream import NO_TOKEN

# What must not change between the runs that fill one file; created and address may.
_AGREE = (
    "format",
    "label",
    "reference",
    "facts.engine",
    "facts.model",
    "facts.root",
    "facts.version",
    "facts.fingerprint",
    "protocol.top_k",
    "protocol.max_tokens",
    "protocol.seed",
    "protocol.logprobs_mode",
    "protocol.concurrency",
    "protocol.generate_concurrency",
    "prompts.sha256",
    "tokenizer.fingerprint",
    "dims",
)


class CaptureWriter:
    """Appends to one capture file, which it keeps locked against other writers until closed.

    Attributes:
        path: The file.
        header: Its first record, as the file has it.
        damage: What `resume` found broken and left behind or cut off, one human sentence each.
    """

    def __init__(self, path: Path, descriptor: int, contents: Contents, pieces: dict[int, Piece]) -> None:
        self.path = path
        self.header = contents.header
        self.damage: tuple[str, ...] = tuple(contents.damage)
        self._descriptor: int | None = descriptor
        self._contents = contents
        self._pieces = pieces
        self._lock = threading.Lock()

    @classmethod
    def create(cls, path: Path, header: Header) -> CaptureWriter:
        """Start a new file; its folder is made when missing.

        Raises:
            CaptureConflictError: When the file exists.
            CaptureFormatError: When readers would refuse the header.
            FlipscopeError: When the file cannot be written.
        """
        payload = write_header(header)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(path.parent, error) from error
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError as error:
            raise CaptureConflictError(
                f"{path} exists", hint="Choose another label, or remove the file to capture anew."
            ) from error
        except OSError as error:
            raise _unwritable(path, error) from error
        writer = cls(path, descriptor, Contents(header, payload), {})
        try:
            _lock(path, descriptor)
            writer._write(encode("header", payload))
            _sync_folder(path.parent)
        except BaseException as error:
            path.unlink(missing_ok=True)
            writer.close()
            if isinstance(error, OSError):
                raise _unwritable(path, error) from error
            raise
        return writer

    @classmethod
    def resume(cls, path: Path, header: Header) -> CaptureWriter:
        """Continue a file: everything is read and checked, a torn tail is cut off, corrupt records are left behind.

        Args:
            path: An existing file; one that was cut within its header is started anew.
            header: What the run that continues would have written.

        Raises:
            CaptureConflictError: When the file was made under other conditions (names each with both values), or
                when another process is writing it.
            CaptureFormatError: When the file is no capture.
            FlipscopeError: When the file cannot be written.
        """
        payload = write_header(header)
        descriptor = open_regular(path, os.O_RDWR)
        try:
            _lock(path, descriptor)
            read = reading(descriptor)
            size = os.fstat(descriptor).st_size
            if _cut_in_header(read, size):
                os.ftruncate(descriptor, 0)
                writer = cls(path, descriptor, Contents(header, payload), {})
                writer._write(encode("header", payload))
                return writer
            contents = walk(read, size)
            _check_agreement(path, contents.header, header)
            indexed = survey(read, size)
            contents.complete = indexed.complete and indexed.prompts == contents.prompts
            if contents.stop < size and not contents.torn:
                raise CaptureFormatError(
                    f"{'; '.join(contents.damage)}",
                    hint="Too much is damaged to continue; capture under another label.",
                )
            if contents.stop < size:
                os.ftruncate(descriptor, contents.stop)
                os.fsync(descriptor)
            return cls(path, descriptor, contents, _known_pieces(descriptor, contents))
        except OSError as error:
            os.close(descriptor)
            raise _unwritable(path, error) from error
        except CaptureFormatError as error:
            os.close(descriptor)
            raise CaptureFormatError(f"{path}: {error.detail}", hint=error.hint) from error
        except BaseException:
            os.close(descriptor)
            raise

    @staticmethod
    def discard(path: Path) -> None:
        """Remove a capture that is to be made anew, unless another process is writing it.

        Raises:
            CaptureConflictError: When another process is writing it.
            CaptureFormatError: When it is no regular file.
            FlipscopeError: When it cannot be removed.
        """
        descriptor = open_regular(path)
        try:
            _lock(path, descriptor)
            path.unlink()
        except OSError as error:
            raise _unwritable(path, error) from error
        finally:
            os.close(descriptor)

    def __enter__(self) -> CaptureWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def done(self) -> frozenset[str]:
        """Ids of the prompts that are recorded without a failure."""
        with self._lock:
            return frozenset(each.prompt_id for each in self._contents.prompts.values() if not each.failure)

    def append(self, record: PromptRecord, pieces: Mapping[int, Piece]) -> None:
        """Write a prompt record, and before it the pieces that the file does not know yet; on disk when this returns.

        Args:
            record: Replaces an earlier record of the same prompt.
            pieces: Must know the ids that occur in the record; ids it does not know stay unknown to viewers.

        Raises:
            CaptureFormatError: When the record contradicts itself; nothing is written.
            FlipscopeError: When the disk refuses; the file is as it was before.
        """
        payload = write_prompt(record)
        with self._lock:
            new = self._new_pieces(record, pieces)
            vocabulary = encode("vocabulary", write_vocabulary(new)) if new else b""
            try:
                frame = encode("prompt", payload)
            except ValueError as error:
                raise CaptureFormatError(f"prompt {record.prompt_id!r:.80}: {error}") from error
            offset = self._contents.stop
            self._write(vocabulary + frame)
            self._contents.complete = False
            self._pieces.update(new)
            if new:
                self._contents.vocabulary.append(offset)
            at = offset + len(vocabulary)
            self._contents.prompts[record.prompt_id] = summarise(record, at, len(frame))

    def finish(self) -> None:
        """Write index and trailer, so that opening need not walk over the file. More may still be appended later.

        Raises:
            FlipscopeError: When the disk refuses; the file is as it was before.
        """
        with self._lock:
            if self._contents.complete:
                return
            at = self._contents.stop
            index = encode("index", write_index(self._contents))
            self._write(index + encode_trailer(at, at + len(index)))
            self._contents.complete = True

    def close(self) -> None:
        """Release the file. Without `finish` it stays a valid capture that can be continued."""
        with self._lock:
            descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _new_pieces(self, record: PromptRecord, pieces: Mapping[int, Piece]) -> dict[int, Piece]:
        streams = [each for each in (record.forced, record.generated) if each is not None]
        arrays = [array.reshape(-1) for stream in streams for array in (stream.ids, stream.top_ids)]
        new: dict[int, Piece] = {}
        for token_id in np.unique(np.concatenate(arrays)).tolist() if arrays else ():
            piece = pieces.get(token_id) if token_id != NO_TOKEN else None
            if piece is not None and better(piece, self._pieces.get(token_id)):
                new[token_id] = piece
        return new

    def _write(self, data: bytes) -> None:
        """Append and sync; on failure cut the file back to where it was."""
        if self._descriptor is None:
            raise ValueError("the writer is closed")
        begin = self._contents.stop
        try:
            view = memoryview(data)
            at = begin
            while view:
                count = os.pwrite(self._descriptor, view, at)
                at += count
                view = view[count:]
            os.fsync(self._descriptor)
        except OSError as error:
            os.ftruncate(self._descriptor, begin)
            raise _unwritable(self.path, error) from error
        self._contents.stop = at


def _cut_in_header(read: Read, size: int) -> bool:
    """Whether a file was cut before its header was whole: then, and only then, it may be started anew."""
    if size > MAX_HEADER:
        return False
    head = read(0, size)
    if head.count(MARKER) > 1:  # records follow: the header is not cut but corrupt
        return False
    start = MARKER + b"\xa6header\xce"
    if not start.startswith(head[: len(start)]):
        return False
    length = head[len(start) + 5 : len(start) + 9]
    return len(length) < 4 or size < len(start) + 9 + int.from_bytes(length, "big")


def _known_pieces(descriptor: int, contents: Contents) -> dict[int, Piece]:
    """The pieces that are safely in the file; those of an unreadable record are written again."""
    read = reading(descriptor)

    def payload(offset: int, where: str) -> bytes:
        return read_payload(read, read_frame(read, offset, contents.stop))

    tables, faults = read_tables(payload, contents.vocabulary)
    contents.damage.extend(faults)
    known: dict[int, Piece] = {}
    for vocabulary in (Vocabulary([table]) for table in tables):
        known.update((each, vocabulary.piece(each)) for each in vocabulary.ids().tolist())
    return known


def _check_agreement(path: Path, old: Header, new: Header) -> None:
    before, after = msgspec.to_builtins(old), msgspec.to_builtins(new)
    differ = []
    for name in _AGREE:
        first, second = before, after
        for part in name.split("."):
            first, second = first[part], second[part]
        if first != second:
            differ.append(f"{name} was {first!r}, is now {second!r}")
    if differ:
        raise CaptureConflictError(
            f"{path}: " + "; ".join(differ),
            hint="Run it as before, capture under another label, or start this capture anew with --overwrite.",
        )


def _lock(path: Path, descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise CaptureConflictError(
            f"{path} is being written by another flipscope", hint="Wait until it is done, or choose another label."
        ) from error


def _sync_folder(folder: Path) -> None:
    """Make a new file's name survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unwritable(path: Path, error: OSError) -> FlipscopeError:
    return FlipscopeError(
        f"{path}: {error.strerror}",
        hint="What was captured before is kept; free some space or choose another folder, then run it again.",
        title="Cannot write the capture",
    )
