"""What every key does and what every mark means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from rich.console import RenderableType
from rich.text import Text
from textual.binding import Binding, BindingType

from tui import triage
from tui.palette import FLIP_STEPS, KL_THRESHOLDS
from tui.screens.page import Page
from tui.widgets.flow_painter import MARKS

_GROUPS = {"jump": "Jump", "move": "Move", "view": "View", "app": "Program"}
"""Headings by the first part of a binding's id, in the order shown."""

_MARKS = (
    (MARKS.dot, "this runtime's first choice is the reference's"),
    (MARKS.loud, "the same, although its probabilities moved by 0.1 nats or more"),
    (MARKS.loose, "the same, but too little is listed to say how far they moved"),
    (MARKS.tie, "tie: two choices of exactly the same probability, greedy decoding may part"),
    ("␣ ⏎ ⇥", "a space, a line end, a tab; <E6> is a byte, <202E> a character that must not be drawn"),
    ("┈", "fills up to the next token: in the text the two touch"),
    ("2 agree", "so many runtimes have no flip in these lines and share one lane"),
    ("╭ ╮ ├ ┤", "a named range of the text, in the streams and in the strip on top"),
    ("▶", "alternatives: the token that stands in the text"),
    ("▸", "alternatives: a runtime's first choice"),
    ("–", "not listed: less probable than the last alternative this runtime listed"),
    ("↑2 ↓2 new", "places above or below the token's place in the reference; the reference does not list it"),
)


class HelpScreen(Page):
    """Keys as they are bound now, and a legend.

    Args:
        bindings: The keys to explain; those without a tooltip or of an unknown group are left out.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "dismiss", "Close", id="help.close", tooltip="Go back to the streams."),
    ]

    DEFAULT_CSS = (
        "HelpScreen {\n"
        + "".join(
            f"    & > .help--flip-{step} {{ color: $flip-text-{step}; background: $flip-{step}; }}\n"
            for step in range(FLIP_STEPS)
        )
        + "}"
    )

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"help--flip-{step}" for step in range(FLIP_STEPS)}

    def __init__(self, bindings: Sequence[Binding]) -> None:
        super().__init__()
        self._explained = bindings

    def parts(self) -> Iterable[RenderableType]:
        """Keys, marks, flips, colours."""
        for group, title in _GROUPS.items():
            keys: dict[str, list[str]] = {}
            for binding in self._explained:
                if binding.tooltip and (binding.id or "").partition(".")[0] == group:
                    keys.setdefault(binding.tooltip, []).append(self.app.get_key_display(binding))
            if keys:
                yield self.section(title, [(" ".join(names), tooltip) for tooltip, names in keys.items()])
        yield self.section("Marks", _MARKS)
        kinds = zip(triage.MARKS[:0:-1], triage.NAMES[:0:-1], triage.MEANINGS[:0:-1], strict=True)
        yield self.section(
            "Flips: another first choice than the reference's",
            [(f"{mark} {name}", meaning) for mark, name, meaning in kinds],
        )
        yield Text(
            "The list counts flips in the output alone; the keys visit those in the prompt's own text as well.\n",
            self.ink("text"),
        )
        yield Text("Colour: KL(reference ‖ runtime) in nats, over what both listed", self.ink("title"))
        yield self._ramp()
        yield Text("\nThe reference is what the others are held against, not the right answer.", self.ink("text"))

    def _ramp(self) -> Text:
        ramp = Text("  ", self.ink("text"))
        for step in range(FLIP_STEPS):
            bound = f"≥{KL_THRESHOLDS[step - 1]:g}" if step else f"<{KL_THRESHOLDS[0]:g}"
            ramp.append(f" {bound} ", self.get_component_rich_style(f"help--flip-{step}"))
        return ramp
