"""What the captures say about themselves, and what is wrong with them."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from probe.records import Header
from tui.glyphs import safe_text
from tui.session import Session

_NAME_CELLS = 14


class InfoScreen(ModalScreen[None]):
    """Facts of every capture, warnings first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,i,q,enter", "dismiss", "Close", id="info.close", tooltip="Go back."),
    ]

    DEFAULT_CSS = """
    InfoScreen {
        align: center middle;
        #info {
            width: 100;
            max-width: 100%;
            height: auto;
            max-height: 94%;
            padding: 1 3;
            background: $surface;
            border-left: thick $primary;
        }
        Static { width: 100%; }
    }
    """

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    def compose(self) -> ComposeResult:
        """Notes, then one block per capture."""
        with VerticalScroll(id="info"):
            if self._session.notes:
                parts: list[tuple[str, str]] = [("Notes\n", "bold $text-warning")]
                parts += [(f"  {note}\n", "$foreground") for note in self._session.notes]
                yield Static(Content.assemble(*parts))
            for lane, capture in enumerate(self._session.comparison.captures):
                yield Static(_facts(capture.header, self._session.labels[lane], lane, str(capture.path)))

    def on_mount(self) -> None:
        """Arrow keys scroll."""
        self.query_one("#info").focus()


def _facts(header: Header, label: str, lane: int, path: str) -> Content:
    facts, protocol = header.facts, header.protocol
    settings = " ".join(f"{name}={value}" for name, value in sorted(facts.settings.items()))
    lines = {
        "turned": " ".join(f"{name}={value}" for name, value in header.dims.items()),
        "model": facts.model if facts.root in ("", facts.model) else f"{facts.model} ({facts.root})",
        "engine": f"{facts.engine} {facts.version}".strip(),
        "fingerprint": facts.fingerprint,
        "address": facts.url,
        "settings": settings,
        "rows": f"top {protocol.top_k}, {protocol.logprobs_mode}, {protocol.concurrency} in flight",
        "prompts": f"{header.prompts.name}, {header.prompts.count} prompts, {header.prompts.sha256[:12]}",
        "tokenizer": f"{header.tokenizer.source} {header.tokenizer.fingerprint[:12]}".strip(),
        "text by": header.reference or "itself",
        "captured": f"{header.created}, {header.written_by}".rstrip(", "),
        "file": path,
    }
    parts: list[tuple[str, str]] = [
        (f"\n{label}", f"bold $lane-{min(lane, 4)}"),
        ("   reference\n" if lane == 0 else "\n", "$text-muted"),
    ]
    for name, value in lines.items():
        if value:
            parts += [(f"  {name}".ljust(_NAME_CELLS), "$text-muted"), (f"{safe_text(value)[0]}\n", "$foreground")]
    return Content.assemble(*parts)
