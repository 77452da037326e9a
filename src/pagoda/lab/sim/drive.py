"""A drive of a node as it outlives processes: its medium, its account of wear, its health."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

from pagoda.core.budget import DAY_S, Account, Endurance, WriteBudget, new_account
from pagoda.core.errors import TierFault
from pagoda.core.identity import Key
from pagoda.lab.sim.failure import Check, ensure
from pagoda.machine.smart import DriveHealth
from pagoda.seal.digest import digest
from pagoda.seal.header import EMPTY
from pagoda.store.health import Care, Space
from pagoda.store.wear import Wear
from pagoda.testing.clock import FakeClock
from pagoda.testing.memory import Medium

SLOT_BYTES = 1 << 20  # what a block takes of a budget; its payload is much shorter
_FLOOR_BYTES = 1 << 30
_UNLIMITED = Endurance()
# Of a header (docs/design/format.md): where its fields lie, and where its own digest begins.
_GENERATION, _CREATED, _KEY, _BODY = slice(16, 24), slice(24, 32), slice(64, 96), 240


@dataclass(frozen=True, slots=True)
class Label:
    """What a header says, read by the naive model's own means."""

    slot: int
    generation: int
    created_ms: int
    key: Key


def label_of(slot: int, header: bytes) -> Label:
    """The fields of a header."""
    return Label(
        slot,
        int.from_bytes(header[_GENERATION], "little"),
        int.from_bytes(header[_CREATED], "little"),
        Key(header[_KEY]),
    )


class Drive:
    """One drive from new to worn out. `damaged` are slots whose payload a fault may have
    changed; `scarred` says that one has changed headers."""

    def __init__(
        self,
        name: str,
        slots: int,
        *,
        clock: FakeClock,
        rng: random.Random,
        endurance: Endurance = _UNLIMITED,
    ) -> None:
        self.name = name
        self.medium = Medium(slots=slots, identity=rng.randbytes(16))
        self.damaged: set[int] = set()
        self.keys: dict[int, Key] = {}  # of the block that each slot was committed with last
        self.scarred = False
        self.comes_up = True
        self.free_bytes = 2 * _FLOOR_BYTES
        self.health = DriveHealth()
        self.faulty_account = False
        self._clock = clock
        self._endurance = endurance
        self._account = new_account(self._endurance, now_ms=clock.wall_ms())
        self._new_s = clock() + clock.gained_s
        self._written_bytes = 0

    def labels(self) -> list[Label]:
        """Of every header that is as it was written."""
        return [
            label_of(slot, header)
            for slot, header in enumerate(self.medium.headers)
            if header != EMPTY and digest(header[:_BODY]) == header[_BODY:]
        ]

    def suspect(self, slots: Iterable[int]) -> None:
        """The bytes of the blocks in these slots may have changed."""
        self.damaged.update(slots)

    @property
    def suspects(self) -> set[Key]:
        """Keys of blocks whose bytes a fault may have changed."""
        return {self.keys[slot] for slot in self.damaged if slot in self.keys}

    def wear(self) -> Wear:
        """The budget that a process starts with."""
        budget = WriteBudget(
            self._endurance, self._account, now_s=self._clock(), now_ms=self._clock.wall_ms()
        )
        return Wear(budget, self._keep)

    def care(self) -> Care:
        """How a process looks at this drive."""
        return Care(space=self._space, health=lambda: self.health)

    def cure(self) -> None:
        """There is space, and nothing is wrong with it."""
        self.free_bytes = 2 * _FLOOR_BYTES
        self.health = DriveHealth()
        self.comes_up = True
        self.faulty_account = False

    def wrote(self, blocks: int) -> None:
        """Blocks were written: over any time, no more than a day's in advance, and no more than
        a life's. Time counts as the budget may count it: a wall clock set forward over a
        restart passes for time."""
        self._written_bytes += blocks * SLOT_BYTES
        by_day, by_life = self._endurance.day_bytes, self._endurance.total_bytes
        days = (self._clock() + self._clock.gained_s - self._new_s) / DAY_S
        ensure(
            by_day is None or self._written_bytes <= (1 + days) * by_day,
            Check.WEAR,
            f"{self.name}: {self._written_bytes} bytes in {days:.2f} days, with {by_day} a day",
        )
        ensure(
            by_life is None or self._written_bytes <= by_life,
            Check.WEAR,
            f"{self.name}: {self._written_bytes} bytes, with {by_life} in its life",
        )

    def _space(self) -> Space:
        if not self.comes_up:
            raise TierFault("its file system cannot be looked at", tier=self.name, errno=5)
        return Space(free_bytes=self.free_bytes, floor_bytes=_FLOOR_BYTES)

    def _keep(self, account: Account) -> None:
        if self.faulty_account:
            raise TierFault("the account cannot be written", tier=self.name, errno=5)
        self._account = account
