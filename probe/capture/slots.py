"""How many requests one server gets at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Slots:
    """Places for requests in flight.

    Scoring is bit-reproducible under load, generation is not (measured: bf16 changes tokens at 4 in flight), so with
    one generation slot a generation has the server to itself.

    Args:
        scoring: Scoring requests in flight at most.
        generating: Generations in flight at most; 1 keeps scoring away meanwhile.
    """

    def __init__(self, scoring: int, generating: int) -> None:
        self._scoring_room = scoring
        self._generating_room = generating
        self._scoring = 0
        self._generating = 0
        self._waiting = 0
        self._changed = asyncio.Condition()

    @property
    def workers(self) -> int:
        """How many prompts are worth having under way."""
        return max(self._scoring_room, self._generating_room)

    @asynccontextmanager
    async def score(self) -> AsyncIterator[None]:
        """Hold a place for a scoring request."""
        async with self._changed:
            await self._changed.wait_for(self._may_score)
            self._scoring += 1
        try:
            yield
        finally:
            async with self._changed:
                self._scoring -= 1
                self._changed.notify_all()

    @asynccontextmanager
    async def generate(self) -> AsyncIterator[None]:
        """Hold a place for a generation."""
        async with self._changed:
            self._waiting += 1
            try:
                await self._changed.wait_for(self._may_generate)
            finally:
                self._waiting -= 1
            self._generating += 1
        try:
            yield
        finally:
            async with self._changed:
                self._generating -= 1
                self._changed.notify_all()

    def _may_score(self) -> bool:
        exclusive = self._generating_room == 1
        return self._scoring < self._scoring_room and not (exclusive and (self._generating or self._waiting))

    def _may_generate(self) -> bool:
        exclusive = self._generating_room == 1
        return self._generating < self._generating_room and not (exclusive and self._scoring)
