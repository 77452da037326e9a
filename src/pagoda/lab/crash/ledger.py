"""What a crash may cost, and what it may not: the promise, apart from the code that keeps it.

Owed      a block whose commit returned, and was followed by a sync if power was cut, unless its
          slot was overwritten or erased since.
Allowed   any version of a block that was ever on its way to the drive, until it was erased for
          good: by `free`, by a later commit in its slot, or by a clear of the whole store.
Refused   a block whose digest does not check: only after a power cut, and only where a newer
          one was being written over it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from pagoda.core.identity import Key


class Act(StrEnum):
    """What was done to slots. The first two are told before, the others after."""

    OVERWRITE = "overwrite"
    COMMIT = "commit"
    COMMITTED = "committed"
    ERASED = "erased"
    CLEARED = "cleared"  # all of them


_BEGINNINGS = {Act.OVERWRITE, Act.COMMIT}


class Placed(NamedTuple):
    """A version of a block in a slot."""

    slot: int
    key: Key
    version: int


@dataclass(frozen=True, slots=True)
class Event:
    """An act, told when `at` operations on the drive's file had returned."""

    act: Act
    at: int
    slots: tuple[int, ...] = ()
    blocks: tuple[Placed, ...] = ()  # of commits

    def before(self, cut: int) -> bool:
        """Whether it left a trace, or was said, before operation `cut` was issued."""
        return self.at < cut if self.act in _BEGINNINGS else self.at <= cut


@dataclass(slots=True)
class _Stay:
    block: Placed
    committed_at: int | None = None
    overwritten: bool = False
    erased: bool = False


class Ledger:
    """The promise after a crash: `cut` operations had been issued, and what had returned by
    operation `synced` is durable. `in_order`: of the rest, nothing is there before what was
    issued earlier, as when only the process died."""

    def __init__(
        self, events: Iterable[Event], *, cut: int, synced: int, in_order: bool = False
    ) -> None:
        self._stays: list[_Stay] = []
        self._by_slot: defaultdict[int, list[_Stay]] = defaultdict(list)
        self._synced = synced
        self._in_order = in_order
        for event in events:
            if event.before(cut):
                self._enter(event)
        last = {stay.block.key: stay for stay in self._stays}
        self._owed = {k: stay.block.version for k, stay in last.items() if self._kept(stay)}

    def owed(self, key: Key) -> int | None:
        """The version of a block that must be there, if one must. Of a block that was stored
        twice, the first had been evicted, so that only the last counts."""
        return self._owed.get(key)

    def allowed(self, key: Key) -> set[int]:
        """Versions of a block that may be served."""
        return {
            stay.block.version
            for stay in self._stays
            if stay.block.key == key and not stay.erased
        }  # fmt: skip

    def refusable(self, key: Key) -> bool:
        """Whether a payload of this block may break its seal."""
        here = [stay for stay in self._stays if stay.block.key == key and not stay.erased]
        return not self._in_order and any(stay.overwritten for stay in here)

    def _kept(self, stay: _Stay) -> bool:
        durable = stay.committed_at is not None and stay.committed_at <= self._synced
        return durable and not stay.overwritten and not stay.erased

    def _enter(self, event: Event) -> None:
        here = [stay for slot in event.slots for stay in self._by_slot[slot]]
        match event.act:
            case Act.OVERWRITE:
                for stay in here:
                    stay.overwritten = True
            case Act.COMMIT:
                for block in event.blocks:
                    self._stays.append(_Stay(block))
                    self._by_slot[block.slot].append(self._stays[-1])
            case Act.COMMITTED:
                self._committed(here, event)
            case Act.ERASED:
                for stay in here:
                    stay.erased = True
            case Act.CLEARED:
                for stay in self._stays:
                    stay.erased = True

    def _committed(self, here: list[_Stay], event: Event) -> None:
        blocks = set(event.blocks)
        for stay in here:
            if stay.block in blocks:
                stay.committed_at = event.at
            else:  # the zeros over its header were synced with the new payload
                stay.erased = True
