"""PagodaStorage over drives that hang or lose bits: what is held, refused and put right."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest
import torch
from sglang_fakes import (
    HostPool,
    PoolTransfer,
)
from sglang_host import (
    PATIENCE_S,
    Host,
    hang,
    name_of,
    pool_of,
    random_page,
    soon,
)

Build = Callable[..., Host]


def test_a_stuck_read_ends_in_time_and_its_pages_are_nobodys(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a thread hangs, the call ends, and no page that it may write to is allocated again,
    though SGLang frees it; afterwards all are."""
    host = build(store={"restore_deadline": "2s"})
    pool = host.pools["kv"]
    names = [name_of(number) for number in range(2)]
    assert host.save(names, [random_page(random.Random(2), pool)] * 2)
    free = hang(monkeypatch, "read")
    before = pool.available_size()
    indices = pool.alloc(2 * pool.page_size)
    assert host.storage.batch_get_v1(names, indices) == [False, False]
    assert host.storage.batch_exists(names) == 0
    pool.free(indices)
    assert pool.available_size() == before
    everything = pool.alloc(before)
    assert not set(indices.tolist()) & set(everything.tolist())
    assert host.storage._backend.pools.held == 2
    free.set()
    soon(lambda: host.storage._backend.pools.held == 0)
    pool.free(everything)
    assert pool.available_size() == before


