"""Numbers as the screen writes them: short, of one width, small told apart from none."""

from __future__ import annotations

import math

NOTHING = "·"
"""Stands where there is no number."""

_BARS = " ▏▎▍▌▋▊▉█"
_COLUMNS = " ▁▂▃▄▅▆▇█"


def probability(value: float) -> str:
    """A probability in at most 4 cells: `1.00`, `.512`, `.004`, `2e-4`, `0`."""
    if math.isnan(value):
        return NOTHING
    if value >= 0.9995:
        return "1.00"
    if value >= 0.0005:
        return f"{value:.3f}"[1:]
    return _tiny(value)


def nats(value: float) -> str:
    """A divergence in at most 5 cells: `12.3`, `0.831`, `0.002`, `3e-4`, `0`."""
    if math.isnan(value):
        return NOTHING
    if value >= 10:
        return f"{value:.1f}"
    if value >= 0.0005:
        return f"{value:.3f}"
    return _tiny(value)


def change(value: float) -> str:
    """A signed difference of probabilities in at most 5 cells: `+.120`, `−.004`, `+2e-4`, `0`."""
    if math.isnan(value):
        return NOTHING
    size = probability(abs(value))
    if size == "0":
        return "0"
    return ("+" if value > 0 else "−") + size


def shift(reference: int, candidate: int) -> str:
    """How a token moved from the reference's ranking to a candidate's: `↑2`, `↓11`, `=`; ranks count from 1."""
    moved = reference - candidate
    if moved == 0:
        return "="
    return f"{'↑' if moved > 0 else '↓'}{min(abs(moved), 99)}"


def bar(value: float, width: int) -> str:
    """A bar of `width` cells for a number between 0 and 1, in eighths of a cell."""
    if math.isnan(value) or width <= 0:
        return " " * max(width, 0)
    eighths = round(min(max(value, 0.0), 1.0) * width * 8)
    full, part = divmod(eighths, 8)
    return ("█" * full + (_BARS[part] if part else "")).ljust(width)


def column(value: float) -> str:
    """A bar of one cell that grows upwards; blank below one sixteenth."""
    return " " if math.isnan(value) else _COLUMNS[round(min(max(value, 0.0), 1.0) * 8)]


def _tiny(value: float) -> str:
    """Below the three decimals: the power of ten, one digit; `0` for what is no probability at all."""
    if value <= 0 or value < 1e-99:
        return "0"
    digits, power = f"{value:.0e}".split("e-")
    return f"{digits}e-{int(power)}" if int(power) < 10 else f"e-{int(power)}"
