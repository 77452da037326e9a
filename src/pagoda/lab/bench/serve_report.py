"""The report of a load, as plain data for JSON. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

from pagoda.lab.bench.load import LoadSettings
from pagoda.lab.bench.load_run import Run
from pagoda.lab.bench.sample import Sample
from pagoda.lab.bench.stats import Percentiles

SCHEMA = 1


def report(run: Run, settings: LoadSettings) -> dict[str, Any]:
    """What a load showed. Latencies are in seconds and count from the intended moment;
    failed requests are in no percentile, they are counted under `errors`."""
    served = [sample for sample in run.samples if sample.served]
    return {
        "schema": SCHEMA,
        "kind": "pagoda bench serve",
        "load": asdict(settings) | {"loop": _loop(settings), "parallel": settings.parallel},
        "seconds": run.seconds,
        "interrupted": run.interrupted,
        "requests": {
            "planned": settings.requests,
            "served": len(served),
            "failed": len(run.samples) - len(served),
            "unsent": run.unsent,
        },
        "latency_s": _latencies(served),
        "late_s": _shape(sample.late_s for sample in run.samples),
        "throughput": _throughput(served, run.seconds),
        "cache": _cache(served),
        "by_turn": _by_turn(served),
        "errors": _errors(run.samples),
    }


def _loop(settings: LoadSettings) -> str:
    return "closed" if settings.rate_per_s is None else "open"


def _shape(values: Iterable[float]) -> dict[str, float] | None:
    shape = Percentiles.of(values)
    return None if shape is None else asdict(shape)


def _latencies(served: Sequence[Sample]) -> dict[str, dict[str, float] | None]:
    return {
        "first_token": _shape(s.first_s for s in served),
        "first_token_from_send": _shape(s.first_s - s.late_s for s in served),
        "between_tokens": _shape(gap for s in served for gap in s.gaps_s),
        "end_to_end": _shape(s.ended_s - s.intended_s for s in served),
    }


def _throughput(served: Sequence[Sample], seconds: float) -> dict[str, float | str | None]:
    tokens = sum(sample.tokens for sample in served)
    events = sum(len(sample.answer.arrivals_s) for sample in served)
    counted = all(sample.answer.completion_tokens is not None for sample in served)
    return {
        "requests_per_s": len(served) / seconds if seconds else None,
        "output_tokens": tokens,
        "output_tokens_per_s": tokens / seconds if seconds else None,
        # Above 1, the server sends several tokens an event and "between tokens" is between them.
        "tokens_per_event": tokens / events if events else None,
        "counted_by": "server" if counted and served else "events",
    }


def _cache(samples: Sequence[Sample]) -> dict[str, float | None]:
    """Cached share of the prompt tokens, over the answers that report both; None when none
    does (the server was not asked to, or cannot)."""
    both = [
        (sample.answer.prompt_tokens, sample.answer.cached_tokens)
        for sample in samples
        if sample.answer.prompt_tokens is not None and sample.answer.cached_tokens is not None
    ]
    prompt = sum(prompt for prompt, _ in both)
    cached = sum(cached for _, cached in both)
    return {
        "reported_by": len(both),
        "prompt_tokens": prompt if both else None,
        "cached_tokens": cached if both else None,
        "cached_share": cached / prompt if prompt else None,
    }


def _by_turn(served: Sequence[Sample]) -> list[dict[str, Any]]:
    """The growth of a conversation: with a cache, later turns start as soon as early ones."""
    rows = []
    for turn in sorted({sample.turn for sample in served}):
        of_turn = [sample for sample in served if sample.turn == turn]
        first = Percentiles.of(sample.first_s for sample in of_turn)
        rows.append(
            {
                "turn": turn + 1,
                "served": len(of_turn),
                "first_token_p50_s": None if first is None else first.p50,
                "prompt_tokens_mean": _mean(of_turn, lambda s: s.answer.prompt_tokens),
                "cached_share": _cache(of_turn)["cached_share"],
            }
        )
    return rows


def _mean(samples: Sequence[Sample], count: Callable[[Sample], int | None]) -> float | None:
    counts = [value for sample in samples if (value := count(sample)) is not None]
    return sum(counts) / len(counts) if counts else None


def _errors(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    failures = [sample.answer.failure for sample in samples if sample.answer.failure is not None]
    counts = Counter(failure.label for failure in failures)
    examples = {failure.label: failure.message for failure in reversed(failures)}
    return [
        {"kind": label, "count": count, "example": examples[label]}
        for label, count in counts.most_common()
    ]
