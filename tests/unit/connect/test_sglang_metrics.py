"""What one rank shows in the process's Prometheus registry."""

from __future__ import annotations

from prometheus_client import REGISTRY

from pagoda.connect.counts import BOUNCED, Counts, counters
from pagoda.connect.sglang.metrics import HELD, UNIT, Exported
from pagoda.core.events import Reason, Refused, Restored, Skipped, Stored


def _value(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


def test_counters_rise_by_what_was_counted_however_often_a_backend_is_attached() -> None:
    """Each name is registered once in a process; two backends of a rank add to the same."""
    ranks = {"tp_rank": "7", "pp_rank": "0", "dp_rank": "1"}
    for round_ in (1, 2):
        counts = Counts(UNIT)
        shown = Exported(ranks)
        counts(Restored(tier="drive", blocks=3, size_bytes=300, seconds=0.1))
        counts(Stored(tier="drive", blocks=2, size_bytes=200, seconds=0.1))
        counts(Refused(tier="drive", blocks=1, reason=Reason.CORRUPT))
        counts(Skipped(tier="mamba:drive", blocks=4, reason=Reason.BUSY))
        shown.show(counts, held=round_)
        shown.show(counts, held=round_)
        tier = ranks | {"tier": "drive"}
        assert _value("pagoda_restored_segments_total", **tier) == 3 * round_
        assert _value("pagoda_restored_bytes_total", **tier) == 300 * round_
        assert _value("pagoda_stored_segments_total", **tier) == 2 * round_
        corrupt = tier | {"reason": "corrupt"}
        assert _value("pagoda_refused_segments_total", **corrupt) == round_
        busy = ranks | {"tier": "mamba:drive", "reason": "busy"}
        assert _value("pagoda_skipped_segments_total", **busy) == 4 * round_
        assert _value(f"{BOUNCED}_total", **ranks) == 0
        assert _value(HELD, **ranks) == round_


def test_every_counter_has_a_meaning_and_its_units_name() -> None:
    """Those that count what a store holds say what that is."""
    for name, (_, meaning) in counters(UNIT).items():
        assert name.startswith("pagoda_")
        assert meaning.endswith(".")
    assert any(UNIT in name for name in counters(UNIT))
