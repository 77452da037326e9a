"""The engine's home: one thread that loads the model and computes everything.

OpenMP gives every thread that starts a parallel region a team of its own, and lets teams
sleep between regions once there are more threads than processors. A model that is loaded in
one thread and computed in another then steps at half its speed, waiting for sleepers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

Result = TypeVar("Result")
_JOIN_S = 10.0


class HomeThread:
    """Runs functions one after another in one thread. A daemon: it never holds the exit."""

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def run(self, function: Callable[[], Result]) -> Future[Result]:
        """Queue a function; the future has its result, or the exception it raised."""
        future: Future[Result] = Future()

        def call() -> None:
            try:
                future.set_result(function())
            except BaseException as error:  # noqa: BLE001 - whoever waits raises it
                future.set_exception(error)

        self._queue.put(call)
        return future

    def close(self) -> None:
        """End the thread once what was queued has run, and wait for its end: a process that
        exits while libraries still tidy up after the thread is aborted by them."""
        self._queue.put(None)
        self._thread.join(timeout=_JOIN_S)

    def _work(self) -> None:
        while (call := self._queue.get()) is not None:
            call()
