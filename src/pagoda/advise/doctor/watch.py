"""A doctor for a log that is still being written: tells each new cause once."""

from __future__ import annotations

from .doctor import Doctor
from .judge import Finding, Report

__all__ = ["Watcher"]


class Watcher:
    """Re-judges after each piece of a live log; memory does not grow with the log."""

    def __init__(self) -> None:
        self._doctor = Doctor()
        self._told: set[str] = set()

    def take(self, name: str, data: bytes, *, idle_s: float = 0.0) -> tuple[Finding, ...]:
        """Feed bytes (none, when the log is silent) and return causes not told before.

        `idle_s` is for how long nothing has been written, in seconds.
        """
        if data:
            self._doctor.feed(name, data)
        return self._fresh(idle_s)

    def begin_again(self, name: str) -> None:
        """The log was cut short: what comes next starts with a new line."""
        self._doctor.begin_again(name)

    def close(self, name: str) -> tuple[Finding, ...]:
        """End the log, so that a last line without a newline counts, and return new causes."""
        self._doctor.close(name)
        return self._fresh(0.0)

    def report(self) -> Report:
        """The verdict on all that was read."""
        return self._doctor.report()

    def _fresh(self, idle_s: float) -> tuple[Finding, ...]:
        """The causes that hold now and were not told before."""
        fresh = tuple(
            finding
            for finding in self._doctor.report(idle_s=idle_s).causes
            if finding.cause.id not in self._told
        )
        self._told.update(finding.cause.id for finding in fresh)
        return fresh
