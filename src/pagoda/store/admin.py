"""Administration of a store: who holds what, clearing, times to live, prefetching.

One object beside the store, in the owner's thread. It owns the catalogue of namespaces, and
everything that goes on in the background is moved on by `poll`.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from pagoda.core.errors import RequestError, TierError
from pagoda.core.holdings import (
    BarredNamespace,
    Cleared,
    Holding,
    Lookup,
    Prefetched,
    PrefetchState,
    Scope,
    Selection,
    TierStatus,
    Ttl,
    tenant_id,
)
from pagoda.core.identity import ROOT, NamespaceId
from pagoda.core.pins import PinWish
from pagoda.store import census, quarantine
from pagoda.store.block import Block
from pagoda.store.catalogue import Catalogue, Origin
from pagoda.store.clearing import Above, Clearing
from pagoda.store.executor import Kind, Lane
from pagoda.store.expiry import Expiring, Expiry
from pagoda.store.overview import Overview, Shown
from pagoda.store.pins import Pinnable, PinPlan, Pins
from pagoda.store.pins_keeper import Told
from pagoda.store.prefetch import Prefetch
from pagoda.store.scopes import Scopes, Served
from pagoda.store.store import Store

_WRITE_EVERY_S = 5.0  # the catalogue, at most
_PREFETCHES = 64  # remembered
_PREFETCHES_AT_A_TIME = 4


class Device(Above, Expiring, Shown, Pinnable, Protocol):
    """The engine's own blocks, as administration needs them."""


