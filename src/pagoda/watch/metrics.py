"""Events as Prometheus metrics, and the engine's statistics as gauges read at each scrape.

`Metrics` is an observer (core.events): the front door that owns the registry attaches it to
every layer. Labels are a tier, a reason or a phase, so a series is never made a request, a
prompt or a tenant. Names are `pagoda_*` in seconds and bytes; docs/reference/metrics.md is
generated from SPECS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import assert_never

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from pagoda._version import __version__
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
    PinsEnded,
    Preempted,
    Quarantined,
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

# From a block in host memory (100 µs) to a long prompt on a slow machine (minutes).
_IO_BUCKETS_S = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30)
_DIFFERENCE_BUCKETS = (0.0, 1e-6, 1e-4, 0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1)
_STEP_BUCKETS_S = (0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
_WAIT_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_OUTPUT_BUCKETS_S = (0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.2, 0.5, 1)
_FINISH_REASONS = frozenset({"stop", "length", "cancelled", "error"})


@dataclass(frozen=True, slots=True)
class Spec:
    """One metric: name as scraped, type, help, labels and, for a histogram, upper bounds."""

    name: str
    type: type[Counter] | type[Gauge] | type[Histogram]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    def register(self, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
        """The live metric."""
        if self.type is Histogram:
            return Histogram(
                self.name, self.help, self.labels, buckets=self.buckets, registry=registry
            )
        return self.type(self.name, self.help, self.labels, registry=registry)


SPECS: tuple[Spec, ...] = (
    Spec("pagoda_build_info", Gauge, "Always 1; the label tells the version.", ("version",)),
    Spec(
        "pagoda_blocks_looked_up_total",
        Counter,
        "Full prompt blocks by where they were found at scheduling: device, lower or absent.",
        ("place",),
    ),
    Spec("pagoda_blocks_restored_total", Counter, "Blocks read, verified and used.", ("tier",)),
    Spec("pagoda_restored_bytes_total", Counter, "Payload of the restored blocks.", ("tier",)),
    Spec("pagoda_restore_seconds", Histogram, "Time of one restore.", ("tier",), _IO_BUCKETS_S),
    Spec(
        "pagoda_blocks_refused_total",
        Counter,
        "Blocks a tier held that were not used, and computed instead.",
        ("tier", "reason"),
    ),
    Spec("pagoda_blocks_stored_total", Counter, "Blocks written, sealed and published.", ("tier",)),
    Spec("pagoda_stored_bytes_total", Counter, "Payload of the stored blocks.", ("tier",)),
    Spec("pagoda_store_seconds", Histogram, "Time of one store.", ("tier",), _IO_BUCKETS_S),
    Spec(
        "pagoda_blocks_skipped_total", Counter, "Blocks that were not stored.", ("tier", "reason")
    ),
    Spec(
        "pagoda_blocks_declined_total",
        Counter,
        "Blocks that were not worth a write to a drive, each time they were offered.",
        ("tier",),
    ),
    Spec("pagoda_declined_bytes_total", Counter, "Payload of the declined blocks.", ("tier",)),
    Spec("pagoda_blocks_evicted_total", Counter, "Blocks dropped to make room.", ("tier",)),
    Spec(
        "pagoda_pinned_blocks_evicted_total",
        Counter,
        "Pinned blocks dropped to make room, for nothing else could go.",
        ("tier",),
    ),
    Spec("pagoda_pins_begun_total", Counter, "Prefixes pinned, or pinned again for longer."),
    Spec(
        "pagoda_pins_ended_total",
        Counter,
        "Pins that ended: expired, removed, cleared or lapsed.",
        ("reason",),
    ),
    Spec("pagoda_pins_denied_total", Counter, "Pins that exceeded a budget.", ("tier",)),
    Spec(
        "pagoda_slots_quarantined_total",
        Counter,
        "Slots taken out of service after a bad block.",
        ("tier", "reason"),
    ),
    Spec(
        "pagoda_tier_degradations_total",
        Counter,
        "Times a tier stopped taking writes, or stopped altogether.",
        ("tier", "reason"),
    ),
    Spec("pagoda_tier_fenced", Gauge, "1 while a tier takes no writes.", ("tier",)),
    Spec("pagoda_tier_fences_total", Counter, "Times a tier was fenced off.", ("tier", "reason")),
    Spec("pagoda_drive_used_percent", Gauge, "Life used up, as the drive says.", ("tier",)),
    Spec("pagoda_drive_spare_percent", Gauge, "Spare left, as the drive says.", ("tier",)),
    Spec("pagoda_drive_media_errors", Gauge, "Errors of the medium in its life.", ("tier",)),
    Spec("pagoda_drive_free_bytes", Gauge, "Space free on its file system.", ("tier",)),
    Spec("pagoda_drive_budget_bytes", Gauge, "What may be written to it now.", ("tier",)),
    Spec("pagoda_drive_written_bytes", Gauge, "Written to it by Pagoda in all.", ("tier",)),
    Spec(
        "pagoda_drive_life_years",
        Gauge,
        "Until its total_writes, or writes_per_day over five years, are used up at the pace since "
        "the start; after an hour.",
        ("tier",),
    ),
    Spec("pagoda_blocks_rebuilt_total", Counter, "Blocks found again after a restart.", ("tier",)),
    Spec(
        "pagoda_blocks_rebuild_dropped_total",
        Counter,
        "Blocks that a rebuild could not keep.",
        ("tier",),
    ),
    Spec("pagoda_blocks_scrubbed_total", Counter, "Cold blocks read and verified.", ("tier",)),
    Spec("pagoda_scrubbed_bytes_total", Counter, "Bytes that scrubbing read.", ("tier",)),
    Spec(
        "pagoda_scrub_bad_blocks_total",
        Counter,
        "Blocks that scrubbing found bad and took out of service.",
        ("tier",),
    ),
    Spec("pagoda_scrub_passes_total", Counter, "Times a whole tier was verified.", ("tier",)),
    Spec("pagoda_scrub_pass_seconds", Gauge, "Time of the last whole pass.", ("tier",)),
    Spec(
        "pagoda_blocks_checked_total",
        Counter,
        "Stored blocks held against the same blocks, computed again: equal, close (within what the "
        "engine differs by from itself), wrong, or unread (the copy could not be read back).",
        ("tier", "verdict"),
    ),
    Spec(
        "pagoda_check_difference",
        Histogram,
        "How far a checked block was from the computed one, relative, by its worst part.",
        ("tier",),
        _DIFFERENCE_BUCKETS,
    ),
    Spec(
        "pagoda_namespaces_quarantined",
        Gauge,
        "Namespaces of which nothing is handed out or stored: a block was wrong.",
    ),
    Spec("pagoda_quarantines_total", Counter, "Times a namespace was found in or put there."),
    Spec("pagoda_rebuild_seconds", Gauge, "Time of the last rebuild.", ("tier",)),
    Spec("pagoda_step_seconds", Histogram, "Time of one engine step.", (), _STEP_BUCKETS_S),
    Spec(
        "pagoda_tokens_computed_total",
        Counter,
        "Tokens computed in steps: prefill or decode.",
        ("phase",),
    ),
    Spec("pagoda_preemptions_total", Counter, "Times a running request gave its blocks back."),
    Spec("pagoda_blocks_preempted_total", Counter, "Device blocks given back that way."),
    Spec(
        "pagoda_requests_total",
        Counter,
        "Ended requests: stop, length, cancelled, error or other.",
        ("reason",),
    ),
    Spec("pagoda_prompt_tokens_total", Counter, "Prompt tokens of ended requests."),
    Spec("pagoda_completion_tokens_total", Counter, "Answer tokens of ended requests."),
    Spec(
        "pagoda_cached_tokens_total",
        Counter,
        "Prompt tokens not computed: found on the device, or restored from lower tiers.",
        ("place",),
    ),
    Spec("pagoda_queue_seconds", Histogram, "Wait for the first schedule.", (), _WAIT_BUCKETS_S),
    Spec(
        "pagoda_time_to_first_token_seconds",
        Histogram,
        "From arrival to the first token, by where the prefix came from: restored (some of it "
        "from lower tiers), device (the cached part lay there) or computed (all of it).",
        ("prefix",),
        _WAIT_BUCKETS_S,
    ),
    Spec(
        "pagoda_time_per_output_token_seconds",
        Histogram,
        "Mean time between the tokens of an answer.",
        (),
        _OUTPUT_BUCKETS_S,
    ),
    Spec("pagoda_request_seconds", Histogram, "From arrival to the end.", (), _WAIT_BUCKETS_S),
)
ENGINE_PREFIX = "pagoda_engine_"


class Metrics:
    """An observer that counts every event in `registry`.

    prometheus_client locks each metric, so any thread may report. One per registry:
    a second raises ValueError for the duplicate names.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._live = {spec.name: spec.register(registry) for spec in SPECS}
        self._gauge("pagoda_build_info", __version__).set(1)

    def __call__(self, event: Event) -> None:
        """Count one event."""
        match event:
            case Restored() | Stored():
                self._moved(event)
            case Refused() | Skipped():
                verb = "refused" if isinstance(event, Refused) else "skipped"
                self._add(f"pagoda_blocks_{verb}_total", event.blocks, event.tier, event.reason)
            case Declined() | Evicted() | Overruled() | PinBegan() | PinsEnded() | PinDenied():
                self._keeping(event)
            case Quarantined() | Degraded() | Fenced() | Unfenced():
                self._standing(event)
            case Examined() | Rebuilt() | Scrubbed() | ScrubPassed():
                self._upkeep(event)
            case Checked() | Barred() | Unbarred():
                self._belief(event)
            case Looked():
                self._looked(event)
            case Stepped():
                self._stepped(event)
            case Preempted(blocks=blocks):
                self._add("pagoda_preemptions_total", 1)
                self._add("pagoda_blocks_preempted_total", blocks)
            case Finished():
                self._finished(event)
            case Ended():
                pass  # the same requests, for recordings
            case _:
                assert_never(event)

    def watch_engine(self, stats: Callable[[], Mapping[str, float]]) -> None:
        """Show each entry of `stats()` as a gauge `pagoda_engine_<entry>`, read at a scrape."""
        self._registry.register(_EngineGauges(stats))

    def _moved(self, event: Restored | Stored) -> None:
        verb, noun = ("restored", "restore") if isinstance(event, Restored) else ("stored", "store")
        self._add(f"pagoda_blocks_{verb}_total", event.blocks, event.tier)
        self._add(f"pagoda_{verb}_bytes_total", event.size_bytes, event.tier)
        self._observe(f"pagoda_{noun}_seconds", event.seconds, event.tier)

    def _keeping(
        self, event: Declined | Evicted | Overruled | PinBegan | PinsEnded | PinDenied
    ) -> None:
        match event:
            case Declined(tier=tier, blocks=blocks, size_bytes=size_bytes):
                self._add("pagoda_blocks_declined_total", blocks, tier)
                self._add("pagoda_declined_bytes_total", size_bytes, tier)
            case Evicted(tier=tier, blocks=blocks):
                self._add("pagoda_blocks_evicted_total", blocks, tier)
            case Overruled(tier=tier, blocks=blocks):
                self._add("pagoda_pinned_blocks_evicted_total", blocks, tier)
            case PinBegan():
                self._add("pagoda_pins_begun_total", 1)
            case PinsEnded(pins=pins, reason=reason):
                self._add("pagoda_pins_ended_total", pins, reason)
            case PinDenied(tier=tier):
                self._add("pagoda_pins_denied_total", 1, tier)

    def _standing(self, event: Quarantined | Degraded | Fenced | Unfenced) -> None:
        match event:
            case Quarantined(tier=tier, slots=slots, reason=reason):
                self._add("pagoda_slots_quarantined_total", slots, tier, reason)
            case Degraded(tier=tier, reason=reason):
                self._add("pagoda_tier_degradations_total", 1, tier, reason)
            case Fenced(tier=tier, reason=reason):
                self._gauge("pagoda_tier_fenced", tier).set(1)
                self._add("pagoda_tier_fences_total", 1, tier, reason)
            case Unfenced(tier=tier):
                self._gauge("pagoda_tier_fenced", tier).set(0)

    def _upkeep(self, event: Examined | Rebuilt | Scrubbed | ScrubPassed) -> None:
        match event:
            case Examined():
                self._examined(event)
            case Rebuilt():
                self._rebuilt(event)
            case Scrubbed():
                self._scrubbed(event)
            case ScrubPassed(tier=tier, seconds=seconds):
                self._add("pagoda_scrub_passes_total", 1, tier)
                self._gauge("pagoda_scrub_pass_seconds", tier).set(seconds)

    def _belief(self, event: Checked | Barred | Unbarred) -> None:
        match event:
            case Checked(tier=tier, verdict=verdict, difference=difference):
                self._add("pagoda_blocks_checked_total", 1, tier, verdict)
                if difference is not None:
                    self._observe("pagoda_check_difference", difference, tier)
            case Barred():
                self._gauge("pagoda_namespaces_quarantined").inc()
                self._add("pagoda_quarantines_total", 1)
            case Unbarred():
                self._gauge("pagoda_namespaces_quarantined").dec()

    def _examined(self, event: Examined) -> None:
        known = {
            "pagoda_drive_used_percent": event.used_percent,
            "pagoda_drive_spare_percent": event.spare_percent,
            "pagoda_drive_media_errors": event.media_errors,
            "pagoda_drive_free_bytes": event.free_bytes,
            "pagoda_drive_budget_bytes": event.budget_bytes,
            "pagoda_drive_written_bytes": event.written_bytes,
            "pagoda_drive_life_years": event.life_years,
        }
        for name, value in known.items():
            if value is not None:
                self._gauge(name, event.tier).set(value)

    def _rebuilt(self, event: Rebuilt) -> None:
        self._add("pagoda_blocks_rebuilt_total", event.blocks, event.tier)
        self._add("pagoda_blocks_rebuild_dropped_total", event.dropped, event.tier)
        self._gauge("pagoda_rebuild_seconds", event.tier).set(event.seconds)

    def _scrubbed(self, event: Scrubbed) -> None:
        self._add("pagoda_blocks_scrubbed_total", event.blocks, event.tier)
        self._add("pagoda_scrubbed_bytes_total", event.size_bytes, event.tier)
        self._add("pagoda_scrub_bad_blocks_total", event.bad, event.tier)

    def _looked(self, event: Looked) -> None:
        places = {"device": event.device, "lower": event.lower, "absent": event.absent}
        for place, blocks in places.items():
            self._add("pagoda_blocks_looked_up_total", blocks, place)

    def _stepped(self, event: Stepped) -> None:
        self._observe("pagoda_step_seconds", event.seconds)
        self._add("pagoda_tokens_computed_total", event.prefill_tokens, "prefill")
        self._add("pagoda_tokens_computed_total", event.decode_tokens, "decode")

    def _finished(self, event: Finished) -> None:
        # A reason is free text in the event; an unforeseen one must not make a new series.
        reason = event.reason if event.reason in _FINISH_REASONS else "other"
        self._add("pagoda_requests_total", 1, reason)
        self._add("pagoda_prompt_tokens_total", event.prompt_tokens)
        self._add("pagoda_completion_tokens_total", event.completion_tokens)
        self._add("pagoda_cached_tokens_total", event.cached_device_tokens, "device")
        self._add("pagoda_cached_tokens_total", event.cached_restored_tokens, "restored")
        self._observe("pagoda_queue_seconds", event.queued_s)
        self._observe("pagoda_request_seconds", event.total_s)
        if event.first_token_s is not None:
            self._answered(event, event.first_token_s)

    def _answered(self, event: Finished, first_token_s: float) -> None:
        prefix = "computed"
        if event.cached_restored_tokens:
            prefix = "restored"
        elif event.cached_device_tokens:
            prefix = "device"
        self._observe("pagoda_time_to_first_token_seconds", first_token_s, prefix)
        if event.completion_tokens > 1:
            gap_s = (event.total_s - first_token_s) / (event.completion_tokens - 1)
            self._observe("pagoda_time_per_output_token_seconds", gap_s)

    def _add(self, name: str, count: float, *labels: str) -> None:
        metric = self._live[name]
        assert isinstance(metric, Counter), f"{name} is not a counter"
        (metric.labels(*labels) if labels else metric).inc(count)

    def _observe(self, name: str, seconds: float, *labels: str) -> None:
        metric = self._live[name]
        assert isinstance(metric, Histogram), f"{name} is not a histogram"
        (metric.labels(*labels) if labels else metric).observe(seconds)

    def _gauge(self, name: str, *labels: str) -> Gauge:
        metric = self._live[name]
        assert isinstance(metric, Gauge), f"{name} is not a gauge"
        return metric.labels(*labels) if labels else metric


