"""Styles of a widget's components, looked up once per theme."""

from __future__ import annotations

from rich.style import Style
from textual.widget import Widget


class Inked(Widget):
    """A widget that paints lines with its components' styles.

    Textual forgets them at every refresh; making one again costs 80 us, and a panel asks for ten.
    """

    INK_PREFIX = ""
    """What the names of the component classes begin with."""

    _inks: dict[str, Style]

    def ink(self, name: str) -> Style:
        """Style of the component `<prefix>--<name>`, with its ground."""
        try:
            return self._inks[name]
        except AttributeError:
            self._inks = {}
        except KeyError:
            pass
        style = self._inks[name] = self.get_component_rich_style(f"{self.INK_PREFIX}--{name}")
        return style

    def notify_style_update(self) -> None:
        """Forget the styles of another theme."""
        super().notify_style_update()
        self._inks = {}
