"""A store with its administration and a few device blocks, stepped by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from store_harness import SIZE, Harness, truth

from pagoda.core.holdings import Cleared, Scope
from pagoda.core.identity import ROOT, Key, Namespace
from pagoda.core.pins import PinLimits, PinWish
from pagoda.engine.device import Birth, DeviceBlocks
from pagoda.engine.shelf import DeviceShelf
from pagoda.store.admin import Admin
from pagoda.store.block import Block
from pagoda.store.catalogue import Catalogue
from pagoda.store.pins import PinPlan
from pagoda.store.pins_file import PinsFile
from pagoda.store.scopes import Served
from pagoda.testing.faulty_shared import FaultyShared

WIDTH = 16
SERVED = Served(
    namespace=Namespace(
        weights=bytes(32), config="{}", layout="l", dtype="bfloat16", scales="none", layers=1,
        kv_heads=1, head_dim=64, block_tokens=WIDTH, tp_rank=0, tp_size=1, pp_rank=0, pp_size=1,
        rope="", adapter="", salt="",
    ),
    block_tokens=WIDTH,
    block_bytes=SIZE,
)  # fmt: skip
NEW_WEIGHTS = replace(SERVED, namespace=replace(SERVED.namespace, weights=bytes([1]) * 32))


class AdminHarness(Harness):
    """`served` may be exchanged before `restart`, as new weights are."""

    def __init__(
        self,
        directory: Path,
        *,
        upper: int = 64,
        lower: int = 64,
        shared: FaultyShared | None = None,
        seed: int = 0,
        limits: PinLimits | None = None,
    ) -> None:
        self.directory = directory
        self.served = SERVED
        self.limits = limits or PinLimits()
        super().__init__(upper=upper, lower=lower, shared=shared, seed=seed)

    def open(self) -> None:
        super().open()
        self.device = DeviceBlocks(
            16, view=lambda block: truth(Key(bytes(32))), policy="lru", wall_s=self.wall_s
        )
        shelf = DeviceShelf(self.device, block_bytes=SIZE)
        catalogue = Catalogue([self.directory])
        pins = PinPlan(limits=self.limits, file=PinsFile([self.directory]))
        self.admin = Admin(self.store, catalogue, shelf, served=self.served, pins=pins)
        self.admin.start()
        self.settle()

    def restart(self) -> None:
        """A clean end, and the same tiers anew."""
        self.admin.close()
        self.open()

    def settle(self) -> None:
        super().settle()
        while True:
            self.admin.poll()
            if not self.executor.pending():
                break
            super().settle()

    def settle_upper(self) -> None:
        """Run I/O until the upper tier has what was saved, and the lower one nothing yet."""
        upper, lower = self.store.levels()
        while not upper.state.published_count():
            self.store.poll()
            assert self.executor.step(), "something was saved"
            self.store.poll()
        assert not lower.state.published_count()

    def wall_s(self) -> int:
        """Seconds since the epoch."""
        return self.clock.wall_ms() // 1000

    def tokens(self, first: int, blocks: int = 4) -> list[int]:
        """A prompt of whole blocks that begins with `first`."""
        return [first] * WIDTH + list(range(WIDTH * (blocks - 1)))

    def put(self, prompt: Sequence[int], *, salt: str = "", known: bool = True) -> list[Key]:
        """Store a prompt's blocks as a request would have them stored."""
        name = self.served.namespace_of(salt)
        if known:
            self.admin.meet(name, salt)
        keys = self.served.keys(prompt, salt)
        blocks = [
            Block(
                namespace=name,
                key=key,
                parent=keys[at - 1] if at else ROOT,
                depth=at,
                tokens=WIDTH,
                payload=truth(key),
            )
            for at, key in enumerate(keys)
        ]
        self.store.save(blocks, lambda block: None)
        return keys

    def fill(self, first: int, prompts: int) -> None:
        """Store other prompts of four blocks each, one after the other."""
        for number in range(first, first + prompts):
            self.put(self.tokens(number))
            self.settle()

    def found(self, keys: list[Key]) -> int:
        """Blocks that a request would find in the tiers."""
        return self.store.match(keys)

    def pin(
        self,
        first: int,
        blocks: int = 4,
        *,
        owner: str = "a",
        salt: str = "",
        expires_s: float | None = 60,
        budget: float | None = None,
    ) -> str:
        """Pin a prompt, and wait until it is written down."""
        wish = PinWish(owner=owner, expires_s=expires_s, budget=budget)
        told: list[bool] = []
        id = self.admin.pin(self.tokens(first, blocks), salt, wish, told.append)
        self.settle()
        assert told == [True]
        return id

    def compute(self, prompt: Sequence[int], *, salt: str = "", held: bool = False) -> list[Key]:
        """Cache a prompt's blocks on the device; `held`: by a running request."""
        keys = self.served.keys(prompt, salt)
        for at, key in enumerate(keys):
            reserved = self.device.reserve(1)
            assert reserved is not None, "the test's device is large enough"
            birth = Birth(
                namespace=self.served.namespace_of(salt),
                parent=keys[at - 1] if at else ROOT,
                depth=at,
                created_s=self.wall_s(),
            )
            assert self.device.publish(reserved[0], key, birth.parent, birth), (
                "each prompt is computed once"
            )
            if not held:
                self.device.give_back(reserved)
        return keys

    def clear(self, scope: Scope) -> Cleared:
        """Clear, and wait for the end of it."""
        told: list[Cleared] = []
        self.admin.clear(scope, told.append)
        self.settle()
        assert len(told) == 1, "a clearing ends once"
        return told[0]

    def clear_to_the_answer(self, scope: Scope) -> Cleared:
        """Clear, and go no further than to the answer; I/O threads finish what they have."""
        told: list[Cleared] = []
        self.admin.clear(scope, told.append)
        while not told:
            self.executor.step()
            self.store.poll()
            self.admin.poll()
        self.executor.drain()
        return told[0]

    def on_medium(self) -> int:
        """Headers in both tiers."""
        return len(list(self.upper.scan())) + len(list(self.lower.scan()))
