"""A process that is killed while it writes: what it had committed is back, and nothing wrong.

The child stores prefix after prefix and says each one once it is committed; it is killed
with SIGKILL at a random moment. Another clears everything and is killed once it has said so.
Not covered: power cuts (the page cache survives here).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_harness import SIZE, dirty, keys_of, truth

from pagoda.core.holdings import Cleared, Selection
from pagoda.core.identity import Key
from pagoda.core.outcome import Hit
from pagoda.store.clearing import Clearing
from pagoda.store.executor import Runtime, ThreadExecutor
from pagoda.store.inspect import DriveInspector
from pagoda.store.open import StorePlan, open_store
from pagoda.store.store import Store, StoreConfig
from pagoda.store.writer import Block
from pagoda.tiers.drive import DriveConfig

CHAIN = 12
CHAINS = 250  # 3,000 blocks in 2,000 slots

PROGRAM = """
import sys
from pathlib import Path
from test_kill import CHAIN, open_drive, save
from store_harness import keys_of
store = open_drive(Path(sys.argv[1]))
print("open", flush=True)
for salt in range(int(sys.argv[2]), 100_000):
    save(store, keys_of(CHAIN, salt=salt))
    assert store.flush(30)
    print(salt, flush=True)
"""

CLEARING = """
import sys
from pathlib import Path
from store_harness import keys_of
from test_kill import CHAIN, CHAINS, clear_everything, open_drive, save
store = open_drive(Path(sys.argv[1]))
for salt in range(CHAINS):
    save(store, keys_of(CHAIN, salt=salt))
assert store.flush(60)
level = store.levels()[0]
level.residency.retire(level.state.published_slots()[:500])  # as after late reads
for salt in range(CHAINS, CHAINS + 20):
    save(store, keys_of(CHAIN, salt=salt))
print(clear_everything(store).verified, flush=True)
sys.stdin.read()
"""


def open_drive(directory: Path) -> Store:
    """A store over one small drive: 2,000 slots, so that old blocks are evicted meanwhile."""
    return open_store(
        StorePlan(
            block_bytes=SIZE,
            host_bytes=0,
            drives=(
                DriveConfig(
                    directory=directory,
                    capacity_bytes=13 << 20,
                    slot_bytes=SIZE,
                    free_floor_bytes=0,
                ),
            ),
            config=StoreConfig(restore_deadline_s=30.0),  # nothing is late where it may not be lost
        ),
        Runtime(executor=ThreadExecutor(load_threads=2, store_threads=1)),
    )


def save(store: Store, keys: list) -> None:
    """Queue a chain with its true bytes."""
    store.save(
        [
            Block(
                namespace=bytes(32),
                key=key,
                parent=keys[i - 1] if i else bytes(32),
                depth=i,
                tokens=16,
                payload=truth(key),
            )
            for i, key in enumerate(keys)
        ],
        lambda block: None,
    )


def restore(store: Store, keys: list) -> int:
    """How many leading blocks come back; each must have its true bytes."""
    buffers = [dirty() for _ in keys]
    ticket = store.restore(keys, buffers)
    until_s = time.monotonic() + 40
    while not ticket.done and time.monotonic() < until_s:
        store.poll()
        time.sleep(0.001)
    for key, buffer, outcome in zip(keys, buffers, ticket.outcomes, strict=True):
        assert not isinstance(outcome, Hit) or buffer == truth(key), "a wrong byte was served"
    return ticket.usable_blocks


class NoDevice:
    """An engine without blocks of its own."""

    def links(self) -> Iterator[tuple[Key, Key]]:
        return iter(())

    def drop(self, selection: Selection, keys: frozenset[Key] | None) -> int:
        return 0


def clear_everything(store: Store) -> Cleared:
    """As an engine's thread does."""
    told: list[Cleared] = []
    clearing = Clearing(store, Selection(), NoDevice(), runtime=store.runtime, tell=told.append)
    clearing.start()
    while not told:
        store.runtime.executor.wait(0.05)
        store.poll()
        clearing.poll()
    return told[0]


