"""What a capture file holds and where: from the index at its end, or by walking over all records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgpack
import msgspec
import numpy as np

from probe.errors import CaptureFormatError
from probe.records import Header, PromptRecord
from probe.store.arrays import PackedArray, pack
from probe.store.container import Damage, Frame, Read, read_frame, read_payload, read_trailer, scan
from probe.store.limits import MAX_DAMAGE, MAX_RECORDS
from probe.store.plain import dumps
from probe.store.schema import PromptFields, check_summary, parse, read_header

_KNOWN = frozenset({"header", "prompt", "vocabulary", "index", "end"})


@dataclass(frozen=True, slots=True)
class PromptSummary:
    """A prompt record in a few numbers, known without decoding it.

    Attributes:
        prompt_id: Its id.
        category: Kind of text, `""` when none was given.
        index: Place in the prompt set, from 0.
        positions: Tokens of the forced text, prompt and continuation; 0 without one.
        prompt_length: Tokens before the continuation.
        generated: Tokens of the runtime's own text; 0 without one.
        failure: Why something is missing, `""` when nothing is.
        offset: First byte of its record in the file.
        length: Bytes of the record, frame included.
    """

    prompt_id: str
    category: str
    index: int
    positions: int
    prompt_length: int
    generated: int
    failure: str
    offset: int
    length: int


@dataclass(slots=True)
class Contents:
    """Everything a reader or a continuing writer must know before it looks at a record.

    Attributes:
        header: The file's first record.
        header_payload: Its bytes, copied into the index.
        prompts: The last valid record of each prompt, by id.
        vocabulary: Offsets of the vocabulary records.
        others: Offsets of records of kinds this version does not read, by kind.
        damage: Human sentences about what is missing or broken.
        complete: Whether the file ends with a valid index and trailer.
        stop: Byte right after the last valid record.
        torn: Whether nothing valid can lie behind `stop`, so that the rest may be cut off.
    """

    header: Header
    header_payload: bytes
    prompts: dict[str, PromptSummary] = field(default_factory=dict)
    vocabulary: list[int] = field(default_factory=list)
    others: dict[str, list[int]] = field(default_factory=dict)
    damage: list[str] = field(default_factory=list)
    complete: bool = False
    stop: int = 0
    torn: bool = False

    def order(self) -> tuple[str, ...]:
        """Prompt ids by their place in the set."""
        ranked = sorted(self.prompts.values(), key=lambda each: (each.index, each.prompt_id))
        return tuple(each.prompt_id for each in ranked)


class IndexFields(msgspec.Struct, frozen=True, kw_only=True):
    """An index record's payload: columns over the prompts, and offsets."""

    header: bytes
    ids: list[str]
    categories: list[str]
    failures: list[str]
    index: PackedArray
    positions: PackedArray
    prompt_length: PackedArray
    generated: PackedArray
    offset: PackedArray
    length: PackedArray
    vocabulary: PackedArray
    others: dict[str, PackedArray]


_NUMBERS = ("index", "positions", "prompt_length", "generated", "offset", "length")


def write_index(contents: Contents) -> bytes:
    """An index record's payload."""
    summaries = [contents.prompts[each] for each in contents.order()]
    columns: dict[str, Any] = {name: _column(getattr(each, name) for each in summaries) for name in _NUMBERS}
    return dumps(
        {
            "header": contents.header_payload,
            "ids": [each.prompt_id for each in summaries],
            "categories": [each.category for each in summaries],
            "failures": [each.failure for each in summaries],
            **columns,
            "vocabulary": _column(contents.vocabulary),
            "others": {kind: _column(offsets) for kind, offsets in contents.others.items()},
        }
    )


def _column(values: Iterable[int]) -> Any:
    return pack(np.array(list(values), np.int64)).ext()


def summarise(record: PromptRecord, offset: int, length: int) -> PromptSummary:
    """A record's line in the index.

    Args:
        record: The record.
        offset: Where it lies in the file.
        length: Its bytes there.
    """
    return PromptSummary(
        prompt_id=record.prompt_id,
        category=record.category,
        index=record.index,
        positions=0 if record.forced is None else len(record.forced),
        prompt_length=record.prompt_length,
        generated=0 if record.generated is None else len(record.generated),
        failure=record.failure,
        offset=offset,
        length=length,
    )


def survey(read: Read, size: int) -> Contents:
    """Find out what a file holds: by its index when it ends with one, else by walking over it.

    Args:
        read: Reads the file.
        size: Its bytes.

    Raises:
        CaptureFormatError: When there is no header, or none this version reads.
    """
    at = read_trailer(read, size)
    if at is not None:
        try:
            return _by_index(read, at, size)
        except ValueError as error:
            fault = f"the index at byte {at} cannot be used: {error}"
        except CaptureFormatError as error:
            fault = f"the index at byte {at} cannot be used: {error.detail}"
        contents = walk(read, size)
        contents.damage.insert(0, fault)
        return contents
    return walk(read, size)


