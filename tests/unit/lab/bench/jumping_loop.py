"""An event loop whose clock jumps to the next timer, so that a load of minutes takes no time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class JumpingLoop(asyncio.SelectorEventLoop):
    """Nothing but timers and callbacks may run on it: it never waits for a socket."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 1_000.0

    def time(self) -> float:
        return self._now_s

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:
            self._now_s = max(self._now_s, self._scheduled[0]._when)
        super()._run_once()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` on a fresh jumping loop."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(main)
