"""The caches of an engine without a model: canned facts, and a record of what was asked."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from pagoda.core.errors import PagodaError, PinRefused, RequestError
from pagoda.core.holdings import (
    SHARED,
    BarredNamespace,
    Cleared,
    Holding,
    Lookup,
    Place,
    Prefetched,
    PrefetchState,
    Scanned,
    Scope,
    Standing,
    TierStatus,
    Ttl,
    tenant_id,
)
from pagoda.core.pins import PinPlace, PinStatus, PinWish
from pagoda.engine.api import Cache

__all__ = ["FakeCache"]

_TIERS = {"host": 3, "drive": 5}  # blocks in each
_MOST_TOKENS = 1024  # of a pin


@dataclass
class FakeCache(Cache):
    """Blocks of 16 tokens: half of every prompt is resident in `host`, prefetches take three looks
    to end, and a pin may have 64 blocks. `asked` keeps each call; `failure` is raised by all, once
    it is set. Clearings end at once unless `hold` is set; then they wait in `held`. `barred`
    is what is in quarantine."""

    asked: list[tuple[Any, ...]] = field(default_factory=list)
    failure: PagodaError | None = None
    hold: bool = False
    held: list[Future[Cleared]] = field(default_factory=list)
    barred: list[BarredNamespace] = field(default_factory=list)
    _ttls: dict[str | None, float] = field(default_factory=dict)
    _draining: set[str] = field(default_factory=set)
    _pins: list[PinStatus] = field(default_factory=list)
    _looks: int = 0

    def holdings(self, scope: Scope) -> list[Holding]:
        self._note("holdings", scope)
        tenants = {"host": SHARED, "drive": tenant_id("a")}
        return [_holding(tier, tenants[tier], blocks) for tier, blocks in _TIERS.items()]

    def tiers(self) -> list[TierStatus]:
        self._note("tiers")
        return [self._tier(name) for name in _TIERS]

    def drain(self, tier: str) -> TierStatus:
        self._note("drain", tier)
        if tier not in _TIERS:
            raise RequestError(f"no tier is called {tier!r}", param="tier", code="not_found")
        self._draining.add(tier)
        return self._tier(tier)

    def lookup(self, prompt: Sequence[int], salt: str) -> Lookup:
        self._note("lookup", tuple(prompt), salt)
        tokens = len(prompt) // 2 // 16 * 16
        return Lookup(
            prompt_tokens=len(prompt),
            block_tokens=16,
            resident_tokens=tokens,
            places=(
                Place(tier="device", held=0, first=0),
                Place(tier="host", held=tokens, first=tokens),
            ),
        )

    def clear(self, scope: Scope) -> Future[Cleared]:
        self._note("clear", scope)
        done: Future[Cleared] = Future()
        if self.hold:
            self.held.append(done)
        else:
            done.set_result(cleared())
        return done

    def quarantined(self) -> list[BarredNamespace]:
        self._note("quarantined")
        return list(self.barred)

    def lift(self, namespace: str) -> BarredNamespace:
        self._note("lift", namespace)
        found = [one for one in self.barred if one.namespace.startswith(namespace)]
        if not found:
            raise RequestError("not in quarantine", param="namespace", code="not_found")
        self.barred.remove(found[0])
        return found[0]

    def ttls(self) -> list[Ttl]:
        self._note("ttls")
        return [Ttl(tenant=tenant, seconds=seconds) for tenant, seconds in self._ttls.items()]

    def set_ttl(self, seconds: float | None, *, tenant: str | None, salt: str | None) -> None:
        self._note("set_ttl", seconds, tenant, salt)
        name = tenant if salt is None else tenant_id(salt)
        self._ttls.pop(name, None)
        if seconds is not None:
            self._ttls[name] = seconds

    def prefetch(self, prompt: Sequence[int], salt: str) -> Prefetched:
        self._note("prefetch", tuple(prompt), salt)
        self._looks = 0
        return self._progress()

    def prefetches(self) -> list[Prefetched]:
        self._note("prefetches")
        self._looks = min(3, self._looks + 1)
        return [self._progress()]

    def pin(
        self, prompt: Sequence[int], salt: str, wish: PinWish, *, wait_s: float = 0.0
    ) -> PinStatus:
        self._note("pin", tuple(prompt), salt, wish, wait_s)
        if len(prompt) > _MOST_TOKENS:
            raise PinRefused(
                "the pins' budget in host has 0 of 64 blocks in use, and the pin needs more",
                remedy="pin a shorter prefix, or raise pins.total",
                tier="host",
                used=0,
                asked=len(prompt) // 16,
                limit=_MOST_TOKENS // 16,
            )
        one = _pinned(f"{len(self._pins):016x}", len(prompt) // 16, salt, wish)
        self._pins.append(one)
        return one

    def pins(self) -> list[PinStatus]:
        self._note("pins")
        return list(self._pins)

    def unpin(self, id: str | None, *, owner: str | None) -> int:
        self._note("unpin", id, owner)
        kept = [
            one for one in self._pins if id not in (None, one.id) or owner not in (None, one.owner)
        ]
        gone = len(self._pins) - len(kept)
        if id is not None and not gone:
            raise RequestError("there is no such pin", param="id", code="not_found")
        self._pins = kept
        return gone

    def _progress(self) -> Prefetched:
        state = PrefetchState.DONE if self._looks == 3 else PrefetchState.RUNNING
        return Prefetched(id="prefetch-1", state=state, blocks=4, present=1, done=self._looks)

    def _tier(self, name: str) -> TierStatus:
        standing = Standing.DRAINING if name in self._draining else Standing.SERVING
        return TierStatus(tier=name, standing=standing, blocks=_TIERS[name], slots=8, policy="lru")

    def _note(self, *call: Any) -> None:
        self.asked.append(call)
        if self.failure is not None:
            raise self.failure


def cleared() -> Cleared:
    """Three blocks and one leftover header, all gone."""
    scan = Scanned(tier="drive", headers=7, left=0, newer=0)
    return Cleared(dropped={"host": 1, "drive": 2}, erased=1, scans=(scan,), verified=True)


def _pinned(id: str, blocks: int, salt: str, wish: PinWish) -> PinStatus:
    return PinStatus(
        id=id,
        owner=wish.owner,
        tenant=tenant_id(salt),
        namespace="ab" * 32,
        blocks=blocks,
        tokens=blocks * 16,
        budget=wish.budget or 0.25,
        until_s=1_000 + (wish.expires_s or 60),
        durable=True,
        places=(
            PinPlace(tier="device", granted=False, resident=0),
            PinPlace(tier="host", granted=True, resident=blocks // 2),
        ),
    )


def _holding(tier: str, tenant: str, blocks: int) -> Holding:
    return Holding(
        tier=tier,
        namespace="ab" * 32,
        tenant=tenant,
        current=True,
        blocks=blocks,
        size_bytes=blocks * 4096,
        tokens=blocks * 16,
        longest_chain=blocks,
        oldest_s=1_000,
        newest_s=2_000,
    )
