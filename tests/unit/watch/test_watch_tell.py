"""What a person reads in the log of what happens to tiers."""

from __future__ import annotations

import logging

import pytest

from pagoda.core.events import (
    Barred,
    Degraded,
    Event,
    Evicted,
    Fenced,
    Reason,
    Unbarred,
    Unfenced,
)
from pagoda.watch.tell import telling


def test_trouble_is_told_and_every_event_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """A fence or a quarantine is an error, a pause a warning, its end is news; evictions are for
    metrics."""
    seen: list[Event] = []
    events: list[Event] = [
        Fenced(tier="drive1", reason=Reason.UNHEALTHY, detail="2 % spare is left"),
        Degraded(tier="drive0", reason=Reason.FULL, detail="no space"),
        Unfenced(tier="drive1"),
        Evicted(tier="drive0", blocks=3),
        Barred(namespace="68b4" * 16, since_s=7, detail="a block is not what is computed"),
        Unbarred(namespace="68b4" * 16),
    ]
    with caplog.at_level(logging.INFO, logger="pagoda.store"):
        for event in events:
            telling(seen.append)(event)
    assert seen == events
    assert [record.levelname for record in caplog.records] == [
        "ERROR",
        "WARNING",
        "INFO",
        "ERROR",
        "INFO",
    ]
    assert "drive1" in caplog.text
    assert "2 % spare is left" in caplog.text
    assert "namespace 68b468b468b468b4 is in quarantine" in caplog.text
    assert "a block is not what is computed" in caplog.text
