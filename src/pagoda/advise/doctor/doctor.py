"""The doctor: an examination and a judgement in one object."""

from __future__ import annotations

from collections.abc import Iterable

from .catalogue import causes, signs
from .examine import Examination
from .judge import Report, judge

__all__ = ["Doctor", "diagnose"]


class Doctor:
    """An examination that can be asked for its verdict at any time."""

    def __init__(self) -> None:
        self.examination = Examination(signs())

    def feed(self, name: str, data: bytes) -> None:
        """Take in the next bytes of the log called `name`."""
        self.examination.feed(name, data)

    def close(self, name: str) -> None:
        """End the log called `name`."""
        self.examination.close(name)

    def begin_again(self, name: str) -> None:
        """The log called `name` was cut short: what comes next starts with a new line."""
        self.examination.begin_again(name)

    def report(self, *, idle_s: float | None = None) -> Report:
        """The verdict so far; `idle_s` is how long a live log has been silent."""
        self.examination.facts.idle_s = idle_s
        return judge(self.examination.facts, causes(), signs())


def diagnose(logs: Iterable[tuple[str, bytes]]) -> Report:
    """The verdict on whole logs, given as (name, content)."""
    doctor = Doctor()
    for name, content in logs:
        doctor.feed(name, content)
        doctor.close(name)
    return doctor.report()
