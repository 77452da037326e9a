"""A rank: levels of equal speed, such as all drives of a node, that share one queue of writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from pagoda.core.errors import TierError
from pagoda.core.events import Rebuilt
from pagoda.core.identity import DIGEST_BYTES as KEY_BYTES
from pagoda.core.identity import Key
from pagoda.core.placement import Candidate, place
from pagoda.store.executor import Runtime
from pagoda.store.level import Level
from pagoda.store.queue import Source
from pagoda.tiers.scanning import Found


class Rank:
    """One or more levels; each keeps its own state, standing and budget. Owner's thread."""

    def __init__(self, levels: Sequence[Level]) -> None:
        assert levels, "a rank has at least one level"
        self.levels = tuple(levels)
        self.name = _common_name([level.name for level in levels])
        self._last = -1  # position of the member that took the last run

    def use(self, keys: Sequence[Key], now_s: float) -> list[Source | None]:
        """Where members hold blocks of a chain, one a key. These count as used, tail first:
        making room for the rest of the chain must not drop them. A member that cannot be read
        now is no reason not to store a block again, if another one can take it."""
        found: list[Source | None] = [None] * len(keys)
        sound = bool(self._sound(now_s))
        for level in self.levels:
            if sound and not level.readable(now_s):
                continue
            slots = [level.state.slot_of(key) for key in keys]
            level.residency.touch([slot for slot in slots if slot is not None])
            for at, slot in enumerate(slots):
                if slot is not None:
                    found[at] = Source(level, slot)
        return found

    def lease_prefix(self, keys: Sequence[Key]) -> list[Source]:
        """Where members hold the longest prefix of a chain between them: leased, and used."""
        held: dict[Level, list[int]] = {level: [] for level in self.levels}
        if len(self.levels) == 1:
            (level,) = self.levels
            held[level] = level.residency.lease_prefix(keys)
        else:
            for level, slot in self._prefix(keys):
                held[level].append(slot)
            for level, slots in held.items():
                level.state.lease(slots)
                level.residency.touch(slots)
        return [Source(level, slot) for level, slots in held.items() for slot in slots]

    def _prefix(self, keys: Sequence[Key]) -> Iterator[tuple[Level, int]]:
        for key in keys:
            found = ((level, level.state.slot_of(key)) for level in self.levels)
            held = next(((level, slot) for level, slot in found if slot is not None), None)
            if held is None:
                return
            yield held

    def admits(self, keys: Sequence[Key], parents: Sequence[Key], *, spare: int = 0) -> list[int]:
        """Positions of the blocks that a member's policy finds worth a place, of some that none
        has, in ascending order. `spare` is how many more slots they have than are free."""
        admitted = [level.residency.admits(keys, parents, spare=spare) for level in self.levels]
        return sorted(set().union(*admitted))

    def pinned(self, keys: Sequence[Key]) -> list[int]:
        """Positions of the keys that are pinned, in ascending order."""
        pins = [level.residency.pinned for level in self.levels]
        return [i for i, key in enumerate(keys) if any(pin.pins(key) for pin in pins)]

    def place(self, now_s: float, *, barred: Iterable[Level]) -> Level | None:
        """The member that takes the next run: not one of `barred`, which write already or have
        no slot to give, and one that can be read as well, if there is any."""
        block_bytes = max(level.sealed.geometry.slot_bytes for level in self.levels)
        out = set(barred)
        if sound := self._sound(now_s):
            out |= set(self.levels) - sound
        candidates = [
            Candidate(
                ready=level not in out and level.writable(now_s),
                budget_bytes=level.wear.budget.usable_bytes,
                load_s=level.traffic.seconds(),
                free_blocks=level.state.free_count(),
            )
            for level in self.levels
        ]
        chosen = place(candidates, block_bytes=block_bytes, after=self._last)
        if chosen is None:
            return None
        self._last = chosen
        return self.levels[chosen]

    def _sound(self, now_s: float) -> set[Level]:
        """Members that can be read and written."""
        return {level for level in self.levels if level.readable(now_s) and level.writable(now_s)}

    def others(self, level: Level) -> Iterable[Level]:
        """All members but one."""
        return (other for other in self.levels if other is not level)

    def rebuild(self, runtime: Runtime) -> None:
        """Index what earlier processes committed. A member that cannot be read is lost, with
        its blocks, as long as another one can; of two copies of a block the newer counts, and
        the older one's header is erased. Blocks on I/O; raises TierError."""
        found: dict[Level, Found] = {}
        failed: dict[Level, TierError] = {}
        for level in self.levels:
            started_s = runtime.clock()
            try:
                found[level] = level.rebuild(started_s)
            except TierError as error:
                failed[level] = error
                continue
            runtime.observer(_as_event(level, found[level], runtime.clock() - started_s))
        if not found:
            raise next(iter(failed.values()))
        for level, why in failed.items():
            level.trust.lose(why.message)
        for level, slots in older_copies(found).items():
            level.residency.retire(slots)
            level.erase(slots, runtime.clock())

    def check_invariants(self) -> None:
        """No block is published twice."""
        seen: dict[Key, str] = {}
        for level in self.levels if len(self.levels) > 1 else ():
            for key, _ in level.state.published():
                assert key not in seen, f"a block is both in {seen[key]} and in {level.name}"
                seen[key] = level.name


def older_copies(found: dict[Level, Found]) -> dict[Level, list[int]]:
    """Published slots whose block another member holds in a newer copy. A drive that was away
    for a while comes back with blocks that were stored anew elsewhere."""
    heads = [np.frombuffer(f.keys, dtype="<u8")[:: KEY_BYTES // 8] for f in found.values()]
    values, counts = np.unique(np.concatenate(heads), return_counts=True)
    doubled = values[counts > 1]
    newest: dict[Key, tuple[int, Level, int]] = {}
    older: dict[Level, list[int]] = {}
    for (level, scan), column in zip(found.items(), heads, strict=True):
        for position in np.flatnonzero(np.isin(column, doubled)).tolist():
            key = Key(scan.keys[position * KEY_BYTES : (position + 1) * KEY_BYTES])
            slot = int(scan.slots[position])
            if level.state.slot_of(key) != slot:
                continue  # dropped already: this member itself holds a newer copy
            copy = (int(scan.created_ms[position]), level, slot)
            first = newest.setdefault(key, copy)
            if first is not copy:
                loser = min(first, copy, key=lambda entry: entry[0])
                newest[key] = copy if loser is first else first
                older.setdefault(loser[1], []).append(loser[2])
    return older


def _as_event(level: Level, found: Found, seconds: float) -> Rebuilt:
    blocks = level.state.published_count()
    headers = len(found.slots) + len(found.damaged) + len(found.closed)
    return Rebuilt(tier=level.name, blocks=blocks, dropped=headers - blocks, seconds=seconds)


def _common_name(names: Sequence[str]) -> str:
    """What events of no one member are told under: "drive" for drive0 and drive1."""
    stems = {name.rstrip("0123456789") for name in names}
    return stems.pop() if len(names) > 1 and len(stems) == 1 else names[0]
