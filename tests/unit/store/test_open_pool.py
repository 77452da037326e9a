"""A pool of real drives, opened by real threads, closed and opened again."""

from __future__ import annotations

from pathlib import Path

from store_harness import NAMESPACE, keys_of

from pagoda.core.identity import ROOT
from pagoda.core.outcome import Hit
from pagoda.machine.buffers import aligned_buffer
from pagoda.store.block import Block
from pagoda.store.executor import Runtime, ThreadExecutor
from pagoda.store.open import StorePlan, open_store
from pagoda.store.store import Store, StoreConfig
from pagoda.tiers.drive import DriveConfig


def test_a_drive_taken_out_of_the_settings_takes_only_its_blocks_along(tmp_path: Path) -> None:
    """Two real directories, real threads: all is found after a restart, about half without one
    of them, and all again once it is back."""
    keys = keys_of(40)
    both = [tmp_path / "a", tmp_path / "b"]
    store = open_pool_of(both)
    for level in store.levels():
        level.run_blocks = 4
    store.save([block_of(keys, i) for i in range(40)], lambda block: None)
    assert store.flush(30.0)
    counts = store.counts()
    assert counts["drive0"] + counts["drive1"] == 40
    assert min(counts.values()) >= 4, "both are written"
    assert store.close(flush_s=10.0)
    for directories, expected in ((both, 40), (both[1:], counts["drive1"]), (both, 40)):
        store = open_pool_of(directories)
        assert sum(store.counts().values()) == expected
        assert restored(store, keys) == expected
        assert store.close(flush_s=10.0)


def open_pool_of(directories: list[Path]) -> Store:
    """A store over small drives alone."""
    drives = tuple(
        DriveConfig(directory=path, capacity_bytes=5 << 20, slot_bytes=8192, free_floor_bytes=0)
        for path in directories
    )
    plan = StorePlan(
        block_bytes=8192,
        host_bytes=0,
        drives=drives,
        config=StoreConfig(restore_deadline_s=60.0),
    )
    executor = ThreadExecutor(load_threads=2, store_threads=1)
    return open_store(plan, Runtime(executor=executor))


def block_of(keys: list, index: int) -> Block:
    """A block whose bytes are its key's."""
    return Block(
        namespace=NAMESPACE,
        key=keys[index],
        parent=keys[index - 1] if index else ROOT,
        depth=index,
        tokens=16,
        payload=bytes_of(keys[index]),
    )


def bytes_of(key: bytes) -> memoryview:
    payload = memoryview(aligned_buffer(8192))[:8192]
    payload[:] = key * (8192 // 32)
    return payload


def restored(store: Store, keys: list) -> int:
    """How many blocks come back, each asked for alone, with the bytes that they had."""
    hits = 0
    for key in keys:
        into = memoryview(aligned_buffer(8192))[:8192]
        restore = store.restore([key], [into])
        assert store.flush(60.0)
        if restore.outcomes[0] in (Hit("drive"), Hit("drive0"), Hit("drive1")):
            assert into == bytes_of(key)
            hits += 1
    return hits
