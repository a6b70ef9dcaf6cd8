"""An observer that remembers, for tests of captures."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Watcher:
    """Everything a capture told its observer."""

    notices: list[str] = field(default_factory=list)
    plans: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    records: list[tuple[str, str]] = field(default_factory=list)
    failures: dict[tuple[str, str], str] = field(default_factory=dict)
    stops: dict[str, str] = field(default_factory=dict)

    def notice(self, label: str, message: str) -> None:
        self.notices.append(f"{label}: {message}")

    def loading(self, label: str, done: int, total: int) -> None:
        self.notices.append(f"{label}: {done} of {total} bytes")

    def planned(self, label: str, prompts: int, done: int, tokens: int) -> None:
        self.plans[label] = (prompts, done, tokens)

    def recorded(self, label: str, prompt_id: str, tokens: int) -> None:
        self.records.append((label, prompt_id))

    def failed(self, label: str, prompt_id: str, reason: str) -> None:
        self.failures[label, prompt_id] = reason

    def stopped(self, label: str, reason: str) -> None:
        self.stops[label] = reason
