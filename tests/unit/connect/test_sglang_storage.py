"""PagodaStorage on real slabs and fakes of SGLang: what it stores, restores, refuses and holds."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from sglang_fakes import (
    HostPool,
    MHATokenToKVPoolHost,
    MLATokenToKVPoolHost,
    PoolHitPolicy,
    PoolTransfer,
    bags_of,
    updater,
)
from sglang_host import Host, entry, hosts, model_in, name_of

from pagoda.core.errors import DirectoryLocked, PagodaError, SettingsError, UnsupportedModel
from pagoda.tiers.drive import DriveTier

_PATIENCE_S = 30.0
Build = Callable[..., Host]

# By name: the segments of a page, and how the pool is.
_SHAPES: dict[str, tuple[list[int], dict[str, Any]]] = {
    "page_first_direct": ([8192, 8192], {}),
    "layer_first": ([512] * 8, {"layout": "layer_first"}),
    "one segment": ([12288], {"layout": "page_first"}),
    "page_first_kv_split": ([8192, 4096, 640], {"layout": "page_first_kv_split"}),
    "page_head": ([4096, 4096], {"layout": "page_head"}),
    "not aligned": ([4096, 4096], {"shift": 64}),
    "no addresses": ([4096, 4096], {"in_place": False}),
    "few pages": ([4096, 4096], {"pages": 16}),
}


def _pool(shape: str = "page_first_direct", kind: type[HostPool] = HostPool) -> HostPool:
    sizes, more = _SHAPES[shape]
    return kind(sizes, **more)


@pytest.fixture
def model(tmp_path: Path) -> str:
    return model_in(tmp_path / "model")


@pytest.fixture
def build(tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Build]:
    """Builds a host over the drive in tmp_path."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with hosts(tmp_path, model) as make:

        def begin(pools: dict[str, HostPool] | None = None, **own: Any) -> Host:
            config = {key: own.pop(key) for key in list(own) if key in _RANKS}
            made: Host = make(
                entry(own.pop("directory", tmp_path / "kv"), **own),
                pools or {"kv": _pool()},
                **config,
            )
            return made

        yield begin


_RANKS = ("tp_rank", "tp_size", "pp_rank", "pp_size", "is_mla_model", "dp_rank", "tp_lcm_size")


def _bytes(rng: random.Random, pool: HostPool) -> bytes:
    return rng.randbytes(pool.page_bytes)


def _hang(monkeypatch: pytest.MonkeyPatch, method: str) -> threading.Event:
    """A drive whose `method` does not come back before the event."""
    free, real = threading.Event(), getattr(DriveTier, method)

    def hang(self: DriveTier, *args: Any) -> Any:
        free.wait(_PATIENCE_S)
        return real(self, *args)

    monkeypatch.setattr(DriveTier, method, hang)
    return free


def _soon(what: Callable[[], bool]) -> None:
    until_s = time.monotonic() + _PATIENCE_S
    while not what():
        assert time.monotonic() < until_s
        time.sleep(0.01)


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
        contents = [self.known.setdefault(name, _bytes(self.rng, pool)) for name in names]
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
@pytest.mark.parametrize("shape", _SHAPES)
def test_pages_come_back_as_they_were_stored_or_not_at_all(
    build: Build, shape: str, in_place: int
) -> None:
    """Over stores, look-ups, reads, damage and restarts: exactly what was stored, under exactly
    that name, and no damaged page, which is not found any more either."""
    quiet = {"scrub_rate": 0}  # it would find damage before anybody asks

    def begin() -> Host:
        return build({"kv": _pool(shape)}, interface_v1=in_place, store=quiet)

    naive = Naive(len(shape), begin)
    steps = [naive.save] * 4 + [naive.load] * 4 + [naive.exists] * 3 + [naive.damage] * 2
    for step in range(120):
        naive.rng.choice(steps)()
        if step % 40 == 39:
            naive.restart()
    pool = naive.host.pools["kv"]
    if in_place and naive.host.storage._backend._pools["kv"].guard:
        assert pool.available_size() == pool.size - pool.size // 16


