"""What the tier counts for vLLM's /metrics."""

from __future__ import annotations

from collections.abc import Mapping

from pagoda.connect.counts import counters
from pagoda.core.events import Event, Skipped

UNIT = "chunks"
HELD = "pagoda_held_chunks"

COUNTERS = counters(UNIT)
GAUGES: Mapping[str, str] = {
    HELD: "Chunks of host memory that nobody may use: a stuck drive may write to them.",
}


class Skips:
    """An observer that counts chunks that could not be stored. One that was not worth a write is
    none of them: its job is done, and did not fail."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, event: Event) -> None:
        """Count one event; those of other kinds are passed over. The store's thread."""
        if isinstance(event, Skipped):
            self.count += event.blocks
