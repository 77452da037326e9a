"""The sparse slab is what an engine would have written, but for the room that it takes."""

from __future__ import annotations

import stat
from itertools import pairwise
from pathlib import Path

from pagoda.lab.bench.sparse_slab import CHAIN, make_sparse_slab, open_slab
from pagoda.store.inspect import DriveInspector


def test_every_block_of_a_sparse_slab_is_sound(tmp_path: Path) -> None:
    """All headers check, all keys differ, and the holes are what the digests say."""
    make_sparse_slab(tmp_path, slots=300, seed=1)
    inspector = DriveInspector(tmp_path)
    report = inspector.report(verify=True, progress=lambda done, total: None)
    assert (report.blocks, report.verified) == (300, 300)
    assert (report.corrupt, report.damaged_headers) == ([], [])
    seals = [entry.seal for entry in inspector.entries()[0]]
    assert len({seal.key for seal in seals}) == 300
    chained = [(a, b) for a, b in pairwise(seals) if b.depth]
    assert all(b.parent == a.key and b.depth == a.depth + 1 for a, b in chained)
    assert len(chained) == 300 - -(-300 // CHAIN)


def test_an_engine_opens_it_and_the_payloads_take_no_room(tmp_path: Path) -> None:
    """The index is rebuilt from it as from any drive."""
    make_sparse_slab(tmp_path, slots=5000, seed=2)
    store = open_slab(tmp_path)
    assert store.counts() == {"drive": 5000}
    store.check_invariants()
    assert store.close(flush_s=5)
    found = (tmp_path / "slab.pagoda").stat()
    assert found.st_size > 5000 * 4096
    assert found.st_blocks * 512 < 5000 * 512
    assert stat.S_IMODE(found.st_mode) == 0o600
