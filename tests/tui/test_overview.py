"""The overview finds single flips in long texts, stays inside its cells and says where a click goes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from lanes_samples import LABELS, make_lanes
from rich.cells import cell_len
from textual.app import App, ComposeResult

from probe.records import Range
from tui.lanes import Lanes
from tui.messages import PositionChosen
from tui.palette import DEFAULT_DARK, themes, variable_defaults
from tui.widgets.overview import Overview


class OverviewApp(App[None]):
    def __init__(self, lanes: Lanes) -> None:
        super().__init__()
        for theme in themes():
            self.register_theme(theme)
        self.theme = DEFAULT_DARK
        self.lanes = lanes
        self.chosen: list[int] = []

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return variable_defaults()

    def compose(self) -> ComposeResult:
        self.overview = Overview()
        yield self.overview

    def on_mount(self) -> None:
        self.overview.show(self.lanes)

    def on_position_chosen(self, event: PositionChosen) -> None:
        self.chosen.append(event.position)


def lines_of(overview: Overview) -> list[str]:
    return [overview.render_line(y).text for y in range(overview.size.height)]


def lonely(n: int, position: int) -> Lanes:
    """One flip of the last lane."""
    lanes = make_lanes(n, flips=[0.0] * 5)
    lanes.flip[4, position] = True
    return lanes


async def test_one_flip_in_100_000_shows() -> None:
    async with OverviewApp(lonely(100_000, 70_000)).run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        app = pilot.app
        assert isinstance(app, OverviewApp)
        lines = lines_of(app.overview)
        assert [line[:9].strip() for line in lines] == [*LABELS[1:], "100,000"]
        assert set(lines[0][9:].strip()) == {"·"}
        assert lines[3].count("▁") == 1
        column = lines[3].index("▁")
        app.overview.cursor = 70_000
        assert lines_of(app.overview)[4].index("▲") == column
        await pilot.click(Overview, offset=(column, 1))
        await pilot.click(Overview, offset=(0, 1))
        await pilot.click(Overview, offset=(119, 1))
        assert app.chosen[:2] == [70_000, 0]
        assert 98_000 < app.chosen[2] < 100_000


@pytest.mark.parametrize("n", [1, 2, 7, 110, 111, 5_000])
async def test_columns_and_positions_are_inverse(n: int) -> None:
    async with OverviewApp(make_lanes(n, flips=[0.3] * 5)).run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        app = pilot.app
        assert isinstance(app, OverviewApp)
        starts = app.overview._starts()
        assert starts[0] == 0
        assert starts[-1] <= n - 1
        assert (np.diff(starts) >= 0).all()
        for column, start in enumerate(starts.tolist()):
            # The first position of its column, unless the text is shorter than the strip.
            assert app.overview._column(start) == column or n < len(starts)
        assert all(cell_len(line) == 120 for line in lines_of(app.overview))


async def test_low_terminals_get_two_lines() -> None:
    async with OverviewApp(lonely(500, 100)).run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        app = pilot.app
        assert isinstance(app, OverviewApp)
        lines = lines_of(app.overview)
        assert [line[:9].strip() for line in lines] == ["flips", "500"]
        assert any(bar in lines[0] for bar in "▁▂▃▄▅▆▇█")


async def test_hidden_missing_and_hostile_lanes() -> None:
    lanes = make_lanes(300, ranges=(Range(5, 50, "\x1b"), Range(290, 10_000, "long")))
    lanes = replace(lanes, labels=("f32", "\x1b[31m", "漢字" * 9, "c", "d"), missing=("", "", "", "died\x07", ""))
    async with OverviewApp(lanes).run_test(size=(100, 40)) as pilot:
        await pilot.pause()
        app = pilot.app
        assert isinstance(app, OverviewApp)
        lines = lines_of(app.overview)
        assert "died␇" in lines[2]
        assert all(cell_len(line) == 100 and line.isprintable() for line in lines)
        app.overview.show_lanes([True, False, True, False, True])
        await pilot.pause()
        assert app.overview.size.height == 3
        for width in (20, 10, 3, 1):
            await pilot.resize_terminal(width, 40)
            await pilot.pause()
            assert all(cell_len(line) == width for line in lines_of(app.overview))


async def test_nothing_to_show() -> None:
    async with OverviewApp(make_lanes(0)).run_test(size=(80, 40)) as pilot:
        await pilot.pause()
        app = pilot.app
        assert isinstance(app, OverviewApp)
        assert all(not line.strip() for line in lines_of(app.overview))
        await pilot.click(Overview, offset=(20, 0))
        assert app.chosen == []
