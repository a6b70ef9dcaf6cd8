"""Colour themes as data, and the ramp that says how far a runtime moved."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from textual.color import Color, ColorParseError
from textual.theme import Theme

from probe import paths
from probe.errors import InputError

FLIP_STEPS = 8
"""Colours of the KL ramp."""

LANES = 5
"""Lanes that a comparison can have."""

KL_THRESHOLDS: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Nats at which the ramp takes its next colour: half decades, so a legend is easily read."""

NO_BUCKET = 255
"""Stands for a KL that cannot be computed."""

DEFAULT_DARK = "flipscope-dark"
DEFAULT_LIGHT = "flipscope-light"

_COLOURS = (
    "secondary",
    "accent",
    "warning",
    "error",
    "success",
    "foreground",
    "background",
    "surface",
    "panel",
)
_FLOW = ("prompt", "special", "quiet", "cursor", "cursor-text", "cursor-ground", "tie")


def kl_bucket(kl: ArrayLike) -> NDArray[np.uint8]:
    """Step of the ramp for every KL.

    Args:
        kl: Nats, any shape.

    Returns:
        uint8 of the same shape: 0 to `FLIP_STEPS - 1`, `NO_BUCKET` for NaN.
    """
    values = np.asarray(kl)
    steps = np.searchsorted(np.asarray(KL_THRESHOLDS, dtype=values.dtype), values, side="right").astype(np.uint8)
    steps[np.isnan(values)] = NO_BUCKET
    return steps


def themes(folders: Sequence[Path] | None = None) -> list[Theme]:
    """Every theme that ships with flipscope and every one in the user's `themes` folder, which may replace ours.

    Args:
        folders: Where to look instead; later ones win.

    Raises:
        InputError: A theme file cannot be used; the detail names it and the field.
    """
    if folders is None:
        folders = (paths.themes(), paths.config() / "themes")
    found: dict[str, Theme] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.toml")) if folder.is_dir() else ():
            theme = load_theme(path)
            found[theme.name] = theme
    return list(found.values())


def load_theme(path: Path) -> Theme:
    """Read one theme.

    Raises:
        InputError: It cannot be used.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path}: {error}", hint="Fix the theme file or move it away.") from error
    name = data.get("name")
    if not isinstance(name, str) or not name or not name.isprintable():
        raise _wrong(path, "name", "a name")
    if not isinstance(data.get("dark"), bool):
        raise _wrong(path, "dark", "true or false")
    flow = data.get("flow")
    if not isinstance(flow, dict):
        raise _wrong(path, "flow", "a table with " + ", ".join(_FLOW))
    variables: dict[str, str] = {}
    for step, colour in enumerate(_colours(path, data, "flip", FLIP_STEPS)):
        variables[f"flip-{step}"] = colour
        variables[f"flip-text-{step}"] = readable_on(colour)
    for lane, colour in enumerate(_colours(path, data, "lane", LANES)):
        variables[f"lane-{lane}"] = colour
    for key in _FLOW:
        variables[f"flow-{key}"] = _colour(path, flow, key)
    theme = Theme(name=name, primary=_colour(path, data, "primary"), dark=data["dark"], variables=variables)
    for key in _COLOURS:
        setattr(theme, key, _colour(path, data, key))
    return theme


def variable_defaults(dark: bool = True) -> dict[str, str]:
    """Values of our own variables under a theme that does not set them, such as those of Textual."""
    return dict(_bundled(DEFAULT_DARK if dark else DEFAULT_LIGHT).variables)


@cache
def _bundled(name: str) -> Theme:
    return load_theme(paths.themes() / f"{name.removeprefix('flipscope-')}.toml")


def readable_on(ground: str) -> str:
    """Black or white, whichever stands out more; one of them always reaches 4.58 : 1."""
    return "black" if contrast(ground, "black") >= contrast(ground, "white") else "white"


def contrast(one: str, other: str) -> float:
    """Contrast of two colours by WCAG, 1 to 21."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    channels = np.asarray(Color.parse(colour).rgb, dtype=np.float64) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ np.array([0.2126, 0.7152, 0.0722]))


def _colours(path: Path, data: Mapping[str, Any], key: str, count: int) -> list[str]:
    values = data.get(key)
    if not isinstance(values, list) or len(values) != count:
        raise _wrong(path, key, f"{count} colours")
    return [_colour(path, {key: value}, key) for value in values]


def _colour(path: Path, data: Mapping[str, Any], key: str) -> str:
    value = data.get(key)
    if not isinstance(value, str):
        raise _wrong(path, key, "a colour")
    try:
        Color.parse(value)
    except ColorParseError as error:
        raise _wrong(path, key, f"a colour, but it is {value!r}") from error
    return value


def _wrong(path: Path, key: str, wanted: str) -> InputError:
    return InputError(f"{path}: {key} must be {wanted}", hint="Compare it with one of the themes in themes/.")
