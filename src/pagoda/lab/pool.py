"""Calls in processes of their own, some at a time; no process outlives the loop over them."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def as_they_end(
    call: Callable[[Item], Result], items: Sequence[Item], *, jobs: int
) -> Iterator[Result]:
    """`call` of each item, `jobs` at a time, in the order in which they end.

    When the loop ends early (Ctrl-C, an exception, a generator that is closed), the processes
    are killed at once and what was waiting never begins. Raises what a call raised, and
    BrokenProcessPool when a process died.
    """
    others = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        try:
            with _interrupts_held():
                runs = [pool.submit(call, item) for item in items]
            for run in as_completed(runs):
                yield run.result()
        except BaseException:
            for worker in set(multiprocessing.active_children()) - others:
                worker.kill()
            raise


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Processes started inside never see a Ctrl-C, which a terminal sends to all of a group;
    this one gets it at the end."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
