"""The public excerpts: the right cause first, no false alarm, the same under any disguise."""

from __future__ import annotations

import pytest
from doctor_logs import DISGUISES, examine, kind, shared

LOGS = shared()
needs_logs = pytest.mark.skipif(
    not LOGS,
    reason="public logs: not beside the checkout, nor in PAGODA_SHARED",
)


@needs_logs
def test_the_right_cause_comes_first() -> None:
    """At most two excerpts are missed, and a missed one is called insufficient, not misnamed."""
    missed = {log.name: kind(examine(log.text)) for log in LOGS}
    missed = {log.name: missed[log.name] for log in LOGS if missed[log.name] != log.wanted}
    assert len(LOGS) - len(missed) >= 45
    assert set(missed.values()) <= {"insufficient"}


@needs_logs
def test_healthy_logs_raise_no_alarm() -> None:
    """Healthy and merely noisy logs are called healthy."""
    healthy = [log for log in LOGS if log.wanted == "healthy"]
    assert healthy
    assert [log.name for log in healthy if examine(log.text).verdict != "healthy"] == []


@needs_logs
@pytest.mark.parametrize("disguise", DISGUISES)
def test_the_verdict_stays_under_a_disguise(disguise: str) -> None:
    """The same cause leads whatever times, ranks, order and prefixes are."""
    changed = []
    for log in LOGS:
        plain, disguised = examine(log.text), examine(DISGUISES[disguise](log.text))
        if kind(plain) != kind(disguised) or plain.verdict != disguised.verdict:
            changed.append((log.name, kind(plain), kind(disguised)))
    assert not changed
