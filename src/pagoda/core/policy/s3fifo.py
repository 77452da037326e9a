"""S3-FIFO: a small queue that most blocks leave at once, and a main queue for the rest.

New blocks enter the small queue, a tenth of the tier. At its end, a block that has been hit
moves to the main queue, any other goes and leaves a ghost; a miss that hits a ghost enters the
main queue. At the end of the main queue, a block with hits to its name loses one of them (of at
most three) and starts again. Reference: J. Yang, Y. Zhang, Z. Qiu, Y. Yue, K. V. Rashmi, "FIFO
queues are all you need for cache eviction", SOSP 2023, with as many ghosts as the main queue
has slots, and one hit to be moved.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pagoda.core.identity import Key
from pagoda.core.keyindex import Leases
from pagoda.core.policy.accesses import AccessPolicy
from pagoda.core.policy.ghosts import Ghosts

_SMALL_SHARE = 0.1
_MOST_HITS = 3


@dataclass(slots=True)
class _Plan:
    """What making room does to the queues, besides dropping the victims."""

    victims: list[int] = field(default_factory=list)
    moved: list[tuple[int, int]] = field(default_factory=list)  # to main's end: slot, its hits
    passed: int = 0  # of those moved, how many have come to main's front again


class S3Fifo(AccessPolicy):
    """Small and main queue over slots; see `core.policy.port.Policy` for the contract."""

    def __init__(self, slots: int) -> None:
        super().__init__(slots)
        self._small_slots = max(1, int(slots * _SMALL_SHARE))
        self._small: OrderedDict[int, None] = OrderedDict()  # oldest first
        self._main: OrderedDict[int, None] = OrderedDict()
        self._hits: dict[int, int] = {}
        self._gone: Ghosts[None] = Ghosts(slots - self._small_slots)
        self._returning: Ghosts[None] = Ghosts(slots)  # ghosts that a request has missed
        self._plan: _Plan | None = None  # valid until anything changes

    def victims(self, count: int, leases: Leases) -> list[int]:
        plan = _Plan()
        small = (slot for slot in self._small if leases[slot] == 0)
        main = (slot for slot in self._main if leases[slot] == 0)
        lengths = [len(self._small), len(self._main)]
        while len(plan.victims) < count:
            from_small = lengths[0] >= self._small_slots or lengths[1] == 0
            if not (
                (from_small and self._pass_small(plan, small, lengths))
                or self._pass_main(plan, main, lengths)
                or self._pass_small(plan, small, lengths)
            ):
                break
        self._plan = plan
        return list(plan.victims)

    def remove(self, slots: Sequence[int]) -> None:
        plan, self._plan = self._plan, None
        if plan is not None and plan.victims == list(slots):
            for slot, hits in plan.moved:
                self._small.pop(slot, None)
                self._main[slot] = None
                self._main.move_to_end(slot)
                self._hits[slot] = hits
        super().remove(slots)

    def _pass_small(self, plan: _Plan, small: Iterator[int], lengths: list[int]) -> bool:
        """Decide on the next block at the small queue's end; False if there is none."""
        slot = next(small, None)
        if slot is None:
            return False
        lengths[0] -= 1
        if self._hits[slot]:
            lengths[1] += 1
            plan.moved.append((slot, 0))
        else:
            plan.victims.append(slot)
        return True

    def _pass_main(self, plan: _Plan, main: Iterator[int], lengths: list[int]) -> bool:
        """Decide on the next block at the main queue's end; False if there is none."""
        slot = next(main, None)
        if slot is not None:
            hits = self._hits[slot]
        elif plan.passed < len(plan.moved):
            slot, hits = plan.moved[plan.passed]
            plan.passed += 1
        else:
            return False
        if hits:
            plan.moved.append((slot, hits - 1))
        else:
            lengths[1] -= 1
            plan.victims.append(slot)
        return True

    def _hit(self, slot: int, key: Key) -> None:
        self._plan = None
        self._hits[slot] = min(_MOST_HITS, self._hits[slot] + 1)

    def _miss(self, key: Key) -> None:
        if key in self._gone:
            self._gone.take(key)
            self._returning.put(key, None)

    def _enter(self, slot: int, key: Key) -> None:
        self._plan = None
        queue = self._small
        if key in self._returning:
            self._returning.take(key)
            queue = self._main
        queue[slot] = None
        self._hits[slot] = 0

    def _leave(self, slot: int, key: Key) -> None:
        del self._hits[slot]
        if slot in self._small:
            del self._small[slot]
            self._gone.put(key, None)
        else:
            del self._main[slot]