def test_aligned_pages_are_read_and_written_without_a_copy(build: Build) -> None:
    """In place, past the page cache, nothing is copied; not aligned, every segment is counted."""
    rng = random.Random(1)
    names = [name_of(number) for number in range(10)]
    for shape, copies in (("page_first_direct", 0), ("not aligned", 2 * 2 * len(names))):
        pool = _pool(shape)
        host = build({"kv": pool}, directory=Path(f"{pool.layout}-{copies}").absolute())
        if not host.stores[0].levels()[0].sealed.tier.geometry.alignment_bytes > 1:
            pytest.skip("no O_DIRECT here")
        contents = [_bytes(rng, pool) for _ in names]
        assert host.save(names, contents)
        assert host.load(names) == contents
        assert host.bounced() == copies


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_stuck_read_ends_in_time_and_its_pages_are_nobodys(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a thread hangs, the call ends, and no page that it may write to is allocated again,
    though SGLang frees it; afterwards all are."""
    host = build(store={"restore_deadline": "400ms"})
    pool = host.pools["kv"]
    names = [name_of(number) for number in range(2)]
    assert host.save(names, [_bytes(random.Random(2), pool)] * 2)
    free = _hang(monkeypatch, "read")
    before = pool.available_size()
    indices = pool.alloc(2 * pool.page_size)
    assert host.storage.batch_get_v1(names, indices) == [False, False]
    assert host.storage.batch_exists(names) == 0
    pool.free(indices)
    assert pool.available_size() == before
    everything = pool.alloc(before)
    assert not set(indices.tolist()) & set(everything.tolist())
    assert host.storage._backend.held == 2
    free.set()
    _soon(lambda: host.storage._backend.held == 0)
    pool.free(everything)
    assert pool.available_size() == before


def test_a_stuck_write_ends_in_time_and_stores_only_what_was_given(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SGLang frees the pages and fills others; what reaches the drive in the end is what they held
    when they were given, and what had no turn is skipped and counted."""
    host = build(store={"restore_deadline": "300ms"})
    pool = host.pools["kv"]
    free = _hang(monkeypatch, "write")
    rng = random.Random(3)
    names = [name_of(number) for number in range(8)]
    contents = [_bytes(rng, pool) for _ in names]
    assert not host.save(names, contents)  # it frees its pages
    while (indices := pool.alloc(pool.page_size)) is not None:
        pool.fill(int(indices[0]), _bytes(rng, pool))
    counted = host.storage._backend.counts.take()
    assert counted["pagoda_skipped_segments", ("kv", "busy")] > 0
    pool.clear()
    free.set()
    _soon(lambda: host.storage._backend.held == 0)
    there = host.storage.batch_exists(names)
    assert 0 < there < len(names)
    assert host.load(names[:there]) == contents[:there]


def test_while_stuck_writes_hold_what_is_set_aside_reads_go_through_memory_of_our_own(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drive that takes no writes is no reason to restore nothing from it, or from another."""
    host = build(store={"restore_deadline": "300ms"})
    pool, rng = host.pools["kv"], random.Random(17)
    content = _bytes(rng, pool)
    assert host.save([name_of(0)], [content])
    free = _hang(monkeypatch, "write")
    before = host.bounced()
    for number in range(1, 9):
        assert not host.save([name_of(number)], [_bytes(rng, pool)])
    assert host.storage._backend.held == host.storage._backend._pools["kv"].guard.limit
    assert host.load([name_of(0)]) == [content]
    assert host.bounced() == before + 1
    free.set()


def test_a_tensor_that_is_a_view_of_host_memory_is_stored_as_it_was_given(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where SGLang hands over tensors, one may lie in a page that it frees and fills anew while
    the write still waits."""
    host = build({"kv": _pool("one segment")}, interface_v1=0, store={"restore_deadline": "300ms"})
    pool, rng = host.pools["kv"], random.Random(15)
    free = _hang(monkeypatch, "write")
    names = [name_of(1), name_of(2)]
    contents = [_bytes(rng, pool) for _ in names]
    for index, content in zip((0, 4), contents, strict=True):
        pool.fill(index, content)
    assert not host.storage.batch_set(names, [pool.get_data_page(0), pool.get_data_page(4)])
    pool.fill(0, _bytes(rng, pool))
    pool.fill(4, _bytes(rng, pool))
    free.set()
    _soon(lambda: not host.shelves.poll())
    assert host.load(names) == contents


def test_a_failed_page_costs_those_behind_it_and_no_look_up_finds_it(build: Build) -> None:
    """SGLang uses what lies before the first page that failed; the failed one is forgotten."""
    host = build()
    rng = random.Random(4)
    names = [name_of(number) for number in range(5)]
    contents = [_bytes(rng, host.pools["kv"]) for _ in names]
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
    contents = [_bytes(rng, host.pools["kv"]) for _ in names]
    assert host.save(names[:4], contents[:4])
    assert host.save(names[4:], contents[4:])
    for name, segment in ((1, 0), (1, 1), (4, 1), (8, 0)):
        host.damage(names[name], segment=segment)
    assert host.load(names) == [contents[0], *[None] * 8]
    for first in (0, 4):
        assert host.save(names[first : first + 4], contents[first : first + 4])
    assert host.save(names[8:], contents[8:])
    assert host.load(names) == contents


def _hybrid(name: str = "mamba", **more: Any) -> dict[str, HostPool]:
    return {"kv": _pool(), name: HostPool([8192, 512], pages=48, tokens=1, **more)}


def test_pools_lie_apart_and_a_prefix_needs_all_of_them(build: Build) -> None:
    """States end some pages of a prefix; windows need the pages before, indices every page."""
    pools = _hybrid() | {"indexer": HostPool([4096], pages=64, tokens=4)}
    host = build(pools)
    rng = random.Random(5)
    names = [name_of(number) for number in range(6)]
    assert host.save(names, [_bytes(rng, pools["kv"]) for _ in names])
    states, own = [names[1], names[4]], pools["mamba"].alloc(2)
    contents = [_bytes(rng, pools["mamba"]) for _ in states]
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


def test_indices_that_are_anothers_are_held_in_that_pool(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool derived from the KV has no pages to free: the KV's are the ones that a stuck read of
    it keeps."""
    pools = {"kv": _pool(), "indexer": HostPool([4096], pages=64, tokens=4)}
    host = build(pools, store={"restore_deadline": "300ms"})
    name = [name_of(1)]
    indices = pools["kv"].alloc(4)
    transfer = PoolTransfer("indexer", indices, name, indices_from_pool="kv")
    assert host.storage.batch_set_v2([transfer])["indexer"] == [True]
    free = _hang(monkeypatch, "read")
    assert host.storage.batch_get_v2([PoolTransfer("indexer", indices, name)])["indexer"] == [False]
    pools["kv"].free(indices)
    rest = pools["kv"].alloc(pools["kv"].available_size())
    assert not set(indices.tolist()) & set(rest.tolist())
    free.set()


def test_ranks_have_directories_and_pages_of_their_own(build: Build, tmp_path: Path) -> None:
    """Two ranks, two replicas and two stages share nothing but the path."""
    rng = random.Random(6)
    content = _bytes(rng, _pool())
    parts: list[dict[str, int]] = [
        {"tp_rank": 0, "tp_size": 2},
        {"tp_rank": 1, "tp_size": 2},
        {"tp_size": 2, "pp_rank": 1, "pp_size": 2},
        {"tp_size": 2, "dp_rank": 1},
    ]
    made = [build({"kv": _pool("page_first_direct", MHATokenToKVPoolHost)}, **p) for p in parts]
    assert made[0].save([name_of(1)], [content])
    assert [host.storage.exists(name_of(1)) for host in made] == [True, False, False, False]
    found = sorted(str(p.relative_to(tmp_path / "kv")) for p in tmp_path.glob("kv/*/*/slab.pagoda"))
    ranks = ("tp-0", "tp-0-dp-1", "tp-0-pp-1", "tp-1")
    assert found == sorted(f"{rank}/kv/slab.pagoda" for rank in ranks)
    spaces = [host.volume().namespace for host in made]
    assert len(set(spaces)) == 3
    assert spaces[0] == spaces[3]  # replicas may share, through a shared store


def test_one_rank_writes_what_all_have_alike(build: Build, tmp_path: Path) -> None:
    """Ranks of a replicated cache name pages alike, and read what the writer shares; without a
    shared store they are refused, since none would ever be restored."""
    pytest.importorskip("obstore")
    latent = {"kv": _pool("one segment", MLATokenToKVPoolHost)}
    with pytest.raises(SettingsError, match="one writes"):
        build(latent, is_mla_model=True, tp_size=2)
    (tmp_path / "shared").mkdir()
    shared = {"url": f"file://{tmp_path / 'shared'}"}
    made = []
    for rank in range(2):
        extra = entry(tmp_path / "kv")
        extra["settings"]["remote"] = shared
        pools = {"kv": _pool("one segment", MLATokenToKVPoolHost)}
        made.append(build(pools, is_mla_model=True, tp_size=2, tp_rank=rank, **_own(extra)))
    names, rng = [name_of(1), name_of(2)], random.Random(7)
    contents = [_bytes(rng, latent["kv"]) for _ in names]
    assert made[0].save(names, contents)
    _soon(lambda: made[1].storage.batch_exists(names) == 2)
    assert made[1].load(names) == contents


def test_a_long_prefix_is_found_in_the_shared_store(build: Build, tmp_path: Path) -> None:
    """It is asked for a part at a time, until one is missing."""
    pytest.importorskip("obstore")
    (tmp_path / "shared").mkdir()
    pool = {"kv": HostPool([4096], pages=800)}
    names = [name_of(number) for number in range(700)]
    made = []
    for place in ("a", "b"):
        extra = entry(tmp_path / place)
        extra["settings"]["remote"] = {"url": f"file://{tmp_path / 'shared'}"}
        made.append(build({"kv": HostPool([4096], pages=800)}, directory=place, **_own(extra)))
    content = _bytes(random.Random(13), pool["kv"])
    for first in range(0, len(names), 25):
        assert made[0].save(names[first : first + 25], [content] * 25)
        _soon(lambda: not made[0].shelves.poll())  # they are in the shared store as well
    assert made[1].storage.batch_exists(names) == len(names)
    assert made[1].load(names[-3:]) == [content] * 3


def test_attached_to_full_host_memory_pages_pass_through_memory_of_our_own(build: Build) -> None:
    """Nothing can be set aside then, and nothing is moved in place."""
    full = _pool()
    taken = full.alloc(full.size)
    host = build({"kv": full})
    full.free(taken)
    names, rng = [name_of(1), name_of(2)], random.Random(14)
    contents = [_bytes(rng, full) for _ in names]
    assert host.save(names, contents)
    assert host.load(names) == contents
    assert host.bounced() == 4


def _own(extra: dict[str, Any]) -> dict[str, Any]:
    return {"settings": extra["settings"]}


def test_ranks_that_are_to_write_all_restore_each_for_itself(build: Build) -> None:
    """SGLang asks the configuration that it gave who writes, and hears that every rank does."""
    rng, content = random.Random(16), b""
    for rank in range(2):
        pool = _pool("one segment", MLATokenToKVPoolHost)
        content = content or _bytes(rng, pool)
        host = build(
            {"kv": pool}, each_rank_writes=True, is_mla_model=True, tp_rank=rank, tp_size=2
        )
        assert host.config.is_mla_model is False
        assert host.save([name_of(1)], [content])
        assert host.load([name_of(1)]) == [content]


def test_a_second_server_on_the_directory_is_refused(build: Build, tmp_path: Path) -> None:
    """The lock says who has it, when SGLang starts and not at the first request."""
    build()
    with pytest.raises(DirectoryLocked, match=str(tmp_path / "kv" / "tp-0")):
        build()


def test_other_weights_salts_and_layouts_find_nothing(
    build: Build, tmp_path: Path, model: str
) -> None:
    """SGLang's names say nothing of them."""
    rng, pool = random.Random(8), _pool()
    host = build()
    assert host.save([name_of(1)], [_bytes(rng, pool)])
    host.storage.close()
    again = build()
    assert again.storage.exists(name_of(1))
    again.storage.close()
    for change in ("salt", "layout", "weights"):
        if change == "weights":
            model_in(Path(model), b"other")
        other = build(
            {"kv": _pool("page_first_direct")} if change != "layout" else {"kv": _page_first()},
            **({"salt": "tenant"} if change == "salt" else {}),
        )
        assert not other.storage.exists(name_of(1)), change
        other.storage.close()


def _page_first() -> HostPool:
    """Pages of the same segments in another order of bytes."""
    return HostPool([8192, 8192], layout="page_first")


def test_nothing_is_stored_or_served_once_weights_were_updated(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SGLang names pages as before: the old ones are not found, and no new ones are stored; nor
    does a backend that is attached later name them after the directory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    weights = updater()
    with hosts(tmp_path, model, updater=weights) as make:
        host = make(entry(tmp_path / "kv"), {"kv": _pool()})
        content = _bytes(random.Random(9), host.pools["kv"])
        assert host.save([name_of(1)], [content])
        assert host.load([name_of(1)]) == [content]
        assert weights().update_weights_from_tensor([1]) == [1]
        assert host.storage.batch_exists([name_of(1)]) == 0
        assert host.load([name_of(1)]) == [None]
        assert not host.save([name_of(2)], [content])
        with pytest.raises(PagodaError, match="weights were updated"):
            make(entry(tmp_path / "other"), {"kv": _pool()})


@pytest.mark.parametrize(
    ("bag", "field", "value"),
    [
        ("lora", "enable_lora", True),
        ("lora", "lora_paths", ["a=b"]),
        ("model", "load_format", "dummy"),
        ("model", "kv_cache_dtype", "nvfp4"),
        ("model", "quantization_param_path", "scales.json"),
        ("model", "custom_weight_loader", ["x"]),
    ],
)
def test_what_names_of_pages_do_not_tell_apart_is_refused(
    tmp_path: Path, model: str, bag: str, field: str, value: Any
) -> None:
    """Adapters, other scales and other weights than those in the directory."""
    bags = bags_of(model)
    setattr(getattr(bags, bag), field, value)
    with hosts(tmp_path, model, bags) as make, pytest.raises(UnsupportedModel):
        make(entry(tmp_path / "kv"), {"kv": _pool()})


def test_pools_that_cannot_be_stored_are_refused(build: Build) -> None:
    """Layouts that are not known, pages that move about, and pools without bytes."""
    unknown = HostPool([4096], layout="page_unified")
    with pytest.raises(UnsupportedModel, match="page_unified"):
        build({"kv": unknown})
    moving = HostPool([4096])
    moving.shared_allocation_domain = object()  # type: ignore[attr-defined]
    with pytest.raises(UnsupportedModel, match="move about"):
        build({"kv": moving})
    logical = HostPool([4096])
    logical.get_page_buffer_meta = lambda indices: None  # type: ignore[assignment,method-assign]
    with pytest.raises(UnsupportedModel, match="no bytes"):
        build({"kv": logical})


def test_entries_are_checked(build: Build) -> None:
    """A slip of the pen is told with what was meant."""
    for bad, message in (
        ({"setings": {}}, "did you mean settings"),
        ({"salt": 7}, "salt is no text"),
        ({"each_rank_writes": 1}, "neither true nor false"),
        ({"settings": {"drive": {"pth": "/x"}}}, "pth"),
        ({"tp_lcm_size": 8}, "does not cut pages up"),
    ):
        with pytest.raises(SettingsError) as refused:
            build(**bad)
        assert message in f"{refused.value} {refused.value.remedy}"


def test_stats_are_those_since_the_last_call(build: Build) -> None:
    """Pages a batch, as SGLang's own backends report them."""
    host = build()
    names, rng = [name_of(1), name_of(2)], random.Random(10)
    assert host.save(names, [_bytes(rng, host.pools["kv"]) for _ in names])
    host.load([*names, name_of(3)])
    stats = host.storage.get_stats()
    assert (stats.backup_pgs, stats.prefetch_pgs) == ([2], [2])
    assert all(rate > 0 for rate in stats.backup_bandwidth + stats.prefetch_bandwidth)
    assert host.storage.get_stats().backup_pgs == []


def test_clear_drops_every_page(build: Build) -> None:
    """None is found afterwards, nor after a restart."""
    host = build()
    assert host.save([name_of(1)], [_bytes(random.Random(11), host.pools["kv"])])
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
