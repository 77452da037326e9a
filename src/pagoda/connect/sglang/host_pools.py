"""SGLang's host pools as they were registered, and how pages of each are moved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pagoda.connect.sglang.held import GuardedPool, aside_of
from pagoda.connect.sglang.pages import InPlace, Pages, Staged, pages_of

KV = "kv"


@dataclass(slots=True, eq=False)
class HostPool:
    """A host pool. `owner` is the pool whose indices it has, once that is known; with `staged`
    its pages can be moved without touching SGLang's memory while I/O goes on."""

    pool: Any
    pages: Pages
    staged: Pages
    guard: GuardedPool | None
    owner: str = ""


class HostPools:
    """The pools of one process, by name. Pages are moved in place only with `in_place`."""

    def __init__(self, *, in_place: bool) -> None:
        self._in_place = in_place
        self._pools: dict[str, HostPool] = {}

    def register(self, pool: Any, name: str) -> None:
        """A host pool of SGLang. Raises UnsupportedModel for one whose bytes are not known."""
        if name in self._pools:
            return
        pages = pages_of(pool, name, in_place=self._in_place)
        aside = aside_of(pages.count, sum(pages.sizes)) if isinstance(pages, InPlace) else 0
        guard = GuardedPool(pool, tokens=pages.tokens, aside=aside) if aside else None
        staged = Staged(pages) if isinstance(pages, InPlace) else pages
        self._pools[name] = HostPool(pool, pages, staged, guard, owner=KV if name == KV else "")

    def derives(self, name: str, source: str | None) -> None:
        """A pool has indices of its own, or those of another one."""
        if name in self._pools:
            self._pools[name].owner = source or name

    def all(self) -> Mapping[str, tuple[Any, Pages]]:
        """Each pool with its pages."""
        return {name: (one.pool, one.pages) for name, one in self._pools.items()}

    def way(self, name: str) -> tuple[Pages, GuardedPool | None]:
        """In place where the pool that owns the indices has pages set aside, else staged."""
        one = self._pools[name]
        owner = self._pools.get(one.owner)
        if owner is None or owner.guard is None or not owner.guard.limit:
            return one.staged, None
        return one.pages, owner.guard

    def staged(self, name: str) -> Pages:
        """Through memory of our own."""
        return self._pools[name].staged

    def settle(self) -> None:
        """Take back pages that no I/O touches any more."""
        for guard in self._guards():
            guard.settle()

    def leave(self) -> None:
        """Pools are as they were, but for those of which pages are held."""
        self.settle()
        for guard in self._guards():
            guard.leave()

    @property
    def held(self) -> int:
        """Pages of host memory that I/O of an ended call may still touch."""
        return sum(len(guard) for guard in self._guards())

    @property
    def copied(self) -> int:
        """Pages that were copied in memory."""
        forms = {id(form): form for one in self._pools.values() for form in (one.pages, one.staged)}
        return sum(form.copied for form in forms.values())

    def _guards(self) -> list[GuardedPool]:
        return [one.guard for one in self._pools.values() if one.guard is not None]
