"""What was seen, in bounded memory: tallies of events, nodes, ranks and times.

A log of any length leaves at most a few events a sign here, with counts beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from .model import Event

__all__ = ["Facts", "FileSpan", "Tally"]

_MAX_EVENTS = 8
_MAX_PLACES = 512
_MAX_VALUES = 128


@dataclass(slots=True)
class Tally:
    """All events of one sign: how many, the first few, the last, where and with what values."""

    count: int = 0
    events: list[Event] = field(default_factory=list)
    last: Event | None = None
    ranks: dict[int, Event] = field(default_factory=dict)
    nodes: set[str] = field(default_factory=set)
    values: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        """Count an event and keep what a rule or a reader may want of it."""
        self.count += event.weight
        self.last = event
        if len(self.events) < _MAX_EVENTS:
            self.events.append(event)
        if event.rank is not None and len(self.ranks) < _MAX_PLACES:
            self.ranks.setdefault(event.rank, event)
        if event.node and len(self.nodes) < _MAX_PLACES:
            self.nodes.add(event.node)
        for name, value in event.values.items():
            seen = self.values.setdefault(name, {})
            if value in seen or len(seen) < _MAX_VALUES:
                seen[value] = seen.get(value, 0) + event.weight


@dataclass(slots=True)
class FileSpan:
    """What is known of one file as a whole: its lines, its times and their direction."""

    name: str
    lines: int = 0
    first_s: float | None = None
    last_s: float | None = None
    forward: int = 0
    backward: int = 0

    @property
    def newest_first(self) -> bool:
        """Whether the file's times mostly run backwards."""
        return self.backward > 2 * self.forward and self.backward >= 2

    def saw(self, time_s: float) -> None:
        """Take in one sampled time stamp."""
        if self.last_s is not None:
            self.forward += time_s > self.last_s
            self.backward += time_s < self.last_s
        if self.first_s is None:
            self.first_s = time_s
        self.last_s = time_s


class Facts:
    """The evidence so far, with the questions that rules ask of it."""

    def __init__(self) -> None:
        self.tallies: dict[str, Tally] = {}
        self.files: dict[str, FileSpan] = {}
        self.nodes: set[str] = set()
        self.ranks: set[int] = set()
        self.prefixed = 0
        self.remote = False
        self.idle_s: float | None = None

    def add(self, event: Event) -> None:
        """Record an event."""
        self.tallies.setdefault(event.sign, Tally()).add(event)

    def has(self, *signs: str) -> bool:
        """Whether any of the signs was seen."""
        return any(sign in self.tallies for sign in signs)

    def count(self, sign: str) -> int:
        """How many lines showed the sign, folded repeats included."""
        tally = self.tallies.get(sign)
        return tally.count if tally else 0

    def events(self, *signs: str) -> Iterator[Event]:
        """The kept events of the signs, in their order."""
        for sign in signs:
            tally = self.tallies.get(sign)
            if tally:
                yield from tally.events

    def values(self, sign: str, group: str) -> dict[str, int]:
        """The values a sign's named group took, with their counts."""
        tally = self.tallies.get(sign)
        return tally.values.get(group, {}) if tally else {}

    def numbers(self, sign: str, group: str) -> list[float]:
        """The same, as numbers; thousands separators and a "%" are dropped."""
        out = []
        for value in self.values(sign, group):
            try:
                out.append(float(value.replace(",", "").rstrip("%")))
            except ValueError:
                continue
        return out

    def ranks_of(self, *signs: str) -> set[int]:
        """The ranks that showed any of the signs."""
        return {rank for sign in signs if sign in self.tallies for rank in self.tallies[sign].ranks}

    @property
    def world_size(self) -> int | None:
        """The largest world size that a line named, in ranks."""
        sizes = self.numbers("world_size", "size")
        return int(max(sizes)) if sizes else None

    @property
    def several_nodes(self) -> bool:
        """Whether the job spans more than one node, as far as the lines tell."""
        if len(self.nodes) > 1 or self.remote or self.has("several_nodes"):
            return True
        # Nodes with more than eight GPUs are rare enough for a rank of 8 to be a hint.
        world = self.world_size or 0
        return world > 8 or any(rank >= 8 for rank in self.ranks)

    @property
    def span_s(self) -> float:
        """Seconds between the earliest and the latest sampled time of any one file."""
        spans = [
            abs(span.last_s - span.first_s)
            for span in self.files.values()
            if span.first_s is not None and span.last_s is not None
        ]
        return max(spans, default=0.0)

    def newest_first(self, name: str) -> bool:
        """Whether the file's lines run from the newest to the oldest."""
        span = self.files.get(name)
        return bool(span and span.newest_first)

    def order(self, event: Event) -> tuple[float, int]:
        """A sort key from early to late: time when there is one, else the line."""
        line = -event.line if self.newest_first(event.file) else event.line
        return (event.time_s if event.time_s is not None else float("inf"), line)

    def first(self, *signs: str) -> Event | None:
        """The earliest kept event of the signs."""
        return min(self.events(*signs), key=self.order, default=None)

    def recovered(self, sign: str) -> bool:
        """Whether the engine made progress after the last time the sign was seen."""
        return self.has(sign) and self.silent_s(sign, "progress") is None

    def _follows(self, event: Event, other: Event) -> bool:
        """Whether an event came after another: by line in one file, by time between files."""
        if event.file == other.file:
            return (event.line > other.line) != self.newest_first(event.file)
        if event.time_s is None or other.time_s is None:
            return True  # nothing says otherwise, and a false alarm is the worse mistake
        return event.time_s > other.time_s

    def silent_s(self, sign: str, progress: str) -> float | None:
        """Seconds of silence after the last `sign`; None when `progress` came later.

        The silence ends with the file's last sampled time, or, on a live log, now.
        """
        tally = self.tallies.get(sign)
        if tally is None or tally.last is None:
            return None
        later = self.tallies.get(progress)
        if later is not None and any(
            self._follows(event, tally.last)
            for event in (*later.events, later.last)
            if event is not None
        ):
            return None
        span = self.files.get(tally.last.file)
        quiet = 0.0
        if span and tally.last.time_s is not None:
            ends = [end for end in (span.first_s, span.last_s) if end is not None]
            quiet = max((end - tally.last.time_s for end in ends), default=0.0)
        return max(quiet, self.idle_s or 0.0)
