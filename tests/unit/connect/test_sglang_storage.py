"""PagodaStorage on real slabs and fakes of SGLang: what it stores and restores."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sglang_fakes import (
    HostPool,
    PoolHitPolicy,
    PoolTransfer,
)
from sglang_host import (
    SHAPES,
    Host,
    name_of,
    pool_of,
    random_page,
)

Build = Callable[..., Host]


class Naive:
    """What a store of pages must answer: what was stored under a name, unless it was damaged."""

    def __init__(self, seed: int, begin: Callable[[], Host]) -> None:
        self.rng = random.Random(seed)
        self.begin = begin
        self.host = begin()
        self.there: dict[str, bytes] = {}
        self.damaged: set[str] = set()
        self.known: dict[str, bytes] = {}  # a name says what a page has in it

    def some(self) -> list[str]:
        first, count = self.rng.randrange(30), self.rng.randint(1, 6)
        return [name_of(number) for number in range(first, first + count)]

    def save(self) -> None:
        names = self.some()
        pool = self.host.pools["kv"]
        contents = [self.known.setdefault(name, random_page(self.rng, pool)) for name in names]
        assert self.host.save(names, contents)
        # What a tier holds is not written again: a damaged page stays until it is found out.
        self.there |= dict(zip(names, contents, strict=True))

    def load(self) -> None:
        names = self.some()
        expected: list[bytes | None] = []
        for name in names:
            good = name in self.there and name not in self.damaged
            expected.append(self.there[name] if good else None)
            if not good:
                break
        found = self.host.load(names)
        assert found == expected + [None] * (len(names) - len(expected))
        stopped = names[len(expected) - 1] if None in expected else ""
        for name in self.damaged.intersection(names):
            # Pages behind the one that failed may have been read, and found out, as well.
            if name == stopped or not self.host.storage.exists(name):
                del self.there[name]
                self.damaged.discard(name)

    def exists(self) -> None:
        names = self.some()
        expected = next((i for i, name in enumerate(names) if name not in self.there), len(names))
        assert self.host.storage.batch_exists(names) == expected
        assert self.host.storage.exists(names[0]) == (expected > 0)

    def damage(self) -> None:
        good = [name for name in self.there if name not in self.damaged]
        if good:
            name = self.rng.choice(good)
            segment = self.rng.randrange(len(self.host.volume().sizes))
            self.host.damage(name, segment=segment)
            self.damaged.add(name)

    def restart(self) -> None:
        self.host.storage.close()
        self.host = self.begin()


@pytest.mark.parametrize("in_place", [1, 0])
@pytest.mark.parametrize("shape", SHAPES)
def test_pages_come_back_as_they_were_stored_or_not_at_all(
    build: Build, shape: str, in_place: int
) -> None:
    """Over stores, look-ups, reads, damage and restarts: exactly what was stored, under exactly
    that name, and no damaged page, which is not found any more either."""
    quiet = {"scrub_rate": 0}  # it would find damage before anybody asks

    def begin() -> Host:
        return build({"kv": pool_of(shape)}, interface_v1=in_place, store=quiet)

    naive = Naive(len(shape), begin)
    steps = [naive.save] * 4 + [naive.load] * 4 + [naive.exists] * 3 + [naive.damage] * 2
    for step in range(120):
        naive.rng.choice(steps)()
        if step % 40 == 39:
            naive.restart()
    pool = naive.host.pools["kv"]
    if in_place and naive.host.storage._backend.pools._pools["kv"].guard:
        assert pool.available_size() == pool.size - pool.size // 16


def test_aligned_pages_are_read_and_written_without_a_copy(build: Build, tmp_path: Path) -> None:
    """In place, past the page cache, nothing is copied; not aligned, every segment is counted."""
    rng = random.Random(1)
    names = [name_of(number) for number in range(10)]
    for shape, copies in (("page_first_direct", 0), ("not aligned", 2 * 2 * len(names))):
        pool = pool_of(shape)
        host = build({"kv": pool}, directory=tmp_path / str(copies))
        if not host.stores[0].levels()[0].sealed.tier.geometry.alignment_bytes > 1:
            pytest.skip("no O_DIRECT here")
        contents = [random_page(rng, pool) for _ in names]
        assert host.save(names, contents)
        assert host.load(names) == contents
        assert host.bounced() == copies


def _hybrid(name: str = "mamba", **more: Any) -> dict[str, HostPool]:
    return {"kv": pool_of(), name: HostPool([8192, 512], pages=48, tokens=1, **more)}


def test_pools_lie_apart_and_a_prefix_needs_all_of_them(build: Build) -> None:
    """States end some pages of a prefix; windows need the pages before, indices every page."""
    pools = _hybrid() | {"indexer": HostPool([4096], pages=64, tokens=4)}
    host = build(pools)
    rng = random.Random(5)
    names = [name_of(number) for number in range(6)]
    assert host.save(names, [random_page(rng, pools["kv"]) for _ in names])
    states, own = [names[1], names[4]], pools["mamba"].alloc(2)
    contents = [random_page(rng, pools["mamba"]) for _ in states]
    for index, content in zip(own, contents, strict=True):
        pools["mamba"].fill(int(index), content)
    assert host.move("mamba", states, own, reads=False) == [True, True]
    rows = pools["kv"].alloc(4 * 4)
    derived = PoolTransfer("indexer", rows, names[:4], indices_from_pool="kv")
    assert host.storage.batch_set_v2([derived])["indexer"] == [True] * 4

    def lengths(*transfers: PoolTransfer) -> tuple[int, list[int]]:
        found = host.storage.batch_exists_v2(names, list(transfers))
        return found.kv_hit_pages, found.restorable_prefix_pages

    last = PoolTransfer("mamba", None, names[-1:], PoolHitPolicy.TRAILING_PAGES)
    assert lengths() == (6, [1, 2, 3, 4, 5, 6])
    assert lengths(last) == (5, [2, 5])
    assert lengths(last, derived) == (2, [2])
    other = pools["mamba"].alloc(2)
    assert host.move("mamba", states, other, reads=True) == [True, True]
    assert [pools["mamba"].bytes_of(int(index)) for index in other] == contents
    host.damage(names[1], pool="mamba", segment=1)
    assert host.move("mamba", states, other, reads=True) == [False, True]
    assert lengths(last, derived) == (0, [])
    assert host.storage.batch_exists(names) == 6


def test_lookups_reads_and_writes_go_on_side_by_side(build: Build) -> None:
    """SGLang's three threads, of which one reads and one writes: what was found is read as it was
    stored, nothing is refused as busy, and what was found once stays."""
    host = build()
    pool = host.pools["kv"]
    rng = random.Random(18)
    pages = {name_of(number): random_page(rng, pool) for number in range(60)}
    names = list(pages)
    longest = [0] * len(names)
    wrong: list[str] = []

    def write(first: int) -> None:
        some = names[first : first + 3]
        if not host.save(some, [pages[name] for name in some]):
            wrong.append(f"not stored: {first}")

    def read(first: int) -> None:
        some = names[first : first + 4]
        count = host.storage.batch_exists(some)
        found = host.load(some)
        if found[:count] != [pages[name] for name in some[:count]]:
            wrong.append(f"found, and not there: {first}")
        if any(page not in (None, pages[name]) for name, page in zip(some, found, strict=True)):
            wrong.append(f"not as it was stored: {first}")

    def look(first: int) -> None:
        count = host.storage.batch_exists(names[first:])
        if count < longest[first]:
            wrong.append(f"found before, and not now: {first}")
        longest[first] = count

    written = threading.Event()

    def work(seed: int, what: Callable[[int], None], over: Callable[[int], bool]) -> None:
        own = random.Random(seed)
        for turn in itertools.count():
            if over(turn):
                break
            what(own.randrange(len(names)))

    others = [
        threading.Thread(target=work, args=(seed, what, lambda _: written.is_set()))
        for seed, what in enumerate((read, look))
    ]
    for thread in others:
        thread.start()
    try:
        work(2, write, lambda turn: turn == 80)
    finally:
        written.set()
    for thread in others:
        thread.join()
    for first in range(len(names)):
        look(first)
    assert wrong == []
    assert max(longest) > 0
    assert pool.available_size() == pool.size - pool.size // 16


def test_stats_are_those_since_the_last_call(build: Build) -> None:
    """Pages a batch, as SGLang's own backends report them."""
    host = build()
    names, rng = [name_of(1), name_of(2)], random.Random(10)
    assert host.save(names, [random_page(rng, host.pools["kv"]) for _ in names])
    host.load([*names, name_of(3)])
    stats = host.storage.get_stats()
    assert (stats.backup_pgs, stats.prefetch_pgs) == ([2], [2])
    assert all(rate > 0 for rate in stats.backup_bandwidth + stats.prefetch_bandwidth)
    assert host.storage.get_stats().backup_pgs == []


def test_clear_drops_every_page(build: Build) -> None:
    """None is found afterwards, nor after a restart."""
    host = build()
    assert host.save([name_of(1)], [random_page(random.Random(11), host.pools["kv"])])
    host.storage.clear()
    assert not host.storage.exists(name_of(1))
    host.storage.close()
    assert not build().storage.exists(name_of(1))


def test_wrong_numbers_of_indices_move_nothing(build: Build) -> None:
    """A length that does not fit is SGLang's fault, and costs the batch."""
    host = build()
    assert host.storage.batch_get_v1([name_of(1)], torch.arange(3)) == [False]
    assert host.storage.batch_set_v1([name_of(1)], torch.arange(8)) == [False]
    assert host.move("nowhere", [name_of(1)], torch.arange(4), reads=True) == [False]
