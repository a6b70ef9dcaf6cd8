"""Which flipscope this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def flipscope_version() -> str:
    """The installed version, or `checkout` when run from a folder that was never installed."""
    try:
        return version("flipscope")
    except PackageNotFoundError:
        return "checkout"
