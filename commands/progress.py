"""What a capture shows while it runs: one bar per runtime, on stderr."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from commands.failure import printable


class CaptureProgress:
    """An `Observer` that draws. Bars advance in tokens, since prompts differ a hundredfold in length."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._progress = Progress(
            TextColumn("{task.fields[label]}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[prompts]}", markup=False),
            TextColumn("{task.percentage:>3.0f} %", markup=False),
            TimeElapsedColumn(),
            TextColumn("left", markup=False),
            TimeRemainingColumn(),
            console=self._console,
        )
        self._bars: dict[str, TaskID] = {}
        self._fetching: dict[str, TaskID] = {}
        self._counts: dict[str, tuple[int, int]] = {}

    def __enter__(self) -> CaptureProgress:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def say(self, message: str) -> None:
        """Print a line above the bars."""
        self._console.print(Text(printable(message)))

    def notice(self, label: str, message: str) -> None:
        """Something a user should know."""
        self.say(f"{label}: {message}")

    def loading(self, label: str, done: int, total: int) -> None:
        """The embedded model is being fetched: a bar that makes room for the capture's own."""
        if label not in self._fetching:
            self._fetching[label] = self._progress.add_task("", total=total, label=label, prompts="model")
        self._progress.update(self._fetching[label], completed=done, total=total)

    def planned(self, label: str, prompts: int, done: int, tokens: int) -> None:
        """A runtime starts."""
        if label in self._fetching:
            self._progress.remove_task(self._fetching.pop(label))
        self._counts[label] = (done, prompts)
        self._bars[label] = self._progress.add_task("", total=tokens, label=label, prompts=f"{done}/{prompts}")
        if done:
            self.say(f"{label}: {done} of {prompts} prompts are on disk already")

    def recorded(self, label: str, prompt_id: str, tokens: int) -> None:
        """A prompt is on disk."""
        done, prompts = self._counts[label]
        self._counts[label] = (done + 1, prompts)
        self._progress.update(self._bars[label], advance=tokens, prompts=f"{done + 1}/{prompts}")

    def failed(self, label: str, prompt_id: str, reason: str) -> None:
        """A prompt could not be captured."""
        self.say(f"{label}: prompt {prompt_id!r} failed: {reason}")

    def stopped(self, label: str, reason: str) -> None:
        """A runtime cannot go on."""
        self.say(f"{label}: stopped. {reason}")
