"""Metrics: every event counts, names and labels keep the rules, the engine's gauges are live."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from pagoda.core.checking import Verdict
from pagoda.core.errors import EngineClosed
from pagoda.core.events import (
    Barred,
    Checked,
    Declined,
    Degraded,
    Ended,
    Event,
    Evicted,
    Examined,
    Fenced,
    Finished,
    Looked,
    Overruled,
    PinBegan,
    PinDenied,
    PinEnd,
    PinsEnded,
    Preempted,
    Quarantined,
    Reason,
    Rebuilt,
    Refused,
    Restored,
    Scrubbed,
    ScrubPassed,
    Skipped,
    Stepped,
    Stored,
    Unbarred,
    Unfenced,
)
from pagoda.watch.metrics import SPECS, Metrics, table


def finished(**changes: object) -> Finished:
    """A request that ended well, with changes."""
    fields: dict[str, object] = {
        "request_id": "r",
        "reason": "stop",
        "prompt_tokens": 100,
        "completion_tokens": 11,
        "cached_device_tokens": 0,
        "cached_restored_tokens": 0,
        "queued_s": 0.5,
        "first_token_s": 1.0,
        "total_s": 3.0,
    }
    return Finished(**(fields | changes))  # type: ignore[arg-type]


EXAMPLES: tuple[Event, ...] = (
    Restored(tier="drive", blocks=2, size_bytes=10, seconds=0.1),
    Stored(tier="drive", blocks=2, size_bytes=10, seconds=0.1),
    Refused(tier="drive", blocks=1, reason=Reason.CORRUPT),
    Skipped(tier="drive", blocks=1, reason=Reason.FULL),
    Declined(tier="drive", blocks=2, size_bytes=10),
    Evicted(tier="drive", blocks=1),
    Overruled(tier="device", blocks=2),
    PinBegan(blocks=3),
    PinsEnded(pins=1, reason=PinEnd.EXPIRED),
    PinDenied(tier="host"),
    Quarantined(tier="drive", slots=1, reason=Reason.CORRUPT),
    Degraded(tier="drive", reason=Reason.READ_ONLY, detail="remounted"),
    Rebuilt(tier="drive", blocks=5, dropped=1, seconds=0.2),
    Scrubbed(tier="drive", blocks=3, bad=1, size_bytes=10, seconds=0.1),
    ScrubPassed(tier="drive", blocks=3, bad=1, seconds=0.1),
    Checked(tier="drive", verdict=Verdict.WRONG, difference=0.8),
    Barred(namespace="68b4", since_s=7, detail="a block is not what is computed"),
    Unbarred(namespace="68b4"),
    Looked(device=1, lower=2, absent=3),
    Stepped(prefill_tokens=512, decode_tokens=3, seconds=0.1),
    Fenced(tier="drive", reason=Reason.UNHEALTHY, detail="2 % spare is left"),
    Unfenced(tier="drive"),
    Examined(
        tier="drive",
        used_percent=40,
        spare_percent=2,
        media_errors=0,
        free_bytes=5,
        budget_bytes=6,
        written_bytes=7,
        life_years=8.5,
    ),
    Preempted(request_id="r", blocks=4),
    finished(),
)


class Scrape:
    """A registry with metrics, and what a scrape of it shows."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = Metrics(self.registry)

    def samples(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """Name and labels to value, without creation times."""
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in self.registry.collect()
            for sample in family.samples
            if not sample.name.endswith("_created")
        }

    def value(self, name: str, **labels: str) -> float:
        """One sample, 0 when it is not there."""
        return self.registry.get_sample_value(name, labels) or 0.0


@pytest.fixture
def scrape() -> Scrape:
    """A fresh registry."""
    return Scrape()


def test_there_is_an_example_of_every_event() -> None:
    """A new event type without an example here fails, so that the next test covers it; `Ended`
    tells of requests that `Finished` has counted."""
    assert {type(event) for event in EXAMPLES} == set(get_args(Event)) - {Ended}


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: type(event).__name__)
def test_every_event_shows(scrape: Scrape, event: Event) -> None:
    """Each type of event changes what a scrape shows."""
    before = scrape.samples()
    scrape.metrics(event)
    assert scrape.samples() != before


def test_every_metric_is_fed() -> None:
    """After one event of each type, each documented metric has a sample."""
    scrape = Scrape()
    for event in EXAMPLES:
        scrape.metrics(event)
    shown = {name for name, _ in scrape.samples()}
    stems = {name.removesuffix("_count") for name in shown} | shown
    assert {spec.name for spec in SPECS} <= stems


@given(
    st.lists(
        st.tuples(st.sampled_from(["drive", "host"]), st.sampled_from(Reason), st.integers(0, 9))
    )
)
def test_counters_sum_what_was_reported(facts: list[tuple[str, Reason, int]]) -> None:
    """A counter is the sum of its events, apart for each tier and reason."""
    scrape = Scrape()
    for tier, reason, blocks in facts:
        scrape.metrics(Refused(tier=tier, blocks=blocks, reason=reason))
    for tier in ("drive", "host"):
        for reason in Reason:
            total = sum(n for t, r, n in facts if (t, r) == (tier, reason))
            shown = scrape.value("pagoda_blocks_refused_total", tier=tier, reason=reason.value)
            assert shown == total


