"""Every style the flow draws with, made once per theme."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rich.style import Style

from tui.palette import FLIP_STEPS, LANES

DOT_STRENGTH = {3: 55, 4: 65, 5: 75, 6: 90, 7: 100}
"""How much of the ramp's colour agreement shows, in per cent, by step; below the first one (0.01 nats) it is silent."""

COMPONENTS: frozenset[str] = frozenset(
    {
        "flow--text",
        "flow--contested",
        "flow--prompt",
        "flow--special",
        "flow--quiet",
        "flow--ruler",
        "flow--section",
        "flow--range",
        "flow--missing",
        "flow--tie",
        "flow--column",
        "flow--cursor",
        "flow--here",
        "flow--strong",
        *(f"flow--lane-{lane}" for lane in range(LANES)),
        *(f"flow--flip-{step}" for step in range(FLIP_STEPS)),
        *(f"flow--dot-{step}" for step in DOT_STRENGTH),
    }
)

CSS = """
FlowView {
    scrollbar-size: 0 0;
    background: $background;
    & .flow--text { color: $foreground; }
    & .flow--contested { color: $foreground; text-style: bold; }
    & .flow--prompt { color: $flow-prompt; }
    & .flow--special { color: $flow-special; }
    & .flow--quiet { color: $flow-quiet; }
    & .flow--ruler { color: $flow-prompt 60%; }
    & .flow--section { color: $flow-special; text-style: bold; }
    & .flow--range { color: $flow-special; }
    & .flow--missing { color: $flow-prompt; text-style: italic; }
    & .flow--tie { color: $flow-tie; }
    & .flow--column { background: $flow-cursor; }
    & .flow--cursor { color: $flow-cursor-text; background: $flow-cursor-ground; text-style: bold; }
    & .flow--strong { color: $background; background: $foreground; text-style: bold; }
    & .flow--here { color: $flow-cursor-ground; text-style: bold; }
""" + "".join(
    [f"    & .flow--lane-{lane} {{ color: $lane-{lane}; }}\n" for lane in range(LANES)]
    + [
        f"    & .flow--flip-{step} {{ color: $flip-text-{step}; background: $flip-{step}; text-style: bold; }}\n"
        for step in range(FLIP_STEPS)
    ]
    + [f"    & .flow--dot-{step} {{ color: $flip-{step} {share}%; }}\n" for step, share in DOT_STRENGTH.items()]
    + ["}\n"]
)


@dataclass(frozen=True, slots=True)
class Ink:
    """Rich styles, each with its ground.

    Attributes:
        base: Nothing drawn.
        text: The continuation.
        contested: A token of the text that some lane would not have said.
        prompt: Text before the continuation.
        special: Control tokens and whitespace marks.
        quiet: Filler between joined tokens.
        ruler: Position numbers.
        section: `prompt` and `output`.
        range: Brackets of named spans.
        missing: Why a lane is not there.
        tie: Tie marks.
        column: Ground of the cursor's column.
        cursor: The token under the cursor.
        here: The cursor's number and the lane it stands in.
        strong: Mark of a flip that overturned a firm choice.
        lanes: Labels.
        flips: Per step of the ramp.
        dots: Agreement, per step of the ramp.
    """

    base: Style
    text: Style
    contested: Style
    prompt: Style
    special: Style
    quiet: Style
    ruler: Style
    section: Style
    range: Style
    missing: Style
    tie: Style
    column: Style
    cursor: Style
    here: Style
    strong: Style
    lanes: tuple[Style, ...]
    flips: tuple[Style, ...]
    dots: tuple[Style, ...]

    @classmethod
    def mix(cls, base: Style, component: Callable[[str], Style]) -> Ink:
        """Make every style.

        Args:
            base: The widget's own style.
            component: Rich style of a component class, with its ground.
        """
        quiet = component("flow--quiet")
        column = Style(bgcolor=component("flow--column").bgcolor)
        return cls(
            base=base,
            column=base + column,
            text=component("flow--text"),
            contested=component("flow--contested"),
            prompt=component("flow--prompt"),
            special=component("flow--special"),
            quiet=quiet,
            ruler=component("flow--ruler"),
            section=component("flow--section"),
            range=component("flow--range"),
            missing=component("flow--missing"),
            tie=component("flow--tie"),
            cursor=component("flow--cursor"),
            here=component("flow--here"),
            strong=component("flow--strong"),
            lanes=tuple(component(f"flow--lane-{lane}") for lane in range(LANES)),
            flips=tuple(component(f"flow--flip-{step}") for step in range(FLIP_STEPS)),
            # One object for all silent steps, so that a row of them is one segment: 47 KB a page become 30.
            dots=tuple(component(f"flow--dot-{step}") if step in DOT_STRENGTH else quiet for step in range(FLIP_STEPS)),
        )

    def on_column(self, style: Style) -> Style:
        """A style as it is drawn in the cursor's column; flips keep their ground."""
        return style + Style(bgcolor=self.column.bgcolor)