class _EngineGauges:
    """A collector that asks the engine for its statistics at each scrape."""

    def __init__(self, stats: Callable[[], Mapping[str, float]]) -> None:
        self._stats = stats

    def describe(self) -> list[Metric]:
        """Nothing: so that registering does not call an engine that may not run yet."""
        return []

    def collect(self) -> Iterator[Metric]:
        """A gauge an entry; none once the engine is closed, so that scrapes go on."""
        try:
            stats = self._stats()
        except EngineClosed:
            return
        for name, value in sorted(stats.items()):
            yield GaugeMetricFamily(ENGINE_PREFIX + name, f"Engine statistic {name}.", value)


def table() -> str:
    """The metrics as a Markdown table, for docs/reference/metrics.md."""
    lines = ["| name | type | labels | meaning |", "|---|---|---|---|"]
    for spec in SPECS:
        labels = ", ".join(f"`{label}`" for label in spec.labels)
        kind = spec.type.__name__.lower()
        lines.append(f"| `{spec.name}` | {kind} | {labels} | {spec.help} |")
    lines.append(
        f"| `{ENGINE_PREFIX}<entry>` | gauge | | Each entry of the engine's statistics: running "
        "and waiting requests, blocks in each tier, and so on. |"
    )
    return "\n".join(lines) + "\n"
