"""How the screen names the triage of a flip."""

from __future__ import annotations

NAMES = ("", "noise", "near-tie", "uncertain", "strong")
"""By triage number."""

MARKS = (" ", "~", "▵", "△", "▲")
"""By triage number: readable without colour."""

STRONG = 4
"""The gravest."""

MEANINGS = (
    "",
    "within this server's own floor here",
    "the reference's two best are less than 0.1 apart",
    "the reference gave its choice less than 0.9",
    "a choice the reference gave 0.9 or more was overturned",
)
"""By triage number, one clause each."""
