"""`pagoda verify` against real servers: one that is right, and one that restores other bytes."""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pagoda.core.holdings import Scope
from pagoda.engine.api import CacheScope
from pagoda.engine.llm import LlmEngine
from pagoda.serve import ServeConfig, Server
from pagoda.serve.compose import open_engine
from pagoda.settings.tree import Settings
from pagoda.store.inspect import DriveInspector
from pagoda.tiers import sealed
from pagoda.verify import Client, Plan, Reason, Report, Verdict, Verification

pytestmark = pytest.mark.engine

WAIT_S = 60.0


@contextmanager
def served(demo_model: Path, drive: Path, *, host: str) -> Iterator[tuple[str, LlmEngine]]:
    """The URL and the engine of a server in this process."""
    settings = Settings.model_validate(
        {
            "model": {"path": str(demo_model)},
            "engine": {"kv_memory": "32MiB"},
            "host": {"capacity": host},
            "drive": {"path": str(drive), "capacity": "64MiB", "free_floor": "1MiB"},
            "store": {"restore_deadline": "1m"},  # a busy machine makes no block late
        }
    )
    engine = open_engine(settings)
    ready: queue.Queue[str] = queue.Queue()
    server = Server(engine, ServeConfig(port=0, grace_s=1.0), on_ready=ready.put)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield ready.get(timeout=WAIT_S), engine
    finally:
        server.stop()
        thread.join(WAIT_S)


def verify(url: str) -> Report:
    """One run of one prompt: three blocks and a token."""
    client = Client(url, api_key="", timeout_s=WAIT_S)
    try:
        return Verification(client, Plan(lengths=(49,)), rng=random.Random(5)).run()
    finally:
        client.close()


def test_pagoda_restores_what_it_computed(demo_model: Path, tmp_path: Path) -> None:
    """Alone and among others, exactly: its repeats do not differ, and neither does a restore."""
    with served(demo_model, tmp_path, host="32MiB") as (url, engine):
        report = verify(url)
        assert engine.cache.holdings(Scope()) == []  # its tenants are cleared behind it
    assert report.verdict is Verdict.EQUAL, report.as_text()
    assert [finding.verdict for finding in report.findings] == [Verdict.EQUAL] * 2
    assert {finding.floor for finding in report.findings} == {0.0}
    assert {finding.difference for finding in report.findings} == {0.0}
    assert report.restored_tokens() == 2 * 32
    assert report.pushed_out == ("/cache/reset",)


def test_other_bytes_below_a_seal_that_is_not_checked_differ(
    demo_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin of the test above: each reset overwrites what the drive holds, and the check
    that would refuse it is off. A verdict of equal would prove nothing otherwise."""
    constant = type("Any", (bytes,), {"__ne__": lambda self, other: False})(bytes(16))
    monkeypatch.setattr(sealed, "digest", lambda payload: constant)
    monkeypatch.setattr(sealed, "digests", lambda payloads: [constant] * len(payloads))
    with served(demo_model, tmp_path, host="0B") as (url, engine):
        monkeypatch.setattr(engine, "reset_cache", overwriting(engine, tmp_path))
        report = verify(url)
    assert (report.verdict, report.reason) == (Verdict.DIFFERS, Reason.RESTORED), report.as_text()
    assert report.worst() > 0.01
    assert report.restored_tokens() > 0


def overwriting(engine: LlmEngine, drive: Path) -> Callable[[CacheScope], int]:
    """A reset that first zeroes the second half of every payload, once they are written."""
    reset = engine.reset_cache

    def damage(scope: CacheScope) -> int:
        before, now = -1, 0
        while before != now:  # nothing more is being stored
            before, now = now, blocks_in(drive)
            time.sleep(0.5)
        inspector = DriveInspector(drive)
        entries, _ = inspector.entries()
        with inspector.path.open("r+b") as file:
            for entry in entries:
                half = entry.seal.stored_bytes // 2
                file.seek(entry.offset + half)
                file.write(bytes(half))
        return reset(scope)

    return damage


def blocks_in(drive: Path) -> int:
    """Blocks whose headers are on the drive."""
    return len(DriveInspector(drive).entries()[0])
