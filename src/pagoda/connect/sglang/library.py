"""The volumes of one process: opened over the drives, each with a directory and a share of its
own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pagoda.connect.names import NamesFile
from pagoda.connect.opening import store_of, weights_of
from pagoda.connect.sglang.namespace import namespace_of
from pagoda.connect.sglang.options import WHOSE
from pagoda.connect.sglang.pages import Pages, is_shared, layout_of
from pagoda.connect.sglang.served import Rank, Served
from pagoda.connect.sglang.shelves import Shelves, Volume
from pagoda.connect.withheld import HiddenBlocks
from pagoda.core.checking import TOLERANCES, Form
from pagoda.core.errors import SettingsError
from pagoda.core.events import Event, Observer
from pagoda.core.identity import DIGEST_BYTES
from pagoda.settings.storage import check_plan
from pagoda.settings.tree import Settings
from pagoda.store.store import CheckPlan, Store
from pagoda.tiers.drive import Owner
from pagoda.tiers.drive.superblock import PAGE_BYTES

_KV = "kv"
OWNER = Owner("SGLang", levels=2)  # a rank's directory, and a pool's in it
Pool = tuple[Any, Pages]  # a host pool of SGLang, and its pages


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """Who stores, where, and under which names."""

    settings: Settings
    served: Served
    rank: Rank
    salt: str = ""
    each_rank_writes: bool = False

    def require_a_writer(self) -> None:
        """Raises SettingsError where this rank could read only what another writes, and nothing
        is shared: all ranks have to agree on a prefix, so none would ever be restored."""
        one_writes = self.rank.replicated and self.rank.tp[1] > 1 and not self.each_rank_writes
        if one_writes and not self.settings.remote.url:
            raise SettingsError(
                "the KV of this model is the same on all tensor-parallel ranks, of which one "
                "writes; the others cannot read its drive",
                key="remote.url",
                source=WHOSE,
                remedy="set remote.url to a shared store, or each_rank_writes to true, which takes "
                "as many times the room and the writes, or use --enable-dp-attention",
            )

    def open(
        self, pools: Mapping[str, Pool], shelves: Shelves, observer: Observer
    ) -> dict[str, Volume]:
        """A volume for each pool, its stores in `shelves`. Raises TierError, such as
        DirectoryLocked when another server has a directory, and SettingsError."""
        weights = weights_of(self.settings, self.served.model_path, whose=WHOSE)
        served = self._with_draft()
        total = sum(_weight(pool) for pool in pools.values())
        volumes: dict[str, Volume] = {}
        for name, (pool, pages) in pools.items():
            space = namespace_of(
                served,
                self.rank,
                layout_of(pool, name, pages),
                weights=weights,
                salt=self.salt,
                shared=is_shared(pool, name, replicated=self.rank.replicated),
            )
            share = _weight((pool, pages)) / total
            stores = self._stores(name, (pool, pages), share, shelves, observer)
            volumes[name] = Volume(
                namespace=space.digest(),
                tokens=pages.tokens,
                sizes=pages.sizes,
                stores=tuple(stores[size] for size in pages.sizes),
                hidden=HiddenBlocks(stores[pages.sizes[0]].checks),
            )
        return volumes

    def names(self, volume: Volume) -> NamesFile | None:
        """The file of SGLang's names of a volume's pages, beside this rank's pools on the first
        drive, if there is one."""
        directories = self.settings.drive.directories()
        if not directories:
            return None
        directory = directories[0] / self.rank.directory
        return NamesFile(directory, volume.namespace, engine="sglang", name_bytes=DIGEST_BYTES)

    def _with_draft(self) -> Served:
        """What proposes tokens has KV of its own, by its own weights."""
        if not self.served.draft_path:
            return self.served
        nowhere = self.settings.model.model_copy(update={"path": ""})
        settings = self.settings.model_copy(update={"model": nowhere})
        digest = weights_of(settings, self.served.draft_path, whose=WHOSE)
        return replace(self.served, draft=f"{self.served.draft}/{digest.hex()}")

    def _check(self, name: str, pool: Pool, size: int) -> CheckPlan | None:
        """How segments of a size are checked; only the KV's are. Raises SettingsError for those
        that cannot be compared as numbers."""
        if name != _KV or not self.settings.check.rate:
            return None
        host, pages = pool
        dtype = str(host.dtype).removeprefix("torch.")
        if dtype not in TOLERANCES:
            raise SettingsError(
                f"KV of the type {dtype} cannot be checked against what is computed again",
                key="check.rate",
                source=WHOSE,
                remedy="set check.rate to 0",
            )
        layers = int(getattr(host, "layer_num", 1))
        parts = layers if size % (4 * layers) == 0 else 1
        form = Form(dtype=dtype, parts=parts, part_bytes=size // parts)
        return check_plan(self.settings.check, form=form, block_tokens=pages.tokens)

    def _stores(
        self, name: str, pool: Pool, share: float, shelves: Shelves, observer: Observer
    ) -> dict[int, Store]:
        """By size of segment."""
        _, pages = pool
        stores: dict[int, Store] = {}
        sizes = sorted(set(pages.sizes))
        for number, size in enumerate(sizes):
            part = pages.sizes.count(size) * _slot_bytes(size) / sum(map(_slot_bytes, pages.sizes))
            directory = name if len(sizes) == 1 else f"{name}-{number}"
            stores[size] = store_of(
                placed(self.settings, f"{self.rank.directory}/{directory}", share * part),
                owner=OWNER,
                chunk_bytes=_slot_bytes(size),
                chunks=pages.sizes.count(size) * pages.count,
                observer=_labelled(observer, directory),
                wake=shelves.wake,
                check=self._check(name, pool, size),
            )
            shelves.add(stores[size])
        return stores


def placed(settings: Settings, directory: str, share: float) -> Settings:
    """The settings of one store: its directory below each of the drives' paths, its share of what
    they hold and of what may be written, and half the time for what is read."""
    drive = settings.drive
    paths = [str(path / directory) for path in drive.directories()]
    own = drive.model_copy(
        update={
            "path": ",".join(paths) if paths else "off",
            "capacity": int(drive.capacity * share),
            "writes_per_day": drive.writes_per_day * share,
            "total_writes": -int(-drive.total_writes * share // 1),
        }
    )
    store = settings.store.model_copy(
        update={
            "restore_deadline": settings.store.restore_deadline / 2,
            "scrub_rate": int(settings.store.scrub_rate * share),
        }
    )
    return settings.model_copy(update={"drive": own, "store": store})


def _weight(pool: Pool) -> int:
    """Bytes that as many pages take as are in host memory: SGLang sizes its pools by how much of
    each is needed."""
    _, pages = pool
    return pages.count * sum(map(_slot_bytes, pages.sizes))


def _slot_bytes(size: int) -> int:
    """A segment's place on a drive."""
    return -(-size // PAGE_BYTES) * PAGE_BYTES


def _labelled(observer: Observer, directory: str) -> Callable[[Event], None]:
    """Tell tiers of several stores apart: the KV's have their plain names."""
    if directory == "kv":
        return observer

    def tell(event: Event) -> None:
        told: Any = event
        observer(replace(told, tier=f"{directory}:{told.tier}") if hasattr(told, "tier") else told)

    return tell