def run_and_kill(directory: Path, first_salt: int, delay_s: float, *, least: int) -> list[int]:
    """Let the child write for a while once it has committed `least`, kill it, and return what it
    said was committed."""
    path = ":".join([str(Path(__file__).parent), *sys.path])
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(directory), str(first_salt)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "open\n"
    said = [child.stdout.readline() for _ in range(least)]
    time.sleep(delay_s)
    child.send_signal(signal.SIGKILL)
    with child:  # not `communicate`, which loses what was read with an earlier line
        said += child.stdout.readlines()
    return [int(line) for line in said if line.endswith("\n")]


@pytest.mark.parametrize("seed", range(4))
def test_what_was_committed_survives_a_kill(tmp_path: Path, seed: int) -> None:
    """Three kills in a row over one drive: every committed prefix that was not evicted since is
    back, byte for byte; what was in flight is back whole or not at all; counts add up."""
    rng = random.Random(seed)
    first = 0
    for kill in range(3):
        least = int(kill == 0)  # the others may come before anything is committed
        committed = run_and_kill(tmp_path, first, rng.uniform(0.02, 0.4), least=least)
        store = open_drive(tmp_path)
        try:
            recent = committed[-100:]  # 1,200 of 2,000 slots: not evicted yet
            for salt in recent:
                assert restore(store, keys_of(CHAIN, salt=salt)) == CHAIN, f"lost {salt}"
            in_flight = committed[-1] + 1 if committed else first
            restore(store, keys_of(CHAIN, salt=in_flight))
            assert store.levels()[0].state.published_count() <= store.levels()[0].state.slots
            store.check_invariants()
        finally:
            store.close(flush_s=10)
        report = DriveInspector(tmp_path).report(verify=True, progress=lambda done, total: None)
        assert report.corrupt == []
        assert report.damaged_headers == []
        first = in_flight + 1
    assert first > 3, "the children must have committed something"


def test_what_was_cleared_does_not_come_back_after_a_kill(tmp_path: Path) -> None:
    """Evicted, out of service, published, queued or being written: a restart finds none of it,
    and the medium holds no header."""
    path = ":".join([str(Path(__file__).parent), *sys.path])
    child = subprocess.Popen(
        [sys.executable, "-c", CLEARING, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "True\n"
    child.kill()
    child.communicate()
    store = open_drive(tmp_path)
    found = {salt for salt in range(CHAINS + 20) if store.match(keys_of(CHAIN, salt=salt))}
    counts = store.counts()
    store.close(flush_s=10)
    assert (found, counts) == (set(), {"drive": 0})
    assert DriveInspector(tmp_path).entries() == ([], [])


def test_a_flipped_byte_is_found_by_inspection(tmp_path: Path) -> None:
    """Verifying a drive names exactly the slot whose payload was changed."""
    store = open_drive(tmp_path)
    save(store, keys_of(CHAIN))
    store.close(flush_s=10)
    inspector = DriveInspector(tmp_path)
    entries, _ = inspector.entries()
    assert len(entries) == CHAIN
    with inspector.path.open("r+b") as file:
        file.seek(entries[5].offset + 1000)
        byte = file.read(1)[0]
        file.seek(entries[5].offset + 1000)
        file.write(bytes([byte ^ 1]))
    report = inspector.report(verify=True, progress=lambda done, total: None)
    assert report.corrupt == [entries[5].slot]
    assert report.blocks == report.verified == CHAIN


def test_a_zeroed_slab_serves_nothing(tmp_path: Path) -> None:
    """Headers that survived over zeroed payloads lead to no hit, and every block leaves service."""
    store = open_drive(tmp_path)
    keys = keys_of(CHAIN)
    save(store, keys)
    store.close(flush_s=10)
    entries, _ = DriveInspector(tmp_path).entries()
    with (tmp_path / "slab.pagoda").open("r+b") as file:
        for entry in entries:
            file.seek(entry.offset)
            file.write(bytes(SIZE))
    store = open_drive(tmp_path)
    assert store.match(keys) == CHAIN
    assert restore(store, keys) == 0
    assert store.match(keys) == 0
    store.check_invariants()
    store.close(flush_s=10)
    assert DriveInspector(tmp_path).entries() == ([], [])