def _by_index(read: Read, at: int, size: int) -> Contents:
    frame = read_frame(read, at, size)
    if frame.kind != "index":
        raise ValueError(f"a {frame.kind!r} record stands there")
    fields = parse(read_payload(read, frame), IndexFields, "index")
    numbers = {name: _numbers(getattr(fields, name), name, len(fields.ids)) for name in _NUMBERS}
    if not len(fields.ids) == len(fields.categories) == len(fields.failures) == len(set(fields.ids)):
        raise ValueError("its columns differ in length, or an id stands twice")
    damage: list[str] = []
    try:
        header_payload = read_payload(read, _first(read, size))
    except ValueError as error:
        header_payload = fields.header
        damage.append(f"the header at byte 0 is corrupt ({error}); its copy in the index was used")
    contents = Contents(read_header(header_payload), header_payload, damage=damage, complete=True, stop=size)

    def refuse(reason: str) -> None:
        raise ValueError(reason)

    for row, prompt_id in enumerate(fields.ids):
        summary = PromptSummary(
            prompt_id=prompt_id,
            category=fields.categories[row],
            failure=fields.failures[row],
            **{name: column[row] for name, column in numbers.items()},
        )
        check_summary(prompt_id, summary.category, summary.index, summary.prompt_length, summary.failure, refuse)
        if summary.offset + summary.length > at:
            raise ValueError(f"prompt {prompt_id!r:.80} would lie behind it")
        contents.prompts[prompt_id] = summary
    contents.vocabulary = _numbers(fields.vocabulary, "vocabulary", None)
    if any(after <= before for before, after in pairwise(contents.vocabulary)):
        raise ValueError("vocabulary does not rise")
    contents.others = {kind: _numbers(column, "others", None) for kind, column in fields.others.items()}
    return contents


def _numbers(packed: PackedArray, name: str, count: int | None) -> list[int]:
    """A column of non-negative numbers."""
    if packed.shape[0] > MAX_RECORDS:
        raise ValueError(f"{name} has {packed.shape[0]} rows, beyond the limit of {MAX_RECORDS}")
    values = packed.expect("<i8", packed.shape[:1] if count is None else (count,)).unpack()
    if len(values) and int(values.min()) < 0:
        raise ValueError(f"{name} holds {int(values.min())}")
    return [int(each) for each in values]


def _first(read: Read, size: int) -> Frame:
    frame = read_frame(read, 0, size)
    if frame.kind != "header":
        raise ValueError(f"the first record is a {frame.kind!r}")
    return frame


def walk(read: Read, size: int) -> Contents:
    """Find out what a file holds by reading all of it, checksums included.

    Raises:
        CaptureFormatError: When there is no header, or none this version reads.
    """
    try:
        payload = read_payload(read, _first(read, size))
    except ValueError as error:
        raise CaptureFormatError(
            f"the header at byte 0: {error}",
            hint="The file is not a flipscope capture, or its first bytes are lost; capture again.",
        ) from error
    contents = Contents(read_header(payload), payload)
    faults: list[Damage] = []
    for found in scan(read, size):
        if isinstance(found, Damage):
            faults.append(found)
            contents.torn = found.tail
            continue
        frame, payload = found
        contents.stop = frame.stop
        if frame.kind == "prompt":
            _note_prompt(contents, frame, payload)
        elif frame.kind == "vocabulary":
            contents.vocabulary.append(frame.offset)
        elif frame.kind not in _KNOWN:
            contents.others.setdefault(frame.kind, []).append(frame.offset)
    sentences = [_sentence(read, each) for each in faults[:MAX_DAMAGE]]
    if len(faults) > MAX_DAMAGE:
        sentences.append(f"{len(faults) - MAX_DAMAGE} more damaged places")
    contents.damage.extend(sentences)
    return contents


def _note_prompt(contents: Contents, frame: Frame, payload: bytes) -> None:
    where = f"prompt record at byte {frame.offset}"
    try:
        fields = parse(payload, PromptFields, where)

        def refuse(reason: str) -> None:
            raise CaptureFormatError(f"{where}: {reason}")

        check_summary(fields.id, fields.category, fields.index, fields.prompt_length, fields.failure, refuse)
    except CaptureFormatError as error:
        if len(contents.damage) < MAX_DAMAGE:
            contents.damage.append(error.detail)
        return
    contents.prompts[fields.id] = PromptSummary(
        prompt_id=fields.id,
        category=fields.category,
        index=fields.index,
        positions=0 if fields.forced is None else fields.forced.ids.shape[0],
        prompt_length=fields.prompt_length,
        generated=0 if fields.generated is None else fields.generated.ids.shape[0],
        failure=fields.failure,
        offset=frame.offset,
        length=frame.stop - frame.offset,
    )


def _sentence(read: Read, fault: Damage) -> str:
    lost = fault.stop - fault.offset
    name = "data"
    if fault.frame is not None:
        name = f"{fault.frame.kind!r:.40} record"
        if fault.frame.kind == "prompt":
            name = f"prompt record{_guess_id(read(fault.frame.begin, min(fault.frame.length, 1024)))}"
    how = "torn tail dropped" if fault.tail else "skipped"
    return f"{name} at byte {fault.offset}: {fault.reason}; {lost} bytes {how}"


def _guess_id(head: bytes) -> str:
    """Which prompt a corrupted record seems to be: its id is the first thing in it."""
    unpacker = msgpack.Unpacker(raw=False, max_buffer_size=1 << 11)
    unpacker.feed(head)
    try:
        value = unpacker.unpack() if unpacker.read_map_header() and unpacker.unpack() == "id" else None
    except (ValueError, TypeError, OverflowError, msgpack.UnpackException):
        return ""
    return f" {value!r:.80}" if isinstance(value, str) else ""