@pytest.mark.parametrize(
    ("device", "restored", "prefix"), [(0, 0, "computed"), (16, 0, "device"), (16, 32, "restored")]
)
def test_first_token_times_are_kept_apart_by_prefix(
    scrape: Scrape, device: int, restored: int, prefix: str
) -> None:
    """What a restore gains can be read off: its first tokens are a series of their own."""
    scrape.metrics(finished(cached_device_tokens=device, cached_restored_tokens=restored))
    name = "pagoda_time_to_first_token_seconds"
    assert scrape.value(f"{name}_count", prefix=prefix) == 1
    assert scrape.value(f"{name}_sum", prefix=prefix) == 1.0


def test_a_quarantine_shows_while_it_stands(scrape: Scrape) -> None:
    """The gauge says how many there are now, the counter how often; a copy that could not be read
    has a verdict and no difference."""
    for name in ("a", "b"):
        scrape.metrics(Barred(namespace=name, since_s=1, detail=""))
    scrape.metrics(Unbarred(namespace="a"))
    assert scrape.value("pagoda_namespaces_quarantined") == 1
    assert scrape.value("pagoda_quarantines_total") == 2
    scrape.metrics(Checked(tier="drive", verdict=Verdict.UNREAD, difference=None))
    scrape.metrics(Checked(tier="drive", verdict=Verdict.EQUAL, difference=0.0))
    for verdict in (Verdict.UNREAD, Verdict.EQUAL):
        assert scrape.value("pagoda_blocks_checked_total", tier="drive", verdict=verdict) == 1
    assert scrape.value("pagoda_check_difference_count", tier="drive") == 1


def test_a_fence_shows_while_it_stands(scrape: Scrape) -> None:
    """The gauge says so now, the counter how often; what is unknown of a drive makes no series."""
    for reason in (Reason.UNHEALTHY, Reason.FULL):
        scrape.metrics(Fenced(tier="drive1", reason=reason, detail=""))
    assert scrape.value("pagoda_tier_fenced", tier="drive1") == 1
    scrape.metrics(Unfenced(tier="drive1"))
    assert scrape.value("pagoda_tier_fenced", tier="drive1") == 0
    assert scrape.value("pagoda_tier_fences_total", tier="drive1", reason="full") == 1
    unknown = dict.fromkeys(
        [
            "used_percent",
            "spare_percent",
            "media_errors",
            "free_bytes",
            "budget_bytes",
            "life_years",
        ]
    )
    scrape.metrics(Examined(tier="drive1", written_bytes=9, **unknown))
    names = {name for name, labels in scrape.samples() if ("tier", "drive1") in labels}
    assert {name for name in names if name.startswith("pagoda_drive")} == {
        "pagoda_drive_written_bytes"
    }


def test_time_per_output_token_leaves_the_first_out(scrape: Scrape) -> None:
    """Eleven tokens in 2 s after the first are ten gaps of 0.2 s."""
    scrape.metrics(finished())
    assert scrape.value("pagoda_time_per_output_token_seconds_sum") == pytest.approx(0.2)


def test_a_request_without_a_token_has_no_first_token_time(scrape: Scrape) -> None:
    """A cancelled request counts, but not among the times to first token."""
    scrape.metrics(finished(first_token_s=None, completion_tokens=0, reason="cancelled"))
    names = {name for name, _ in scrape.samples()}
    assert scrape.value("pagoda_requests_total", reason="cancelled") == 1
    assert "pagoda_time_to_first_token_seconds_count" not in names
    assert scrape.value("pagoda_time_per_output_token_seconds_count") == 0


@given(st.lists(st.text(), max_size=20))
def test_reasons_cannot_multiply_series(reasons: list[str]) -> None:
    """Whatever texts come as reasons, there are at most five series of ended requests."""
    scrape = Scrape()
    for reason in reasons:
        scrape.metrics(finished(reason=reason, request_id=reason))
    series = [labels for name, labels in scrape.samples() if name == "pagoda_requests_total"]
    assert len(series) <= 5


def test_names_and_labels_keep_the_rules() -> None:
    """pagoda_*, counters end in _total, times in _seconds, shares that are measured in
    _difference; labels come from a short list."""
    for spec in SPECS:
        kind = spec.type.__name__
        assert spec.name.startswith("pagoda_")
        assert (kind == "Counter") == spec.name.endswith("_total"), spec.name
        assert kind != "Histogram" or spec.name.endswith(("_seconds", "_difference")), spec.name
        known = {"tier", "reason", "verdict", "place", "phase", "prefix", "version"}
        assert set(spec.labels) <= known
        assert list(spec.buckets) == sorted(set(spec.buckets))


def test_engine_statistics_are_read_at_each_scrape(scrape: Scrape) -> None:
    """The gauges follow the engine without anybody copying them."""
    stats = {"running": 1.0, "blocks_drive": 7.0}
    scrape.metrics.watch_engine(lambda: stats)
    assert scrape.value("pagoda_engine_running") == 1
    stats["running"] = 2.0
    assert scrape.value("pagoda_engine_running") == 2
    assert b"pagoda_engine_blocks_drive 7.0" in generate_latest(scrape.registry)


def test_a_closed_engine_leaves_the_scrape_alive(scrape: Scrape) -> None:
    """During a shutdown, counters are still shown."""

    def closed() -> Mapping[str, float]:
        raise EngineClosed("closing")

    scrape.metrics.watch_engine(closed)
    scrape.metrics(Evicted(tier="drive", blocks=3))
    assert b'pagoda_blocks_evicted_total{tier="drive"} 3.0' in generate_latest(scrape.registry)


def test_the_table_lists_every_metric() -> None:
    """The generated table has a row a metric."""
    rows = table().splitlines()[2:]
    assert [row.split("`")[1] for row in rows[:-1]] == [spec.name for spec in SPECS]
