"""The terminal app: themes, keys, errors. Everything about tokens is elsewhere."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ClassVar

from textual import work
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen

from probe.comparison import Comparison
from probe.errors import FlipscopeError, InputError
from tui import palette
from tui.screens.loading import LoadingScreen
from tui.screens.streams import StreamsScreen
from tui.session import Session


class FlipscopeApp(App[FlipscopeError | None]):
    """Shows a comparison. `run` returns the error that ended it, if one did; `return_code` is its exit code.

    Args:
        comparison: What to show, or what opens it; called on a thread, so that the first frame does not wait.
        theme: Name of a theme; flipscope's dark one when None.
        prompt: Id of the prompt to start with.
        position: Position to start at.

    Raises:
        InputError: There is no such theme, or a theme file cannot be used.
    """

    TITLE = "flipscope"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "ctrl+p",
            "command_palette",
            "Palette",
            id="app.palette",
            tooltip="Find any action by name.",
            show=False,
            priority=True,
        ),
    ]

    def __init__(
        self,
        comparison: Comparison | Callable[[], Comparison],
        *,
        theme: str | None = None,
        prompt: str | None = None,
        position: int | None = None,
    ) -> None:
        super().__init__()
        self._comparison = comparison
        self._prompt = prompt
        self._position = position
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="captures")
        self._themes = palette.themes()
        for known in self._themes:
            self.register_theme(known)
        if theme is not None and theme not in self.available_themes:
            names = ", ".join(sorted(self.available_themes))
            raise InputError(f"no theme is called {theme!r}", hint=f"There are {names}.")
        self.theme = theme or palette.DEFAULT_DARK

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Our variables under themes that do not know them."""
        return dict(palette.variable_defaults())

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette: every key of the screen by name, then Textual's own."""
        for active in screen.active_bindings.values():
            binding = active.binding
            if binding.id and binding.tooltip and active.enabled:
                group, _, name = binding.id.partition(".")
                title = f"{group}: {name.replace('-', ' ')}"
                yield SystemCommand(title, binding.tooltip, partial(screen.run_action, binding.action))
        yield from super().get_system_commands(screen)

    def on_mount(self) -> None:
        """Paint at once, open the captures meanwhile."""
        self.push_screen(LoadingScreen())
        self._load()

    def on_unmount(self) -> None:
        """Let the reading thread go."""
        self._reader.shutdown(wait=False, cancel_futures=True)

    def action_next_theme(self) -> None:
        """Use flipscope's next theme."""
        names = [theme.name for theme in self._themes]
        at = names.index(self.theme) if self.theme in names else -1
        self.theme = names[(at + 1) % len(names)]
        if isinstance(self.screen, StreamsScreen):
            self.screen.say(f"theme {self.theme}")

    @work(exclusive=True)
    async def _load(self) -> None:
        try:
            session = await asyncio.get_running_loop().run_in_executor(self._reader, self._open)
        except FlipscopeError as error:
            self.exit(error, return_code=error.exit_code)
            return
        await self.switch_screen(StreamsScreen(session, self._reader))
        self.call_after_refresh(_settle_memory)

    def _open(self) -> Session:
        """Open the captures and read the first prompt; runs on the reading thread."""
        comparison = self._comparison if isinstance(self._comparison, Comparison) else self._comparison()
        session = Session(comparison, prompt=self._prompt)
        session.enter(session.prompt_id, session.read(session.prompt_id), self._position)
        return session


def _settle_memory() -> None:
    """Take what was loaded out of the collector's sight: it would walk it 30 times in 1,000 keys (p99 53 to 5 ms)."""
    gc.collect()
    gc.freeze()
