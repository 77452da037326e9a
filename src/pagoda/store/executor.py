"""Where I/O runs: threads in production, a stepped executor in simulations."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from queue import SimpleQueue
from typing import NamedTuple, Protocol

from pagoda.core.events import Observer, ignore

Job = Callable[[], None]


def _no_one() -> None:
    """Nobody waits to be woken."""


class Kind(StrEnum):
    """What an order does. Each queues apart, so that none starves another."""

    LOAD = "load"
    STORE = "store"
    SCRUB = "scrub"
    CHECK = "check"


class Lane(NamedTuple):
    """A queue with threads of its own: a stuck drive does not hold up memory."""

    tier: str
    kind: Kind


class Executor(Protocol):
    """Runs jobs some time later, in any order, possibly at once. Jobs do not raise."""

    def submit(self, lane: Lane, job: Job) -> None: ...

    def wait(self, timeout_s: float) -> None:
        """Block until a job has ended since the last wait, or the time is over."""
        ...

    def close(self) -> None:
        """Stop taking jobs. Threads stuck in the kernel are left behind, not waited for."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """What a store is given of the world: where its I/O runs, what time it is, who listens.

    `clock` is monotonic seconds, `wall_ms` milliseconds since the epoch; `wake` is called
    from I/O threads when there is something for the owner to poll.
    """

    executor: Executor
    clock: Callable[[], float] = time.monotonic
    wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    observer: Observer = ignore
    wake: Callable[[], None] = _no_one


class ThreadExecutor:
    """A fixed number of threads a lane, started with its first job.

    They are daemons: a stuck drive cannot hold the exit. Loads from the tiers named by `inline`
    run in the caller's thread: for small blocks in memory a copy is cheaper than a thread's turn.
    """

    def __init__(
        self, *, load_threads: int, store_threads: int, inline: Collection[str] = ()
    ) -> None:
        self._ended = threading.Event()
        self._inline = frozenset(inline)
        self._counts = {
            Kind.LOAD: load_threads,
            Kind.STORE: store_threads,
            Kind.SCRUB: 1,
            Kind.CHECK: 1,
        }
        self._queues: dict[Lane, SimpleQueue[Job | None]] = {}

    def submit(self, lane: Lane, job: Job) -> None:
        if lane.kind is Kind.LOAD and lane.tier in self._inline:
            job()
            return
        if lane not in self._queues:
            self._queues[lane] = SimpleQueue()
            for number in range(self._counts[lane.kind]):
                name = f"pagoda-{lane.tier}-{lane.kind}-{number}"
                threading.Thread(target=self._work, args=(lane,), name=name, daemon=True).start()
        self._queues[lane].put(job)

    def wait(self, timeout_s: float) -> None:
        self._ended.wait(timeout_s)
        self._ended.clear()

    def close(self) -> None:
        for lane, queue in self._queues.items():
            for _ in range(self._counts[lane.kind]):
                queue.put(None)

    def _work(self, lane: Lane) -> None:
        while (job := self._queues[lane].get()) is not None:
            job()
            del job  # and with it the buffers that it names: their owner may want to unmap them
            self._ended.set()
