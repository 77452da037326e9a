"""What the store tells, counted for vLLM's /metrics."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

from pagoda.core.events import Event, Refused, Restored, Scrubbed, Skipped, Stored

BOUNCED = "pagoda_bounced_copies"
HELD = "pagoda_held_chunks"
_MOVED = ("tier",)
_LOST = ("tier", "reason")

# Name (vLLM appends _total), labels and meaning.
COUNTERS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "pagoda_restored_chunks": (_MOVED, "Chunks read from a tier and verified."),
    "pagoda_restored_bytes": (_MOVED, "Bytes of them."),
    "pagoda_stored_chunks": (_MOVED, "Chunks written to a tier and sealed."),
    "pagoda_stored_bytes": (_MOVED, "Bytes of them."),
    "pagoda_refused_chunks": (_LOST, "Chunks that a tier held but that were not handed over."),
    "pagoda_skipped_chunks": (_LOST, "Chunks that were not stored."),
    "pagoda_scrub_bad_chunks": (_MOVED, "Chunks found bad before anybody asked for them."),
    BOUNCED: ((), "Chunks copied in memory because their place there is not aligned."),
}
GAUGES: Mapping[str, str] = {
    HELD: "Chunks of host memory that nobody may use: a stuck drive may write to them.",
}

Labels = tuple[str, ...]


class Counts:
    """An observer that adds up. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, Labels]] = Counter()

    def __call__(self, event: Event) -> None:
        """Count one event; those of other kinds are passed over."""
        match event:
            case Restored(tier=tier, blocks=blocks, size_bytes=size_bytes):
                self.add("pagoda_restored_chunks", blocks, tier)
                self.add("pagoda_restored_bytes", size_bytes, tier)
            case Stored(tier=tier, blocks=blocks, size_bytes=size_bytes):
                self.add("pagoda_stored_chunks", blocks, tier)
                self.add("pagoda_stored_bytes", size_bytes, tier)
            case Refused(tier=tier, blocks=blocks, reason=reason):
                self.add("pagoda_refused_chunks", blocks, tier, str(reason))
            case Skipped(tier=tier, blocks=blocks, reason=reason):
                self.add("pagoda_skipped_chunks", blocks, tier, str(reason))
            case Scrubbed(tier=tier, bad=bad):
                self.add("pagoda_scrub_bad_chunks", bad, tier)
            case _:
                pass

    def add(self, name: str, count: int, *labels: str) -> None:
        """Add to a counter."""
        with self._lock:
            self._counts[name, labels] += count

    def take(self) -> dict[tuple[str, Labels], int]:
        """What was added since the last call."""
        with self._lock:
            taken = dict(self._counts)
            self._counts.clear()
        return {what: count for what, count in taken.items() if count}
