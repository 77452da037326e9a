"""One level's share of a clearing: its blocks withdrawn, its headers erased and read back.

A header that is to go lies in a slot of one of these kinds:

    published    withdraw the block; it is erased in the background
    being filled wait until the slot is filled or free, then look again
    retiring     lease the slot, so that it is not reused meanwhile; erase
    free         reserve the slot, so that no new block is erased in its place; erase
    quarantined  erase: such a slot is never reused

Whoever else holds a slot is not waited for: a block on its way to a shared store that hangs
keeps its slot for long, but not its header.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pagoda.core.errors import TierError
from pagoda.core.holdings import Scanned, Selection
from pagoda.core.identity import Key
from pagoda.core.state import SlotState
from pagoda.store.census import chosen
from pagoda.store.executor import Kind, Lane
from pagoda.store.headers_back import ReadBack, Written, read_back
from pagoda.store.level import Level
from pagoda.store.store import Store

_SWEEP_SLOTS = 4096  # free slots looked through at a time


@dataclass(frozen=True, slots=True)
class Doom:
    """Which of a selection's headers are to go: those written before `settled_s` (seconds since
    the epoch), and of a prefix those of its `keys`."""

    settled_s: int
    keys: frozenset[Key] | None

    def names(self, one: Written) -> bool:
        """Whether a block is of what is cleared, whenever it was written."""
        return self.keys is None or one.key in self.keys


class LevelClearing:
    """Owner's thread; I/O in the background."""

    def __init__(self, store: Store, level: Level, selection: Selection) -> None:
        self._store = store
        self._level = level
        self._selection = selection
        self._awaited: list[tuple[int, int]] = []  # slot and generation, while it is filled
        self._doomed: set[int] = set()  # free slots with headers that are to go
        self._unseen = 0  # free slots still to be looked through for them
        self._erasing = 0  # orders under way
        self._back: ReadBack | None = None
        self.dropped = 0  # blocks that could be found
        self.erased = 0  # headers of blocks that could not

    @property
    def name(self) -> str:
        return self._level.name

    def withdraw_chosen(self) -> None:
        """Withdraw what can be named without reading headers."""
        self._withdraw(chosen(self._level, self._selection).tolist())

    def poll(self) -> None:
        """Go on with erasing."""
        state = self._level.state
        self._awaited = [
            (slot, generation)
            for slot, generation in self._awaited
            if state.generation(slot) == generation and state.state_of(slot) is SlotState.RESERVED
        ]
        if self._doomed and self._unseen > 0 and not self._erasing:
            self._sweep()

    @property
    def quiet(self) -> bool:
        """Nothing is left to erase, as far as is known."""
        return not self._awaited and not self._erasing and not (self._doomed and self._unseen > 0)

    # What the medium says.

    def read_back(self, then: Callable[[], None]) -> None:
        """Read all headers; `then` is called once they are read."""
        self._back = None
        sealed, selection = self._level.sealed, self._selection

        def landed(found: ReadBack) -> None:
            self._back = found
            then()

        lane = Lane(self.name, Kind.CHECK)
        self._store.orders.send(lane, lambda: read_back(sealed, selection), landed)

    @property
    def readable(self) -> bool:
        """Whether all headers could be read; not before they are."""
        return self._back is not None and self._back.error is None

    @property
    def written(self) -> list[Written]:
        """The selection's headers, as they were read."""
        return self._back.written if self._back is not None else []

    def act(self, doom: Doom) -> int:
        """Have what the headers name go; returns how many of them were to go."""
        state = self._level.state
        left = [one for one in self.written if doom.names(one) and not self._newer(one, doom)]
        by_state: dict[SlotState, list[int]] = {kind: [] for kind in SlotState}
        for one in left:
            by_state[state.state_of(one.slot)].append(one.slot)
        held = {one.slot: one.key for one in left}
        self._withdraw([s for s in by_state[SlotState.PUBLISHED] if state.key_of(s) == held[s]])
        filling = by_state[SlotState.RESERVED]
        self._awaited += [(slot, state.generation(slot)) for slot in filling]
        retiring = by_state[SlotState.RETIRING]
        state.lease(retiring)
        self._erase(retiring, lambda: state.release(retiring))
        self._doomed, self._unseen = set(by_state[SlotState.FREE]), state.free_count()
        self._erase(by_state[SlotState.QUARANTINED], lambda: None)
        return len(left)

    def scanned(self, doom: Doom) -> Scanned:
        """What was found last, for the answer."""
        mine = [one for one in self.written if doom.names(one)]
        newer = sum(self._newer(one, doom) for one in mine)
        if self._back is None or self._back.error is not None:
            return Scanned(tier=self.name, headers=None, left=None, newer=newer)
        headers = self._back.headers
        return Scanned(tier=self.name, headers=headers, left=len(mine) - newer, newer=newer)

    def _newer(self, one: Written, doom: Doom) -> bool:
        """Whether a header belongs to a block that was stored since, or is about to be."""
        state = self._level.state
        if one.created_s < doom.settled_s:
            return False
        return state.key_of(one.slot) == one.key or state.state_of(one.slot) is SlotState.RESERVED

    # Erasing.

    def _withdraw(self, slots: list[int]) -> None:
        if not slots:
            return
        self.dropped += len(slots)
        self._erasing += 1
        self._store.discard(self._level, slots, self._erased)

    def _erased(self) -> None:
        """An erasing ended, well or badly: the next reading says which."""
        self._erasing -= 1

    def _sweep(self) -> None:
        """Take some free slots, keep those with a doomed header, give the others back."""
        state = self._level.state
        taken = state.reserve(min(_SWEEP_SLOTS, self._unseen))
        self._unseen -= max(1, len(taken))
        mine = [slot for slot in taken if slot in self._doomed]
        state.abandon([slot for slot in taken if slot not in self._doomed])
        self._doomed.difference_update(mine)
        self._erase(mine, lambda: state.abandon(mine))

    def _erase(self, slots: list[int], then: Callable[[], object]) -> None:
        if not slots:
            return
        self._erasing += 1
        self.erased += len(slots)
        sealed = self._level.sealed

        def job() -> TierError | None:
            try:
                sealed.free(slots)
            except TierError as error:
                return error
            return None

        def landed(error: TierError | None) -> None:
            del error
            self._erased()
            then()

        self._store.orders.send(Lane(self.name, Kind.STORE), job, landed)
