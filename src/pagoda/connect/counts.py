"""What a connector's store tells, counted for the engine's own /metrics.

Engines call what they store by different names, which the names of the counters have: vLLM's
are chunks, SGLang's pages lie in segments.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

from pagoda.core.events import (
    Barred,
    Checked,
    Event,
    Refused,
    Restored,
    Scrubbed,
    Skipped,
    Stored,
)

BOUNCED = "pagoda_bounced_copies"
_MOVED = ("tier",)
_LOST = ("tier", "reason")

Labels = tuple[str, ...]


def counters(unit: str) -> Mapping[str, tuple[Labels, str]]:
    """Name (an engine appends _total), labels and meaning, of stores that hold `unit`."""
    them = unit.capitalize()
    return {
        f"pagoda_restored_{unit}": (_MOVED, f"{them} read from a tier and verified."),
        "pagoda_restored_bytes": (_MOVED, "Bytes of them."),
        f"pagoda_stored_{unit}": (_MOVED, f"{them} written to a tier and sealed."),
        "pagoda_stored_bytes": (_MOVED, "Bytes of them."),
        f"pagoda_refused_{unit}": (
            _LOST,
            f"{them} that a tier held but that were not handed over.",
        ),
        f"pagoda_skipped_{unit}": (_LOST, f"{them} that were not stored."),
        f"pagoda_scrub_bad_{unit}": (_MOVED, f"{them} found bad before anybody asked for them."),
        f"pagoda_checked_{unit}": (
            ("tier", "verdict"),
            f"{them} held against the same, computed again: equal, close, wrong or unread.",
        ),
        "pagoda_quarantines": ((), "Times that a namespace was found in or put in quarantine."),
        BOUNCED: ((), f"{them} copied in memory because their place there is not aligned."),
    }


class Counts:
    """An observer that adds up. Any thread."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, Labels]] = Counter()

    def __call__(self, event: Event) -> None:
        """Count one event; those of other kinds are passed over."""
        match event:
            case Restored(tier=tier, blocks=blocks, size_bytes=size_bytes):
                self.add(f"pagoda_restored_{self._unit}", blocks, tier)
                self.add("pagoda_restored_bytes", size_bytes, tier)
            case Stored(tier=tier, blocks=blocks, size_bytes=size_bytes):
                self.add(f"pagoda_stored_{self._unit}", blocks, tier)
                self.add("pagoda_stored_bytes", size_bytes, tier)
            case Refused(tier=tier, blocks=blocks, reason=reason):
                self.add(f"pagoda_refused_{self._unit}", blocks, tier, str(reason))
            case Skipped(tier=tier, blocks=blocks, reason=reason):
                self.add(f"pagoda_skipped_{self._unit}", blocks, tier, str(reason))
            case Scrubbed(tier=tier, bad=bad):
                self.add(f"pagoda_scrub_bad_{self._unit}", bad, tier)
            case Checked(tier=tier, verdict=verdict):
                self.add(f"pagoda_checked_{self._unit}", 1, tier, str(verdict))
            case Barred():
                self.add("pagoda_quarantines", 1)
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
