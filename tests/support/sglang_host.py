"""SGLang's host memory with PagodaStorage below it, on real slabs, without SGLang."""

from __future__ import annotations

import hashlib
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sglang_fakes as fakes
import torch

from pagoda.connect.sglang.shelves import Shelves, Volume
from pagoda.store.store import Store
from pagoda.tiers.drive import DriveTier, slab

# By name: the segments of a page, and how the pool is.
SHAPES: dict[str, tuple[list[int], dict[str, Any]]] = {
    "page_first_direct": ([8192, 8192], {}),
    "layer_first": ([512] * 8, {"layout": "layer_first"}),
    "one segment": ([12288], {"layout": "page_first"}),
    "page_first_kv_split": ([8192, 4096, 640], {"layout": "page_first_kv_split"}),
    "page_head": ([4096, 4096], {"layout": "page_head"}),
    "not aligned": ([4096, 4096], {"shift": 64}),
    "no addresses": ([4096, 4096], {"in_place": False}),
    "few pages": ([4096, 4096], {"pages": 16}),
}

PATIENCE_S = 30.0


def pool_of(shape: str = "page_first_direct", kind: type[fakes.HostPool] = fakes.HostPool) -> Any:
    """A host pool of a known shape."""
    sizes, more = SHAPES[shape]
    return kind(sizes, **more)


def random_page(rng: random.Random, pool: fakes.HostPool) -> bytes:
    """A page's bytes."""
    return rng.randbytes(pool.page_bytes)


def hang(monkeypatch: pytest.MonkeyPatch, method: str) -> threading.Event:
    """A drive whose `method` does not come back before the event."""
    free, real = threading.Event(), getattr(DriveTier, method)

    def stuck(self: DriveTier, *args: Any) -> Any:
        free.wait(PATIENCE_S)
        return real(self, *args)

    monkeypatch.setattr(DriveTier, method, stuck)
    return free


def soon(what: Callable[[], bool]) -> None:
    """Wait until something is so."""
    until_s = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < until_s
        time.sleep(0.01)


def name_of(number: int) -> str:
    """A page's name, as SGLang's: 64 hexadecimal digits."""
    return hashlib.sha256(b"%d" % number).hexdigest()


def model_in(directory: Path, weights: bytes = b"") -> str:
    """A model's directory, with weights of a few bytes."""
    directory.mkdir(exist_ok=True)
    size = len(b"{}").to_bytes(8, "little")
    (directory / "model.safetensors").write_bytes(size + b"{}" + weights)
    return str(directory)


def entry(directory: Path, **own: Any) -> dict[str, Any]:
    """An extra configuration with a drive in a directory. Its deadline is far off: a machine that
    is busy makes no page late in a test that is not about time."""
    drive = {"path": str(directory), "capacity": "64MiB", "free_floor": "1MiB"}
    store = {"restore_deadline": "1m"} | own.pop("store", {})
    settings = {"drive": drive | own.pop("drive", {}), "store": store}
    return {"interface_v1": 1, "backend_name": "pagoda", "settings": settings, **own}


class Host:
    """A storage with its pools, as SGLang's prefetch and backup threads use it."""

    config: fakes.Config

    def __init__(self, storage: Any, pools: dict[str, fakes.HostPool], *, in_place: bool) -> None:
        self.storage = storage
        self.pools = pools
        self.in_place = in_place
        storage.register_mem_pool_host(pools["kv"])
        for name, pool in pools.items():
            storage.register_mem_host_pool_v2(pool, name)
        storage.on_host_pools_registered()

    # What SGLang does: pages are taken, moved, and given back.

    def save(self, names: Sequence[str], contents: Sequence[bytes]) -> bool:
        """Back up pages of the KV; whether all of them were stored."""
        pool = self.pools["kv"]
        if not self.in_place:
            tensors = [torch.frombuffer(bytearray(c), dtype=torch.uint8) for c in contents]
            return bool(self.storage.batch_set(list(names), tensors))
        indices = pool.alloc(len(names) * pool.page_size)
        for start, content in zip(indices[:: pool.page_size], contents, strict=True):
            pool.fill(int(start), content)
        good = self.storage.batch_set_v1(list(names), indices)
        pool.free(indices)
        return all(good)

    def load(self, names: Sequence[str]) -> list[bytes | None]:
        """Prefetch pages of the KV; None from the first on that did not arrive."""
        pool = self.pools["kv"]
        if not self.in_place:
            blanks = [pool.get_dummy_flat_data_page() for _ in names]
            found = self.storage.batch_get(list(names), blanks)
            return _prefix([None if t is None else t.numpy().tobytes() for t in found])
        indices = pool.alloc(len(names) * pool.page_size)
        good = self.storage.batch_get_v1(list(names), indices)
        starts = [int(start) for start in indices[:: pool.page_size]]
        contents = [
            pool.bytes_of(start) if arrived else None
            for start, arrived in zip(starts, good, strict=True)
        ]
        pool.free(indices)
        return _prefix(contents)

    def move(self, pool: str, names: Sequence[str], indices: Any, *, reads: bool) -> list[bool]:
        """Move pages of another pool."""
        transfer = fakes.PoolTransfer(pool, indices, list(names))
        method = self.storage.batch_get_v2 if reads else self.storage.batch_set_v2
        return list(method([transfer])[pool])

    # What a test looks at.

    @property
    def shelves(self) -> Shelves:
        shelves = self.storage._backend._shelves
        assert isinstance(shelves, Shelves)
        return shelves

    @property
    def stores(self) -> list[Store]:
        return self.shelves._stores

    def volume(self, pool: str = "kv") -> Volume:
        volume = self.storage._backend._volume(pool)
        assert isinstance(volume, Volume)
        return volume

    def bounced(self) -> int:
        """Copies in memory, of segments and of whole pages."""
        return self.shelves.bounced() + int(self.storage._backend.pools.copied)

    def damage(self, name: str, *, pool: str = "kv", segment: int = 0) -> None:
        """Flip a bit of a page in the slab."""
        volume = self.volume(pool)
        [level] = volume.stores[segment].levels()
        tier = level.sealed.tier
        assert isinstance(tier, DriveTier)
        slot = level.state.slot_of(volume.key(name, segment))
        assert slot is not None
        with tier.path.open("r+b") as file:
            file.seek(slab.read_layout(tier.path).payload_at(slot) + 7)
            byte = file.read(1)[0]
            file.seek(-1, 1)
            file.write(bytes([byte ^ 1]))


def _prefix(contents: Sequence[bytes | None]) -> list[bytes | None]:
    gone = contents.index(None) if None in contents else len(contents)
    return [*contents[:gone], *[None] * (len(contents) - gone)]


@contextmanager
def hosts(cache: Path, model: str, bags: Any = None, updater: type | None = None) -> Iterator[Any]:
    """Builds hosts; all are closed at the end."""
    made: list[Host] = []
    with fakes.fake_sglang(bags or fakes.bags_of(model), updater) as cls:

        def build(extra: dict[str, Any], pools: dict[str, fakes.HostPool], **config: Any) -> Host:
            given = fakes.Config(extra_config=extra, **config)
            host = Host(cls(given, {}), pools, in_place=bool(extra["interface_v1"]))
            host.config = given
            made.append(host)
            return host

        yield build
        for host in made:
            host.storage.close()