def test_a_stuck_write_ends_in_time_and_stores_only_what_was_given(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SGLang frees the pages and fills others; what reaches the drive in the end is what they held
    when they were given, and what had no turn is skipped and counted."""
    host = build(store={"restore_deadline": "300ms"})
    pool = host.pools["kv"]
    free = hang(monkeypatch, "write")
    rng = random.Random(3)
    names = [name_of(number) for number in range(8)]
    contents = [random_page(rng, pool) for _ in names]
    assert not host.save(names, contents)  # it frees its pages
    while (indices := pool.alloc(pool.page_size)) is not None:
        pool.fill(int(indices[0]), random_page(rng, pool))
    counted = host.storage._backend.counts.take()
    assert counted["pagoda_skipped_segments", ("kv", "busy")] > 0
    pool.clear()
    free.set()
    soon(lambda: host.storage._backend.pools.held == 0)
    there = host.storage.batch_exists(names)
    assert 0 < there < len(names)
    assert host.load(names[:there]) == contents[:there]


def test_while_stuck_writes_hold_what_is_set_aside_reads_go_through_memory_of_our_own(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drive that takes no writes is no reason to restore nothing from it, or from another."""
    host = build(store={"restore_deadline": "300ms"})
    pool, rng = host.pools["kv"], random.Random(17)
    content = random_page(rng, pool)
    assert host.save([name_of(0)], [content])
    free = hang(monkeypatch, "write")
    before = host.bounced()
    for number in range(1, 9):
        assert not host.save([name_of(number)], [random_page(rng, pool)])
    assert host.storage._backend.pools.held == host.storage._backend.pools._pools["kv"].guard.limit
    assert host.load([name_of(0)]) == [content]
    assert host.bounced() == before + 1
    free.set()


def test_a_tensor_that_is_a_view_of_host_memory_is_stored_as_it_was_given(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where SGLang hands over tensors, one may lie in a page that it frees and fills anew while
    the write still waits."""
    host = build(
        {"kv": pool_of("one segment")}, interface_v1=0, store={"restore_deadline": "300ms"}
    )
    pool, rng = host.pools["kv"], random.Random(15)
    free = hang(monkeypatch, "write")
    names = [name_of(1), name_of(2)]
    contents = [random_page(rng, pool) for _ in names]
    for index, content in zip((0, 4), contents, strict=True):
        pool.fill(index, content)
    assert not host.storage.batch_set(names, [pool.get_data_page(0), pool.get_data_page(4)])
    pool.fill(0, random_page(rng, pool))
    pool.fill(4, random_page(rng, pool))
    free.set()
    soon(lambda: not host.shelves.poll())
    assert host.load(names) == contents


def test_a_failed_page_costs_those_behind_it_and_no_look_up_finds_it(build: Build) -> None:
    """SGLang uses what lies before the first page that failed; the failed one is forgotten."""
    host = build()
    rng = random.Random(4)
    names = [name_of(number) for number in range(5)]
    contents = [random_page(rng, host.pools["kv"]) for _ in names]
    assert host.save(names, contents)
    host.damage(names[2], segment=1)
    assert host.storage.batch_exists(names) == 5
    assert host.load(names) == [*contents[:2], None, None, None]
    assert host.storage.batch_exists(names) == 2
    assert host.save(names, contents)
    assert host.storage.batch_exists(names) == 5
    assert host.load(names) == contents


def test_damage_is_put_right_in_one_round(build: Build) -> None:
    """A prefix of which several pages are bad is computed again from the first on, and stored:
    what it is restored from next time is whole, though bad pages are not written over unknown."""
    host = build(store={"scrub_rate": 0})
    rng = random.Random(12)
    names = [name_of(number) for number in range(9)]
    contents = [random_page(rng, host.pools["kv"]) for _ in names]
    assert host.save(names[:4], contents[:4])
    assert host.save(names[4:], contents[4:])
    for name, segment in ((1, 0), (1, 1), (4, 1), (8, 0)):
        host.damage(names[name], segment=segment)
    assert host.load(names) == [contents[0], *[None] * 8]
    for first in (0, 4):
        assert host.save(names[first : first + 4], contents[first : first + 4])
    assert host.save(names[8:], contents[8:])
    assert host.load(names) == contents


def test_indices_that_are_anothers_are_held_in_that_pool(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool derived from the KV has no pages to free: the KV's are the ones that a stuck read of
    it keeps."""
    pools = {"kv": pool_of(), "indexer": HostPool([4096], pages=64, tokens=4)}
    host = build(pools, store={"restore_deadline": "2s"})
    name = [name_of(1)]
    indices = pools["kv"].alloc(4)
    transfer = PoolTransfer("indexer", indices, name, indices_from_pool="kv")
    assert host.storage.batch_set_v2([transfer])["indexer"] == [True]
    free = hang(monkeypatch, "read")
    assert host.storage.batch_get_v2([PoolTransfer("indexer", indices, name)])["indexer"] == [False]
    pools["kv"].free(indices)
    rest = pools["kv"].alloc(pools["kv"].available_size())
    assert not set(indices.tolist()) & set(rest.tolist())
    free.set()


def test_attached_to_full_host_memory_pages_pass_through_memory_of_our_own(build: Build) -> None:
    """Nothing can be set aside then, and nothing is moved in place."""
    full = pool_of()
    taken = full.alloc(full.size)
    host = build({"kv": full})
    full.free(taken)
    names, rng = [name_of(1), name_of(2)], random.Random(14)
    contents = [random_page(rng, full) for _ in names]
    assert host.save(names, contents)
    assert host.load(names) == contents
    assert host.bounced() == 4


def test_after_the_end_nothing_is_there_and_nobody_waits(build: Build) -> None:
    """Whoever still asks a storage that was closed is answered at once."""
    host = build()
    rng = random.Random(1)
    names = [name_of(number) for number in range(3)]
    assert host.save(names, [random_page(rng, host.pools["kv"]) for _ in names])
    host.storage.close()
    assert host.storage.batch_exists(names) == 0
    assert host.load(names) == [None] * 3
    assert not host.save(names[:1], [random_page(rng, host.pools["kv"])])
    assert host.storage.batch_exists_v2(names, [PoolTransfer("kv")]).kv_hit_pages == 0
    host.storage.clear()
    host.storage.close()


def test_who_waits_for_a_stuck_drive_when_the_storage_is_closed_waits_no_longer(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However far away the deadline is, and its pages stay held: the drive may write to them."""
    host = build(store={"restore_deadline": "1h", "flush_deadline": "0s"})
    rng = random.Random(2)
    names = [name_of(number) for number in range(3)]
    assert host.save(names, [random_page(rng, host.pools["kv"]) for _ in names])
    free = hang(monkeypatch, "read")
    found: list[bytes | None] = []
    reader = threading.Thread(target=lambda: found.extend(host.load(names)))
    reader.start()
    soon(host.shelves.poll)
    host.storage.close()
    reader.join(PATIENCE_S)
    assert found == [None] * 3
    free.set()


def test_what_has_no_buffers_leaves_no_page_set_aside_taken(build: Build) -> None:
    """Indices that a pool has no page for are an error, and the next batch goes in place."""
    host = build()
    pool = host.pools["kv"]
    beyond = torch.arange(4) + pool.size
    for _ in range(host.storage._backend.pools._guards()[0].limit + 1):
        for move in (host.storage.batch_get_v1, host.storage.batch_set_v1):
            with pytest.raises(IndexError):
                move([name_of(1)], beyond)
    assert host.save([name_of(1)], [random_page(random.Random(3), pool)])
    assert host.bounced() == 0


def test_tensors_that_cannot_be_filled_or_are_none_are_no_pages(build: Build) -> None:
    """A target in pieces would be told as filled, and hold nothing of the page."""
    host = build({"kv": pool_of("no addresses")}, interface_v1=0)
    content = random_page(random.Random(4), host.pools["kv"])
    assert host.save([name_of(1)], [content])
    pieces = torch.zeros(2 * len(content), dtype=torch.uint8)[::2]
    assert host.storage.get(name_of(1), pieces) is None
    assert host.storage.get(name_of(1)) is None
    assert host.load([name_of(1)]) == [content]
    page = torch.zeros(len(content), dtype=torch.uint8)
    assert not host.storage.set(name_of(2))
    assert not host.storage.batch_set([name_of(2), name_of(3)], [page])
    assert not host.storage.batch_set([name_of(2)])
    assert host.storage.batch_exists([name_of(2)]) == 0
