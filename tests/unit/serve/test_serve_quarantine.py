"""Quarantine over HTTP: shown, lifted, and told by /health, which stays well."""

from __future__ import annotations

from dataclasses import asdict

import httpx

from pagoda.core.holdings import SHARED, BarredNamespace

ONE = BarredNamespace(namespace="68b4" * 16, tenant=SHARED, since_s=7, detail="in drive, block 3")


def test_what_is_in_quarantine_is_shown_and_lifted(serving) -> None:
    """By how its name begins; a name that none has is refused, and so is an empty one."""
    serving.engine.cache.barred = [ONE]
    url = serving.url + "/cache/quarantine"
    assert httpx.get(url, timeout=10).json() == {"quarantined": [asdict(ONE)]}
    for name, status in (("77", 404), ("", 400), ("68b4", 200)):
        answer = httpx.post(url + "/lift", json={"namespace": name}, timeout=10)
        assert answer.status_code == status, answer.text
    assert answer.json() == asdict(ONE)
    assert httpx.get(url, timeout=10).json() == {"quarantined": []}


def test_health_tells_of_a_quarantine_and_is_well(serving, monkeypatch) -> None:
    """A balancer keeps a server that computes what it does not believe."""
    monkeypatch.setattr(serving.engine, "stats", lambda: {"namespaces_quarantined": 2.0})
    answer = httpx.get(serving.url + "/health", timeout=10)
    assert answer.status_code == 200
    assert answer.json() == {"status": "ok", "namespaces_quarantined": 2}
