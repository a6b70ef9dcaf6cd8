"""Keys of the streams screen; those that move the cursor are the flow's own. Ids are what a keymap rebinds."""

from __future__ import annotations

from textual.binding import Binding

_DIGIT_SHIFTED = ("exclamation_mark", "at", "number_sign", "dollar_sign", "percent_sign")
"""What a terminal sends for Shift and 1 to 5 on a US keyboard; others rebind `jump.flip-of-…`."""

JUMPS = [
    Binding(
        "n",
        "flip(1)",
        "Flip",
        id="jump.next-flip",
        tooltip="Go to the next flip of any runtime, into the next prompts too.",
    ),
    Binding("N", "flip(-1)", "Flip back", id="jump.previous-flip", tooltip="Go to the previous flip.", show=False),
    *(
        Binding(
            key,
            f"flip(1, {lane})",
            f"Flip of {lane + 1}",
            id=f"jump.flip-of-{lane + 1}",
            tooltip="Go to the next flip of one runtime: Shift and its number.",
            show=False,
        )
        for lane, key in enumerate(_DIGIT_SHIFTED)
    ),
    Binding("right_square_bracket", "prompt(1)", "Prompt", id="jump.next-prompt", tooltip="Open the next prompt."),
    Binding(
        "left_square_bracket",
        "prompt(-1)",
        "Prompt back",
        id="jump.previous-prompt",
        tooltip="Open the previous prompt.",
        show=False,
    ),
    Binding("g", "go", "Go to", id="jump.position", tooltip="Go to a position: 300, +40, -40, 50%, end."),
    Binding(
        "slash",
        "find",
        "Find",
        id="jump.find",
        tooltip="Find words in this prompt, or a token by #id; again: the next place.",
    ),
]

VIEWS = [
    Binding(
        "a,enter",
        "alternatives",
        "Alternatives",
        id="view.alternatives",
        tooltip="Show or hide every runtime's top alternatives at the cursor.",
    ),
    Binding("p", "prompts", "Prompts", id="view.prompts", tooltip="Show or hide the list of prompts."),
    *(
        Binding(
            str(lane + 1),
            f"lane({lane})",
            f"Runtime {lane + 1}",
            id=f"view.lane-{lane + 1}",
            tooltip="Show or hide a runtime by its number; flips of hidden ones are passed over.",
            show=False,
        )
        for lane in range(5)
    ),
    Binding("t", "app.next_theme", "Theme", id="view.theme", tooltip="Use the next colour theme."),
]

PROGRAM = [
    Binding(
        "tab",
        "app.focus_next",
        "Next panel",
        id="app.panel",
        tooltip="Give the keys to the next panel: prompts, streams, alternatives.",
        show=False,
    ),
    Binding(
        "i",
        "info",
        "Captures",
        id="app.info",
        tooltip="What the captures say about themselves, and what is wrong with them.",
        show=False,
    ),
    Binding("escape", "read", "Streams", id="app.read", tooltip="Give the keys back to the streams.", show=False),
    Binding("question_mark", "help", "Help", id="app.help", tooltip="Explain keys, marks and colours."),
    Binding(
        "ctrl+z",
        "app.suspend_process",
        "Suspend",
        id="app.suspend",
        show=False,
        tooltip="Go back to the shell; fg returns.",
    ),
    Binding("q", "app.quit", "Quit", id="app.quit", tooltip="Leave flipscope."),
]

STREAMS = [*JUMPS, *VIEWS, *PROGRAM]
