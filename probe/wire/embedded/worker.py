"""The one thread an engine lives in, and how work in it is called off."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from probe.wire.embedded.engine import Engine, InterruptedWorkError

Result = TypeVar("Result")


class Worker:
    """Runs work on one engine, one piece after the other, without blocking the event loop."""

    def __init__(self, load: Callable[[Callable[[], bool]], Engine]) -> None:
        """Start loading at once, in the worker's thread; `load` is given a function that tells of `close`."""
        self._closed = False
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embedded")
        self._engine: Future[Engine] = self._executor.submit(load, lambda: self._closed)
        # Guards `_running`, so that an interrupt meant for one piece of work never hits the next one.
        self._lock = threading.Lock()
        self._running: object | None = None

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def engine(self) -> Engine:
        """The engine; waits until it is loaded and raises what loading raised."""
        return self._engine.result()

    async def loaded(self) -> Engine:
        """The engine, awaited; raises what loading raised."""
        return await asyncio.wrap_future(_followed(self._engine))

    async def run(self, work: Callable[[Engine], Result]) -> Result:
        """Run `work(engine)` in the worker's thread.

        Cancelling the awaiting task takes the work off the queue, or interrupts the engine where it computes.
        """
        ticket = object()
        future = self._executor.submit(self._guarded, ticket, work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self._interrupt(ticket)
            raise

    async def close(self) -> None:
        """Interrupt what runs, drop what waits, free the engine, end the thread. Idempotent."""
        if self._closed:
            return
        self._closed = True
        with self._lock:
            running = self._running
        self._interrupt(running)
        closing = self._executor.submit(self._free)
        self._executor.shutdown(wait=False)
        await asyncio.shield(asyncio.wrap_future(closing))

    def _guarded(self, ticket: object, work: Callable[[Engine], Result]) -> Result:
        engine = self._engine.result()
        with self._lock:
            if self._closed:
                raise InterruptedWorkError
            self._running = ticket
            engine.resume()
        try:
            return work(engine)
        finally:
            with self._lock:
                self._running = None

    def _interrupt(self, ticket: object | None) -> None:
        with self._lock:
            if ticket is not None and self._running is ticket:
                self._engine.result().interrupt()

    def _free(self) -> None:
        if self._engine.done() and not self._engine.cancelled() and self._engine.exception() is None:
            self._engine.result().close()


def _followed(source: Future[Result]) -> Future[Result]:
    """A future that follows `source` and can be cancelled without cancelling it: others wait for it too."""
    follower: Future[Result] = Future()

    def settle(done: Future[Result]) -> None:
        if not follower.set_running_or_notify_cancel():
            return
        problem = done.exception()
        if problem is not None:
            follower.set_exception(problem)
        else:
            follower.set_result(done.result())

    source.add_done_callback(settle)
    return follower
