"""What every key does and what every mark means."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from tui import triage
from tui.palette import FLIP_STEPS, KL_THRESHOLDS
from tui.widgets.flow_painter import MARKS

_GROUPS = {"move": "Move", "jump": "Jump", "view": "View", "app": "Program"}
_KEY_CELLS = 12


class HelpScreen(ModalScreen[None]):
    """Keys of the screen below, as they are bound now, and a legend.

    Args:
        bindings: The keys to explain; those without a tooltip or outside the known groups are left out.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q,enter", "dismiss", "Close", id="help.close", tooltip="Go back."),
    ]

    DEFAULT_CSS = """
    HelpScreen {
        align: center middle;
        #help {
            width: 84;
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

    def __init__(self, bindings: Sequence[Binding]) -> None:
        super().__init__()
        self._keys_bound = bindings

    def compose(self) -> ComposeResult:
        """Keys, then marks."""
        with VerticalScroll(id="help"):
            yield Static(self._keys(), id="keys")
            yield Static(legend(), id="legend")

    def on_mount(self) -> None:
        """Arrow keys scroll."""
        self.query_one("#help").focus()

    def _keys(self) -> Content:
        parts: list[Content | tuple[str, str]] = []
        order = list(_GROUPS)
        named = [binding for binding in self._keys_bound if binding.tooltip and _group(binding) in order]
        named.sort(key=lambda binding: order.index(_group(binding)))
        for group, bindings in groupby(named, key=_group):
            parts.append((f"{_GROUPS[group]}\n", "bold $primary"))
            for tooltip, same in groupby(bindings, key=lambda binding: binding.tooltip):
                keys = " ".join(self.app.get_key_display(binding) for binding in same)
                parts.append((f"  {keys}".ljust(_KEY_CELLS + 2) + " ", "bold"))
                parts.append((f"{tooltip}\n", "$text-muted"))
            parts.append(("\n", ""))
        return Content.assemble(*parts)


def _group(binding: Binding) -> str:
    return (binding.id or "").partition(".")[0]


def legend() -> Content:
    """Every mark and colour of the streams in words."""
    parts: list[Content | tuple[str, str]] = [("Streams\n", "bold $primary")]
    for mark, meaning in (
        (MARKS.dot, "this runtime's first choice is the reference's"),
        (MARKS.loud, "the same, but its probabilities moved by 0.1 nats or more"),
        (MARKS.loose, "the same, but too little is listed to say how far they moved"),
        ("␣ ⏎ ⇥", "a space, a line end, a tab; <E6> is a byte, <202E> a character that must not be drawn"),
        (MARKS.tie, "tie: two choices of exactly the same probability, greedy decoding may part"),
        ("–", "not listed: less probable than the last alternative this runtime listed"),
        ("▶", "the token that stands in the text"),
        ("▸", "a runtime's first choice"),
        ("↑2 ↓2", "places a token stands above or below its place in the reference; new: the reference lists it not"),
    ):
        parts += [(f"  {mark}".ljust(_KEY_CELLS + 2) + " ", "bold"), (f"{meaning}\n", "$text-muted")]
    parts.append(("\nFlips: another first choice, by how surely the reference made its own\n", "bold $primary"))
    for mark, name, meaning in zip(triage.MARKS[:0:-1], triage.NAMES[:0:-1], triage.MEANINGS[:0:-1], strict=True):
        parts += [(f"  {mark} {name}".ljust(_KEY_CELLS + 2) + " ", "bold"), (f"{meaning}\n", "$text-muted")]
    parts.append(("\nColour: KL(reference ‖ runtime) in nats, from the listed alternatives\n  ", "bold $primary"))
    for step in range(FLIP_STEPS):
        bound = f"≥{KL_THRESHOLDS[step - 1]:g}" if step else f"<{KL_THRESHOLDS[0]:g}"
        parts.append((f" {bound} ", f"$flip-text-{step} on $flip-{step}"))
    parts.append(("\n\nThe reference is what the others are held against, not the right answer.\n", "$text-muted"))
    return Content.assemble(*parts)