class Admin:
    """What operators may ask of one engine's caches."""

    def __init__(
        self,
        store: Store,
        catalogue: Catalogue,
        device: Device,
        *,
        served: Served,
        pins: PinPlan | None = None,
    ) -> None:
        runtime = store.runtime
        self._store = store
        self._catalogue = catalogue
        self._device = device
        self._served = served
        self._runtime = runtime
        self._clock = runtime.clock
        self._generation = served.generation
        self._scopes = Scopes(store.levels(), catalogue, served=served, wall_ms=runtime.wall_ms)
        self._overview = Overview(store, catalogue, device, served=served)
        self._expiry = Expiry(store, catalogue, device, wall_ms=runtime.wall_ms)
        self.pins = Pins(store, device, pins or PinPlan(), served=served)
        self._clearings: list[Clearing] = []
        self._prefetches: OrderedDict[str, Prefetch] = OrderedDict()
        self._numbers = itertools.count(1)
        self._write_s = 0.0
        self._writing = False

    def start(self) -> None:
        """Before the first request: forget namespaces that are gone, drop what is expired, and
        let blocks of other weights be the first to go."""
        held = census.namespaces_held(self._store.levels())
        self._catalogue.retain(held, self._generation)
        self.meet(self._served.namespace.digest(), "")
        self.pins.start()
        self._expiry.poll()
        for level in self._store.levels():
            slots = census.published(level)
            seals = level.sealed.seals
            live = np.array([self._is_live(name) for name in list(seals.namespaces)] or [True])
            slots = slots[live[seals.namespace_of[slots]]] if len(slots) else slots
            if len(slots) < level.state.published_count():
                newest_first = np.lexsort(
                    (seals.depths[slots], -seals.created_s[slots].astype(int))
                )
                level.residency.touch(slots[newest_first].tolist())

    def meet(self, namespace: NamespaceId, salt: str) -> None:
        """A request's namespace: whose it is, and that it is served now."""
        self._catalogue.meet(namespace, Origin(tenant_id(salt), self._generation))

    def poll(self) -> None:
        """Move on what goes on in the background. After `Store.poll`, before any look-up."""
        self._expiry.poll()
        self.pins.poll()
        for clearing in self._clearings:
            clearing.poll()
        self._clearings = [clearing for clearing in self._clearings if not clearing.done]
        for prefetch in self._prefetches.values():
            prefetch.poll()
        self._write()

    @property
    def idle(self) -> bool:
        """Nothing is under way in the background but what waits for a time to come."""
        return not self._clearings and not self._running()

    def close(self) -> None:
        """Write the catalogue and pins down. Blocks on I/O."""
        self.pins.close()
        if self._catalogue.changed:
            self._catalogue.write(self._catalogue.text())

    # What is there: see `store.overview`.

    def holdings(self, scope: Scope) -> list[Holding]:
        """Blocks by tier and namespace, fastest tier first."""
        return self._overview.holdings(self._scopes.selection(scope))

    def lookup(self, prompt: Sequence[int], salt: str) -> Lookup:
        """How much of a prompt is resident where. Changes nothing."""
        return self._overview.lookup(prompt, salt)

    def tiers(self) -> list[TierStatus]:
        """How each tier stands, fastest first."""
        return self._overview.tiers()

    # What is to go.

    def drain(self, tier: str) -> TierStatus:
        """Write no more to a tier while this process lives. RequestError for no tier's name."""
        try:
            self._store.drain(tier)
        except TierError as error:
            raise RequestError(
                error.message, param="tier", code="not_found", remedy=error.remedy
            ) from error
        return next(status for status in self.tiers() if status.tier == tier)

    def clear(self, scope: Scope, tell: Callable[[Cleared], None]) -> None:
        """Clear a scope in the background; `tell` is called at its end. What can be named
        without reading headers cannot be found any more once this returns. Prefetches that may
        bring some of it up again are stopped. A namespace that is cleared as a whole, everywhere,
        is out of quarantine. RequestError when the scope names nothing."""
        selection = self._scopes.selection(scope)
        for prefetch in self._prefetches.values():
            if selection.may_name(prefetch.namespace):
                prefetch.stop()
        self.pins.forget(selection)
        clearing = Clearing(
            self._store,
            selection,
            self._device,
            runtime=self._runtime,
            tell=lambda cleared: self._cleared(selection, cleared, tell),
        )
        self._clearings.append(clearing)
        clearing.start()

    def quarantined(self) -> list[BarredNamespace]:
        """Namespaces in quarantine, the oldest first."""
        return quarantine.listed(self._store.quarantine, self._catalogue)

    def lift(self, namespace: str) -> BarredNamespace:
        """Hand out and store blocks of a namespace again, which is named by how it begins.
        RequestError for one that is not in quarantine."""
        found = quarantine.named(self.quarantined(), namespace)
        self._store.quarantine.lift(NamespaceId(bytes.fromhex(found.namespace)))
        return found

    def ttls(self) -> list[Ttl]:
        """Times to live that are set."""
        return self._catalogue.ttls()

    def set_ttl(self, seconds: float | None, *, tenant: str | None, salt: str | None) -> None:
        """Set or remove (None) that of a tenant, by its id or salt, or of all tenants without
        one of their own. Blocks that are older already are gone before the next look-up."""
        if salt is not None:
            self.meet(self._served.namespace_of(salt), salt)
            tenant = tenant_id(salt)
        self._catalogue.set_ttl(tenant, seconds)
        self._expiry.reset()
        self._write_s = 0.0

    # What is to stay, and what is to come up.

    def pin(self, prompt: Sequence[int], salt: str, wish: PinWish, told: Told) -> str:
        """Pin a prompt's blocks (see Pins.add)."""
        self.meet(self._served.namespace_of(salt), salt)
        return self.pins.add(prompt, salt, wish, told)

    def prefetch(self, prompt: Sequence[int], salt: str) -> Prefetched:
        """Bring a prompt's blocks into the fastest tier, in the background."""
        if self._running() >= _PREFETCHES_AT_A_TIME:
            raise RequestError(
                f"{_PREFETCHES_AT_A_TIME} prefetches are running",
                code="rate_limit_exceeded",
                remedy="ask again when one of them is done",
            )
        name = self._served.namespace_of(salt)
        self.meet(name, salt)
        keys = self._served.keys(prompt, salt)
        blocks = [
            Block(
                namespace=name,
                key=key,
                parent=keys[depth - 1] if depth else ROOT,
                depth=depth,
                tokens=self._served.block_tokens,
                payload=memoryview(b""),
            )
            for depth, key in enumerate(keys)
        ]
        id = f"prefetch-{next(self._numbers)}"
        found = Prefetch(
            self._store, blocks, namespace=name, id=id, payload_bytes=self._served.block_bytes
        )
        self._prefetches[id] = found
        if len(self._prefetches) > _PREFETCHES:  # the oldest ended long ago: few run at a time
            self._prefetches.popitem(last=False)
        found.poll()
        return found.progress

    def prefetches(self) -> list[Prefetched]:
        """Those that run and those that ended of late, the oldest first."""
        return [prefetch.progress for prefetch in self._prefetches.values()]

    # Helpers.

    def _cleared(
        self, selection: Selection, cleared: Cleared, tell: Callable[[Cleared], None]
    ) -> None:
        whole = selection.below is None and selection.before_s is None
        if whole and cleared.verified and not cleared.untouched:
            for namespace in self._store.quarantine.entries():
                if selection.may_name(namespace):
                    self._store.quarantine.lift(namespace)
        tell(cleared)

    def _running(self) -> int:
        states = [prefetch.progress.state for prefetch in self._prefetches.values()]
        return states.count(PrefetchState.RUNNING)

    def _is_live(self, namespace: NamespaceId) -> bool:
        """Served now, or nobody knows."""
        origin = self._catalogue.origin(namespace)
        return origin is None or origin.generation == self._generation

    def _write(self) -> None:
        """Write the catalogue down in the background, now and then."""
        if not self._catalogue.changed or self._writing or self._clock() < self._write_s:
            return
        self._write_s = self._clock() + _WRITE_EVERY_S
        self._writing = True
        text = self._catalogue.text()

        def written(whole: bool) -> None:
            del whole  # told by the log; the next change writes all copies again
            self._writing = False

        lane = Lane("catalogue", Kind.CHECK)
        self._store.orders.send(lane, lambda: self._catalogue.write(text), written)
