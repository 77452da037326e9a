"""The threads that carry out I/O orders."""

from __future__ import annotations

import threading
import time
import weakref
from functools import partial

from pagoda.store.executor import Kind, Lane, ThreadExecutor


def test_a_stuck_lane_holds_up_no_other() -> None:
    """With every thread of a drive's loads stuck, memory's loads and the drive's stores run."""
    executor = ThreadExecutor(load_threads=2, store_threads=1)
    stuck = threading.Event()
    for _ in range(5):
        executor.submit(Lane("drive", Kind.LOAD), lambda: stuck.wait(30) and None)
    ran = {lane: threading.Event() for lane in (Lane("host", Kind.LOAD), Lane("drive", Kind.STORE))}
    for lane, event in ran.items():
        executor.submit(lane, event.set)
    try:
        assert all(event.wait(10) for event in ran.values())
    finally:
        stuck.set()
        executor.close()


def test_waiting_ends_with_a_job() -> None:
    """`wait` returns once something has ended, and does not miss what ended before."""
    executor = ThreadExecutor(load_threads=1, store_threads=1)
    done = threading.Event()
    executor.submit(Lane("host", Kind.LOAD), done.set)
    assert done.wait(10)
    executor.wait(30)
    executor.close()


class Buffer:
    """Stands for memory that its owner wants to unmap."""


def test_a_thread_lets_go_of_a_job_before_it_waits_for_the_next() -> None:
    """Else a buffer would be held until another order comes, or for good."""
    executor = ThreadExecutor(load_threads=1, store_threads=1)
    buffer = Buffer()
    seen = weakref.ref(buffer)
    executor.submit(Lane("drive", Kind.LOAD), partial(id, buffer))
    del buffer
    until_s = time.monotonic() + 10.0
    while seen() is not None and time.monotonic() < until_s:
        executor.wait(0.01)
    assert seen() is None
    executor.close()
