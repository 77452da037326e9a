"""Calls in processes of their own, some at a time; no process outlives the loop over them."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait as wait_for
from typing import Any, TypeVar

from pagoda.core.errors import PagodaError

Item = TypeVar("Item")
Result = TypeVar("Result")
TICK_S = 0.2


def as_they_end(
    call: Callable[[Item], Result], items: Sequence[Item], *, jobs: int
) -> Iterator[Result]:
    """`call` of each item, `jobs` at a time, in the order in which they end.

    When the loop ends early (Ctrl-C, an exception, a generator that is closed), the processes
    are killed at once and what was waiting never begins. Raises what a call raised, and
    PagodaError when a process was killed.
    """
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=context)
    return _as_they_end(pool, call, items, tick=_nothing)


def as_forks_end(
    call: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    jobs: int,
    tick: Callable[[], None],
) -> Iterator[Result]:
    """The same in copies of this process: `call` and the data that it holds are there without
    being sent. `tick` is called at least every TICK_S. Calls have no standard streams."""
    pool = ProcessPoolExecutor(
        jobs,
        mp_context=multiprocessing.get_context("fork"),
        initializer=_inherit,
        initargs=(call,),
    )
    return _as_they_end(pool, _call_inherited, items, tick=tick)


def _as_they_end(
    pool: ProcessPoolExecutor,
    call: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    tick: Callable[[], None],
) -> Iterator[Result]:
    others = set(multiprocessing.active_children())
    with pool:
        try:
            with _interrupts_held():
                runs = {pool.submit(call, item) for item in items}
            while runs:
                ended, runs = wait(runs, timeout=TICK_S, return_when=FIRST_COMPLETED)
                tick()
                for run in ended:
                    yield run.result()
        except BaseException as error:
            for worker in set(multiprocessing.active_children()) - others:
                worker.kill()
            if isinstance(error, BrokenProcessPool):
                raise PagodaError(
                    "a process of this command was killed",
                    remedy="if memory was short, run fewer at a time with --jobs",
                ) from error
            raise


def _nothing() -> None:
    """No tick."""


_inherited: Callable[[Any], Any]


def _inherit(call: Callable[[Any], Any]) -> None:
    """In a new copy of the process. A thread that is not in it may have held the lock of a
    stream, and the collector would write to, and so copy, every object that is shared."""
    global _inherited  # noqa: PLW0603 - a pool hands its processes nothing but what is sent
    _inherited = call
    sys.stdout = sys.stderr = None
    gc.freeze()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that is killed kills nobody; a copy would wait for ever to be told of work."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "a copy has a parent"
    wait_for([parent.sentinel])
    os._exit(1)


def _call_inherited(item: Any) -> Any:
    return _inherited(item)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Processes started inside never see a Ctrl-C, which a terminal sends to all of a group;
    this one gets it at the end. The mask is for them, who inherit it: another thread of this
    process may still take the signal, and have its main thread interrupted while it starts one.
    """
    held: list[int] = []
    main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, lambda number, _: held.append(number)) if main else None
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if main:
            signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if held:
            signal.raise_signal(signal.SIGINT)
