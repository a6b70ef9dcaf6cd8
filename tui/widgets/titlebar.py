"""The first line of the screen: what is being compared with what."""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len
from textual.strip import Strip
from textual.widget import Widget

from tui.painting import Line
from tui.session import Session


class TitleBar(Widget):
    """Name, prompt, reference and candidates with the digit that shows or hides each, place in the prompt set."""

    DEFAULT_CSS = """
    TitleBar {
        height: 1;
        background: $panel;
        & > .title--name { color: $primary; text-style: bold; }
        & > .title--prompt { color: $foreground; text-style: bold; }
        & > .title--quiet { color: $text-muted; }
        & > .title--hidden { color: $text-disabled; text-style: strike; }
        & > .title--lane-0 { color: $lane-0; text-style: bold; }
        & > .title--lane-1 { color: $lane-1; text-style: bold; }
        & > .title--lane-2 { color: $lane-2; text-style: bold; }
        & > .title--lane-3 { color: $lane-3; text-style: bold; }
        & > .title--lane-4 { color: $lane-4; text-style: bold; }
    }
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "title--name",
        "title--prompt",
        "title--quiet",
        "title--hidden",
        *(f"title--lane-{lane}" for lane in range(5)),
    }

    def __init__(self, session: Session, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._session = session

    def render_line(self, y: int) -> Strip:
        """The line; the prompt's place goes first when there is no room for all of it."""
        session = self._session
        quiet = self.get_component_rich_style("title--quiet")
        place = f"prompt {session.prompt_ids.index(session.prompt_id) + 1} of {len(session.prompt_ids)} "
        tally = session.tally(session.prompt_id)
        flips = "" if tally.flips is None else f"flips {tally.total} in output, {tally.everywhere} in all   "
        line = Line(self.size.width)
        line.add(" flipscope  ", self.get_component_rich_style("title--name"))
        line.add(f"{session.title}   ", self.get_component_rich_style("title--prompt"))
        for lane, label in enumerate(session.labels):
            if lane:
                line.add(" ▸ " if lane == 1 else " · ", quiet)
            shown = session.shown[lane]
            line.add(f"{lane + 1} ", quiet)
            line.add(label, self.get_component_rich_style(f"title--lane-{lane}" if shown else "title--hidden"))
            if not shown:
                line.add(" off", quiet)
        if line.room >= cell_len(flips + place) + 2:
            place = flips + place
        if line.room >= cell_len(place) + 2:
            line.fill(quiet, leaving=cell_len(place)).add(place, quiet)
        return line.strip(quiet)
