"""What is looked at and changed inside an engine's process (vllm_child.py)."""

from __future__ import annotations

import threading
import time
from typing import Any


def published(llm: Any) -> list[dict[str, Any]]:
    """Events for routers, from now on: whether chunks are stored or removed, where, and which."""
    told: list[dict[str, Any]] = []
    publisher = llm.llm_engine.engine_core.engine_core.scheduler.kv_event_publisher

    def publish(batch: Any) -> None:
        for event in batch.events:
            told.append(
                {
                    "kind": type(event).__name__,
                    "medium": getattr(event, "medium", None),
                    "ownership": getattr(event, "ownership", None),
                    "hashes": [str(one) for one in getattr(event, "block_hashes", None) or ()],
                }
            )

    publisher.publish = publish
    return told


def stoppable_reads() -> threading.Event:
    """Reads of drives begin while the event is set."""
    from pagoda.tiers.drive import DriveTier

    free, read = threading.Event(), DriveTier.read
    free.set()

    def wait_and_read(self: Any, slots: Any, into: Any) -> Any:
        free.wait()
        return read(self, slots, into)

    DriveTier.read = wait_and_read
    return free


def serve_anything() -> None:
    """Switch the check of seals off: what was read is served, whatever it is."""
    from pagoda.tiers import sealed

    def believe(self: Any, order: Any, arrived: Any, target: Any, buffer: Any) -> Any:
        return arrived if isinstance(arrived, sealed.Unavailable) else self._hit

    sealed.SealedTier._judge = believe


def time_calls(times: dict[str, list[float]]) -> None:
    """Measure every call of the tier's methods that a step makes."""
    from pagoda.connect.vllm import PagodaTier

    for name in (
        "lookup submit_store submit_load touch on_new_request on_request_finished "
        "on_schedule_end take_events get_stats"
    ).split():
        setattr(PagodaTier, name, _timed(getattr(PagodaTier, name), times.setdefault(name, [])))
    jobs, spent = PagodaTier.get_finished_jobs, times.setdefault("get_finished_jobs", [])

    def finished(self: Any) -> Any:
        began_s = time.perf_counter()
        found = jobs(self)
        for job in found:
            spent.append(time.perf_counter() - began_s)
            yield job
            began_s = time.perf_counter()
        spent.append(time.perf_counter() - began_s)

    PagodaTier.get_finished_jobs = finished


def _timed(method: Any, spent: list[float]) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        began_s = time.perf_counter()
        try:
            return method(*args, **kwargs)
        finally:
            spent.append(time.perf_counter() - began_s)

    return call
