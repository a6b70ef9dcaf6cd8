"""What the captures say about themselves, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text
from textual.binding import Binding, BindingType

from probe.records import Header
from tui.glyphs import safe_text
from tui.palette import LANES
from tui.screens.page import Page
from tui.session import Session


class InfoScreen(Page):
    """Facts of every capture, notes first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("i", "dismiss", "Close", id="info.close", tooltip="Go back to the streams."),
    ]

    DEFAULT_CSS = (
        "InfoScreen {\n"
        + "".join(
            f"    & > .info--lane-{lane} {{ color: $lane-{lane}; text-style: bold; background: $surface; }}\n"
            for lane in range(LANES)
        )
        + "}"
    )

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"info--lane-{lane}" for lane in range(LANES)}

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    def parts(self) -> Iterable[RenderableType]:
        """Notes, then one list per capture."""
        if self._session.notes:
            yield Text("Notes", self.ink("warning"))
            for note in self._session.notes:
                yield Padding(Text(f"! {note}", self.ink("text")), (0, 0, 0, 2))
            yield Text()
        for lane, capture in enumerate(self._session.comparison.captures):
            title = Text(self._session.labels[lane], self.get_component_rich_style(f"info--lane-{lane}"))
            if lane == 0:
                title.append("   reference", self.ink("text"))
            yield self.section(title, _facts(capture.header, str(capture.path)))


def _facts(header: Header, path: str) -> list[tuple[str, str]]:
    facts, protocol = header.facts, header.protocol
    model = facts.model if facts.root in ("", facts.model) else f"{facts.model}  {facts.root}"
    rows = {
        "turned": _pairs(header.dims),
        "model": model,
        "engine": f"{facts.engine} {facts.version}",
        "fingerprint": facts.fingerprint,
        "settings": _pairs(dict(sorted(facts.settings.items()))),
        "address": facts.url,
        "rows": f"top {protocol.top_k}, {protocol.logprobs_mode}, {protocol.concurrency} in flight",
        "prompts": f"{header.prompts.name}, {header.prompts.count} prompts, sha256 {header.prompts.sha256[:12]}",
        "tokenizer": f"{header.tokenizer.source} {header.tokenizer.fingerprint[:12]}",
        "text by": header.reference or "itself",
        "captured": f"{header.created}  {header.written_by}",
        "file": path,
    }
    return [(name, safe_text(value.strip())[0]) for name, value in rows.items() if value.strip()]


def _pairs(values: dict[str, str]) -> str:
    return "  ".join(f"{name}={value}" for name, value in values.items())
