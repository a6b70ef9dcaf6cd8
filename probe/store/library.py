"""Captures by name: which ones there are and which file a label means."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from probe import paths
from probe.errors import InputError
from probe.store.schema import LABEL

SUFFIX = ".msgpack"


@dataclass(frozen=True, slots=True)
class KnownCapture:
    """A capture file that can be named by its label.

    Attributes:
        label: Its name.
        path: Its file.
        bundled: Whether it came with flipscope.
    """

    label: str
    path: Path
    bundled: bool


def check_label(label: str) -> str:
    """The label itself when it can name a file.

    Raises:
        InputError: When it cannot.
    """
    if not LABEL.fullmatch(label):
        raise InputError(
            f"label {label!r:.80} cannot name a capture",
            hint="Labels have up to 64 letters, digits and .-_+= and do not start with a dot.",
        )
    return label


def capture_path(label: str, folder: Path | None = None) -> Path:
    """Where a capture of this label is written: in `folder`, else where captures go.

    Raises:
        InputError: When the label cannot name a file.
    """
    return (paths.captures() if folder is None else folder) / (check_label(label) + SUFFIX)


def listing() -> tuple[KnownCapture, ...]:
    """Every capture that can be named: your own by label, then the bundled ones that none of yours hides."""
    known: dict[str, KnownCapture] = {}
    for folder, bundled in ((paths.captures(), False), (paths.bundled_captures(), True)):
        if folder.is_dir():
            for path in sorted(folder.glob("*" + SUFFIX)):
                label = path.name.removesuffix(SUFFIX)
                if path.is_file() and LABEL.fullmatch(label):
                    known.setdefault(label, KnownCapture(label, path, bundled))
    return tuple(known.values())


def resolve(name: str) -> Path:
    """The file that a name means: a label among your captures, a bundled one, or a path.

    Args:
        name: A label or a path to a file.

    Raises:
        InputError: When there is no such capture; the hint names near ones.
    """
    if LABEL.fullmatch(name):
        for folder in (paths.captures(), paths.bundled_captures()):
            path = folder / (name + SUFFIX)
            if path.is_file():
                return path
    try:
        if Path(name).is_file():
            return Path(name)
    except (OSError, ValueError) as error:  # a name too long for the system, or with a NUL in it
        raise InputError(f"{name!r:.200} is no capture: {error}") from error
    labels = [each.label for each in listing()]
    near = difflib.get_close_matches(name, labels, n=3, cutoff=0.5) or sorted(labels)[:8]
    raise InputError(
        f"there is no capture {name!r:.200} in {paths.captures()}/ or among the bundled ones, and no such file",
        hint=f"Known captures: {', '.join(near)}." if near else "Make one with `flipscope capture LABEL=URL`.",
    )
