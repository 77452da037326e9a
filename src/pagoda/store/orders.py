"""I/O orders: a job runs in an I/O thread, then the owner's thread takes in its result."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeVar

from pagoda.store.executor import Lane, Runtime

Result = TypeVar("Result")


class Orders:
    """What has been sent to I/O threads and not been taken in yet.

    Jobs do not raise: the seal layer turns whatever a tier does into outcomes and typed
    errors. `send` and `take_in` are called by the owner alone.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._executor = runtime.executor
        self._wake = runtime.wake
        self._landed: deque[Callable[[], None]] = deque()
        self.flying = 0

    def send(self, lane: Lane, job: Callable[[], Result], then: Callable[[Result], None]) -> None:
        """Have `job` run in an I/O thread, and `then` in the owner's thread with its result."""
        self.flying += 1

        def run() -> None:
            result = job()
            self._landed.append(lambda: then(result))
            self._wake()

        self._executor.submit(lane, run)

    def take_in(self) -> None:
        """Call `then` for every order that has ended."""
        while self._landed:
            self.flying -= 1
            self._landed.popleft()()
