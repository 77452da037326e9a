"""The engine's caches as operators reach them: each call is carried out in the engine's thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pagoda.core.errors import EngineBusy, EngineClosed, RequestError
from pagoda.core.holdings import (
    BarredNamespace,
    Cleared,
    Holding,
    Lookup,
    Prefetched,
    Scope,
    TierStatus,
    Ttl,
)
from pagoda.core.pins import PinStatus, PinWish
from pagoda.engine.api import Cache
from pagoda.store.admin import Admin

Ask = Callable[[Callable[[], Any]], Any]
_CLEARED_S = 330.0  # longer than a clearing takes, whatever hangs below the engine's thread


class EngineCache(Cache):
    """See `engine.api.Cache`. `ask` runs a function in the engine's thread and returns, or
    raises, what it does."""

    def __init__(self, admin: Admin, ask: Ask) -> None:
        self._admin = admin
        self._ask = ask
        self._clearings: list[Future[Cleared]] = []

    def holdings(self, scope: Scope) -> list[Holding]:
        found: list[Holding] = self._ask(lambda: self._admin.holdings(scope))
        return found

    def tiers(self) -> list[TierStatus]:
        found: list[TierStatus] = self._ask(self._admin.tiers)
        return found

    def drain(self, tier: str) -> TierStatus:
        found: TierStatus = self._ask(lambda: self._admin.drain(tier))
        return found

    def lookup(self, prompt: Sequence[int], salt: str) -> Lookup:
        found: Lookup = self._ask(lambda: self._admin.lookup(prompt, salt))
        return found

    def clear(self, scope: Scope) -> Future[Cleared]:
        cleared: Future[Cleared] = Future()
        self._ask(lambda: self._begin(scope, cleared))
        return cleared

    def clear_everything(self) -> int:
        """Clear all and wait for the end of it; returns how many blocks went. Raises RequestError
        when it is not proven that a restart finds none of them."""
        try:
            cleared = self.clear(Scope()).result(timeout=_CLEARED_S)
        except TimeoutError:
            raise EngineBusy(
                f"clearing did not end in {_CLEARED_S:g} s: the engine's thread hangs",
                remedy="see the server's log",
            ) from None
        if not cleared.verified:
            tiers = ", ".join(scan.tier for scan in cleared.scans if scan.left != 0) or "a tier"
            raise RequestError(
                f"no block can be found any more, but a restart may find some in {tiers}",
                code="not_cleared",
                remedy="a header could not be erased or read back; see the log, and clear again",
            )
        return sum(cleared.dropped.values())

    def quarantined(self) -> list[BarredNamespace]:
        found: list[BarredNamespace] = self._ask(self._admin.quarantined)
        return found

    def lift(self, namespace: str) -> BarredNamespace:
        lifted: BarredNamespace = self._ask(lambda: self._admin.lift(namespace))
        return lifted

    def ttls(self) -> list[Ttl]:
        found: list[Ttl] = self._ask(self._admin.ttls)
        return found

    def set_ttl(self, seconds: float | None, *, tenant: str | None, salt: str | None) -> None:
        self._ask(lambda: self._admin.set_ttl(seconds, tenant=tenant, salt=salt))

    def prefetch(self, prompt: Sequence[int], salt: str) -> Prefetched:
        found: Prefetched = self._ask(lambda: self._admin.prefetch(prompt, salt))
        return found

    def prefetches(self) -> list[Prefetched]:
        found: list[Prefetched] = self._ask(self._admin.prefetches)
        return found

    def pin(
        self, prompt: Sequence[int], salt: str, wish: PinWish, *, wait_s: float = 0.0
    ) -> PinStatus:
        settled: Future[bool] = Future()

        def begin() -> PinStatus | None:
            return self._admin.pins.status(self._admin.pin(prompt, salt, wish, settled.set_result))

        begun: PinStatus = self._ask(begin)
        with suppress(TimeoutError):
            return replace(begun, durable=settled.result(timeout=wait_s))
        return begun

    def pins(self) -> list[PinStatus]:
        found: list[PinStatus] = self._ask(self._admin.pins.all)
        return found

    def unpin(self, id: str | None, *, owner: str | None) -> int:
        gone: int = self._ask(lambda: self._admin.pins.remove(id, owner=owner))
        return gone

    def close(self) -> None:
        """In the engine's thread, at its end: whoever waits for a clearing hears of it."""
        for cleared in self._clearings:
            if not cleared.done():
                cleared.set_exception(EngineClosed("the engine ended while it was clearing"))

    def _begin(self, scope: Scope, cleared: Future[Cleared]) -> None:
        def tell(what: Cleared) -> None:
            if not cleared.done():  # whoever waited may have given up
                cleared.set_result(what)

        self._clearings = [*(one for one in self._clearings if not one.done()), cleared]
        self._admin.clear(scope, tell)
