"""What other threads ask of an engine's thread: a queue of calls, and their answers."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from pagoda.core.errors import EngineBusy, EngineClosed

_log = logging.getLogger("pagoda.engine")
Result = TypeVar("Result")


class Commands:
    """Calls for the engine's thread, in the order in which they were sent. `wake` is set by each;
    `patience_s` is the longest that a caller waits for the thread to take its call up."""

    def __init__(self, wake: threading.Event, *, patience_s: float = 60.0) -> None:
        self._wake = wake
        self._patience_s = patience_s
        self._waiting: deque[Callable[[], None]] = deque()
        self._gate = threading.Lock()  # taken for `open` and appending to `_waiting` only
        self.open = True

    # From any thread.

    def send(self, call: Callable[[], None]) -> None:
        """Have a call made; raises EngineClosed when no more are taken."""
        with self._gate:
            if not self.open:
                raise EngineClosed("the engine is not running")
            self._waiting.append(call)
        self._wake.set()

    def ask(self, function: Callable[[], Result]) -> Result:
        """Have a function called; returns, or raises, what it does. Raises EngineBusy when the
        thread did not come to it in time: then it is not called at all."""
        answer: Future[Result] = Future()

        def call() -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                answer.set_result(function())
            except Exception as error:  # noqa: BLE001 - whoever asked raises it
                answer.set_exception(error)

        self.send(call)
        try:
            return answer.result(timeout=self._patience_s)
        except TimeoutError:
            if not answer.cancel():  # it is being called: that takes no I/O, and ends soon
                return answer.result()
            raise EngineBusy(
                f"the engine did not come to it in {self._patience_s:g} s; nothing was done",
                remedy="ask again later; if it stays so, see the server's log for a stuck tier",
            ) from None

    def close(self) -> None:
        """Take no more; those that were taken are still to be called."""
        with self._gate:
            self.open = False

    # In the engine's thread.

    def run(self) -> None:
        """Make every call that waits."""
        while self._waiting:
            self._waiting.popleft()()

    def run_out(self) -> None:
        """At a failed engine's end: make every call that waits, and let no failure of one keep
        the others from being made."""
        while self._waiting:
            try:
                self._waiting.popleft()()
            except Exception:  # noqa: BLE001 - one command, not the telling of the others
                _log.exception("a command to the failed engine failed")
