"""What the tier counts for vLLM's /metrics."""

from __future__ import annotations

from collections.abc import Mapping

from pagoda.connect.counts import counters

UNIT = "chunks"
HELD = "pagoda_held_chunks"

COUNTERS = counters(UNIT)
GAUGES: Mapping[str, str] = {
    HELD: "Chunks of host memory that nobody may use: a stuck drive may write to them.",
}
