"""An executor that runs nothing by itself: the test, or a seed, chooses every order."""

from __future__ import annotations

import random

from pagoda.store.executor import Job, Lane


class SteppedExecutor:
    """Queued jobs run one at a time, when `step` is called, in an order drawn from `rng`.

    Any queued job may be next, whatever its lane: a superset of what threads can do at the
    granularity of whole jobs. It does not interleave two jobs.
    """

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random(0)  # noqa: S311 - an order, no secret
        self._jobs: list[tuple[Lane, Job]] = []
        self._held: list[tuple[Lane, Job]] = []
        self.closed = False

    def submit(self, lane: Lane, job: Job) -> None:
        self._jobs.append((lane, job))

    def wait(self, timeout_s: float) -> None:
        del timeout_s
        self.step()

    def close(self) -> None:
        self.closed = True

    def pending(self) -> int:
        """Jobs that could run now."""
        return len(self._jobs)

    def step(self) -> bool:
        """Run one queued job; False when there is none."""
        if not self._jobs:
            return False
        _, job = self._jobs.pop(self._rng.randrange(len(self._jobs)))
        job()
        return True

    def drain(self) -> int:
        """Run until nothing is queued; returns how many jobs ran."""
        ran = 0
        while self.step():
            ran += 1
        return ran

    def hold(self) -> int:
        """Set everything queued aside, as if its I/O were stuck; returns how many jobs."""
        self._held += self._jobs
        self._jobs = []
        return len(self._held)

    def unhold(self) -> None:
        """Let stuck jobs go on."""
        self._jobs += self._held
        self._held = []
