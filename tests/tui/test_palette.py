"""Ramps are even, text on them is readable, broken theme files say where."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from textual.color import Color
from textual.theme import Theme

from probe import paths
from probe.errors import InputError
from tui import palette
from tui.palette import FLIP_STEPS, KL_THRESHOLDS, NO_BUCKET, contrast, kl_bucket, load_theme, themes

THEMES = themes([paths.themes()])


def oklab(colour: str) -> NDArray[np.float64]:
    """Björn Ottosson's OKLab of a colour."""
    channels = np.asarray(Color.parse(colour).rgb) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    cones = np.cbrt(
        np.array(
            [
                [0.4122214708, 0.5363325363, 0.0514459929],
                [0.2119034982, 0.6806995451, 0.1073969566],
                [0.0883024619, 0.2817188376, 0.6299787005],
            ]
        )
        @ linear
    )
    lab: NDArray[np.float64] = (
        np.array(
            [
                [0.2104542553, 0.7936177850, -0.0040720468],
                [1.9779984951, -2.4285922050, 0.4505937099],
                [0.0259040371, 0.7827717662, -0.8086757660],
            ]
        )
        @ cones
    )
    return lab


def ramp(theme: Theme) -> list[str]:
    return [theme.variables[f"flip-{step}"] for step in range(FLIP_STEPS)]


def test_there_are_enough_themes_and_the_usual_ones() -> None:
    names = {theme.name for theme in THEMES}
    assert len(names) >= 6
    assert {palette.DEFAULT_DARK, palette.DEFAULT_LIGHT, "flipscope-high-contrast"} <= names


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_the_ramp_takes_even_steps_and_keeps_its_order_in_grey(theme: Theme) -> None:
    points = np.array([oklab(colour) for colour in ramp(theme)])
    steps = np.linalg.norm(np.diff(points, axis=0), axis=1)
    assert steps.max() / steps.min() < 1.1
    assert steps.min() > 0.08
    towards = 1 if theme.dark else -1
    assert (np.diff(points[:, 0]) * towards > 0).all()


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_text_is_readable(theme: Theme) -> None:
    variables = theme.variables
    assert theme.background is not None
    assert theme.foreground is not None
    for step, ground in enumerate(ramp(theme)):
        assert contrast(ground, variables[f"flip-text-{step}"]) >= 4.5
    assert contrast(variables["flow-cursor-ground"], variables["flow-cursor-text"]) >= 4.5
    for text in (theme.foreground, variables["flow-prompt"], *(variables[f"lane-{lane}"] for lane in range(5))):
        assert contrast(theme.background, text) >= 4.5
    for text in (variables["flow-special"], variables["flow-tie"]):
        assert contrast(theme.background, text) >= 3
    # The strongest step stands out from the page, the weakest hardly does.
    assert contrast(theme.background, ramp(theme)[-1]) > 3 * contrast(theme.background, ramp(theme)[0])


def test_buckets() -> None:
    values = np.array([0, 0.0009, 0.001, 0.05, 1.0, 50, np.inf, np.nan, -1e-9], dtype=np.float32)
    assert kl_bucket(values).tolist() == [0, 0, 1, 4, 7, 7, 7, NO_BUCKET, 0]
    assert len(KL_THRESHOLDS) == FLIP_STEPS - 1
    ratios = np.diff(np.log(KL_THRESHOLDS))
    assert ratios.max() / ratios.min() < 1.2
    assert kl_bucket(np.zeros((3, 4))).shape == (3, 4)


@pytest.mark.parametrize("dark", [True, False])
def test_defaults_name_every_variable(dark: bool) -> None:
    defaults = palette.variable_defaults(dark)
    assert {key for theme in THEMES for key in theme.variables} == set(defaults)


def test_a_users_theme_replaces_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLIPSCOPE_CONFIG", str(tmp_path))
    (tmp_path / "themes").mkdir()
    text = (paths.themes() / "dark.toml").read_text().replace("#d9dfe8", "#eeeeee")
    (tmp_path / "themes" / "mine.toml").write_text(text)
    found = {theme.name: theme for theme in themes()}
    assert found[palette.DEFAULT_DARK].foreground == "#eeeeee"
    assert len(found) == len(THEMES)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "flipscope-dark"', "", "name must be a name"),
        ("dark = true", 'dark = "yes"', "dark must be true or false"),
        ('"#374053",', "", "flip must be 8 colours"),
        ('"#374053"', '"red-ish"', "flip must be a colour, but it is 'red-ish'"),
        ("[flow]", "[flaw]", "flow must be a table"),
        ('tie = "', 'tied = "', "tie must be a colour"),
        ("[flow]", "[flow", "dark.toml"),
    ],
)
def test_a_broken_theme_names_its_field(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = (paths.themes() / "dark.toml").read_text()
    assert old in text
    path = tmp_path / "dark.toml"
    path.write_text(text.replace(old, new))
    with pytest.raises(InputError) as caught:
        load_theme(path)
    assert said in caught.value.detail
    assert str(path) in caught.value.detail
