"""The way of updates from the engine's thread to a request's coroutine."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from enum import StrEnum

from pagoda.engine.api import Sink, Update

__all__ = ["Channel", "ChannelEnded", "Ending"]


class Ending(StrEnum):
    """Why nobody waits for a request's updates any more."""

    CLIENT_GONE = "client_gone"
    SHUTDOWN = "shutdown"


class ChannelEnded(Exception):
    """The request is over before its answer is."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.value)
        self.ending = ending


class Channel:
    """Updates of all sequences of one request, in order, each with its choice's index.

    Bounded by the request's max_tokens. The engine's thread wakes the loop at most once for
    all updates that arrive before the reader takes them.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._arrived: deque[tuple[int, Update]] = deque()
        self._ready = asyncio.Event()
        self._woken = False
        self._ending: Ending | None = None

    def sink(self, index: int) -> Sink:
        """What the engine calls, from its thread, with each update of choice `index`."""

        def deliver(update: Update) -> None:
            self._arrived.append((index, update))
            if not self._woken:
                self._woken = True
                # A loop that has closed has no reader left; a sink must not raise.
                with contextlib.suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._ready.set)

        return deliver

    def end(self, ending: Ending) -> None:
        """Makes the reader stop waiting; called from the loop."""
        self._ending = self._ending or ending
        self._ready.set()

    async def take(self) -> list[tuple[int, Update]]:
        """Waits for updates and takes all that have arrived; on a race with the engine, none.
        Raises ChannelEnded after `end`."""
        await self._ready.wait()
        if self._ending is not None:
            raise ChannelEnded(self._ending)
        self._ready.clear()
        # Cleared before reading: an update that comes later wakes the loop again.
        self._woken = False
        return [self._arrived.popleft() for _ in range(len(self._arrived))]
