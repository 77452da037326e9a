"""A server's own count of prompt tokens that it did not compute, read from its /metrics."""

from __future__ import annotations

import math
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from pagoda.core.errors import ServerError
from pagoda.verify.client import Client

# vLLM's tiers: emptying its connector empties host memory, and no tier below it.
_TIERS = "vllm:kv_offload_tiering_"
# The labels that mean the device; a metric without labels counts one place only.
_RESTORED = {
    "pagoda_cached_tokens_total": ("place", {"device"}),
    "vllm:external_prefix_cache_hits_total": ("", set()),
    "sglang:cached_tokens_total": ("cache_source", {"device", "gpu", "total"}),
}


@dataclass(frozen=True, slots=True)
class Counters:
    """Tokens restored from below the device since the server started, and the metric's name."""

    restored: float
    name: str


def read_counters(client: Client) -> Counters | None:
    """What the server counts; None when it has no metrics that tell."""
    try:
        reply = client.call("GET", "/metrics")
        text = reply.body.decode() if reply.ok else ""
        return parse_counters(text)
    except (ServerError, ValueError):
        return None


def tells_of_tiers(client: Client) -> bool:
    """Whether vLLM's metrics show that tiers lie below its host memory."""
    try:
        reply = client.call("GET", "/metrics")
    except ServerError:
        return False
    return reply.ok and _TIERS.encode() in reply.body


def parse_counters(text: str) -> Counters | None:
    """The counters in a text of Prometheus' format. Raises ValueError for what is none."""
    name = ""
    restored = 0.0
    for sample in _samples(text):
        label, device = _RESTORED.get(sample.name, (None, set()))
        if label is None or (label and label not in sample.labels):
            continue
        name = sample.name
        if not label or sample.labels[label] not in device:
            restored += sample.value
    if not math.isfinite(restored):
        raise ValueError("a count that is no number")
    return Counters(restored, name) if name else None


def _samples(text: str) -> list[Sample]:
    """All of them; the parser has more errors for what is no metrics than it tells."""
    try:
        return [one for family in text_string_to_metric_families(text) for one in family.samples]
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError("no metrics") from error
