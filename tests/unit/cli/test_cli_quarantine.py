"""`pagoda cache quarantine` against a server over a fake engine, and offline over a real drive."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagoda.core.holdings import SHARED, BarredNamespace
from pagoda.core.identity import NamespaceId
from pagoda.serve import ServeConfig, Server
from pagoda.store.quarantine import Entry, Quarantine
from pagoda.testing.engine import FakeEngine
from pagoda.tiers.drive import DriveConfig, DriveTier

NAME = "68b4" * 16


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a server with one namespace in quarantine."""
    monkeypatch.setenv("PAGODA_API_KEY", "k")
    engine, ready = FakeEngine(), queue.Queue()
    engine.cache.barred = [
        BarredNamespace(namespace=NAME, tenant=SHARED, since_s=7, detail="block 3 [of] drive")
    ]
    server = Server(engine, ServeConfig(port=0, api_key="k", grace_s=1.0), on_ready=ready.put)
    thread = threading.Thread(target=server.run)
    thread.start()
    yield ready.get(timeout=10)
    server.stop()
    thread.join(10)


def test_it_shows_and_lifts(pagoda, remote: str) -> None:
    """Which, whose, since when and why; lifted, nothing is left."""
    command = ("cache", "quarantine", "--url", remote)
    shown = pagoda(*command)
    assert shown.status == 0
    assert NAME in shown.out.replace("\n", "")
    assert "block 3 [of] drive" in " ".join(shown.out.split())
    assert json.loads(pagoda(*command, "--json").out)["quarantined"][0]["namespace"] == NAME
    assert pagoda(*command, "--lift", "ffff").status == 2
    assert "out of quarantine" in " ".join(pagoda(*command, "--lift", "68b4").out.split())
    assert "nothing is in quarantine" in pagoda(*command).out


@pytest.mark.parametrize("below", ["", "blocks-of-4096"])
def test_offline_it_needs_the_directory_for_itself(pagoda, tmp_path: Path, below: str) -> None:
    """Looking needs no lock; lifting is refused while an engine has the drive, whose file would
    be written over. So it is from the directory above, which `drive.path` names."""
    config = DriveConfig(
        directory=tmp_path / below,
        capacity_bytes=8 << 20,
        slot_bytes=4096,
        free_floor_bytes=1,
        direct="off",
    )
    tier = DriveTier(config)
    kept = Quarantine([tmp_path / below])
    kept.add(NamespaceId(bytes.fromhex(NAME)), Entry(7, "because"))
    kept.close()
    command = ("cache", "quarantine", "--offline", str(tmp_path))
    assert "because" in pagoda(*command).out
    refused = pagoda(*command, "--lift", "68b4")
    assert refused.status == 2
    assert "because" in pagoda(*command).out
    tier.close()
    assert pagoda(*command, "--lift", "68b4").status == 0
    assert "nothing is in quarantine" in pagoda(*command).out
    assert pagoda("cache", "quarantine", "--offline", str(tmp_path / "none")).status == 2
