"""How an error looks on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from probe.errors import FlipscopeError


def show_failure(error: FlipscopeError) -> None:
    """Print what happened, where, and what to do, on stderr. Values are shown as they are, never as markup."""
    body = Text(printable(error.detail))
    if error.hint:
        body.append("\n→ ", style="bold")
        body.append(printable(error.hint))
    Console(stderr=True).print(
        Panel(body, title=Text(error.title), title_align="left", border_style="red", highlight=False)
    )


def printable(text: str) -> str:
    """Text of a server or a file with control characters escaped, so that it cannot drive the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
