"""Every folder flipscope reads or writes. Nobody else asks where home is."""

from __future__ import annotations

import os
from pathlib import Path

from probe.errors import InputError

_SOURCE_ROOT = Path(__file__).resolve().parent.parent


def _data_root() -> Path:
    """The folder that holds captures/, prompts/ and themes/: the checkout, or what a wheel installed."""
    installed = _SOURCE_ROOT / "flipscope_data"
    return installed if installed.is_dir() else _SOURCE_ROOT


def bundled_captures() -> Path:
    """The sample captures that ship with flipscope."""
    return _data_root() / "captures" / "bundled"


def prompt_sets() -> Path:
    """The prompt sets that ship with flipscope."""
    return _data_root() / "prompts"


def themes() -> Path:
    """The colour themes that ship with flipscope."""
    return _data_root() / "themes"


def captures() -> Path:
    """Where captures are written and looked up by label: `FLIPSCOPE_CAPTURES`, else `./captures`."""
    return Path(os.environ.get("FLIPSCOPE_CAPTURES") or "captures")


def config() -> Path:
    """The user's configuration folder: `FLIPSCOPE_CONFIG`, else `$XDG_CONFIG_HOME/flipscope`."""
    override = os.environ.get("FLIPSCOPE_CONFIG")
    if override:
        return Path(override)
    try:
        return _xdg("XDG_CONFIG_HOME", ".config")
    except InputError:  # nobody's settings are none; nothing is ever written there
        return Path("~/.config/flipscope")


def cache() -> Path:
    """The user's cache folder, for the embedded model: `FLIPSCOPE_CACHE`, else `$XDG_CACHE_HOME/flipscope`."""
    override = os.environ.get("FLIPSCOPE_CACHE")
    return Path(override) if override else _xdg("XDG_CACHE_HOME", ".cache")


def _xdg(variable: str, default: str) -> Path:
    base = os.environ.get(variable)
    if base:
        return Path(base) / "flipscope"
    try:
        return Path.home() / default / "flipscope"
    except RuntimeError:  # no HOME, and a user that the system has no entry for, as in many containers
        raise InputError("this user has no home folder", hint=f"set HOME, {variable} or FLIPSCOPE_CACHE") from None
