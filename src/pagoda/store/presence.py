"""What is remembered of a shared store: which names were there, and which are left alone.

Other nodes write and delete, so every entry expires. A positive one says that the block was
there; a negative one that it was absent, bad, late or failing, and why. The newest word counts,
but a value that was read and found bad stays so, whatever is heard of its name: answers may have
been on their way for long, and a name that exists says nothing of its value. Pure: the clock's
reading is passed in. Bounded: beyond `limit` entries the oldest are forgotten, which costs a
question to the store and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pagoda.core.events import Reason
from pagoda.core.identity import Key, NamespaceId
from pagoda.tiers.remote.sealed import Name

# What a value showed when it was read.
_JUDGED = frozenset(
    {Reason.CORRUPT, Reason.MISPLACED, Reason.TRUNCATED, Reason.UNSIGNED, Reason.LOCKED}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """How long an entry counts, in seconds, and how many there are. `absent_s` is short:
    another node may write the block at any moment. `failed_s` is for bad and late ones."""

    present_s: float = 60.0
    absent_s: float = 2.0
    failed_s: float = 30.0
    limit: int = 65_536


@dataclass(frozen=True, slots=True)
class Entry:
    """`reason` None: the block was there."""

    name: Name
    reason: Reason | None
    until_s: float


class Presence:
    """Entries by key; a key belongs to one namespace, which its entry names."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._entries: dict[Key, Entry] = {}  # oldest first

    def find(self, key: Key, now_s: float) -> Entry | None:
        """What is remembered of a block, if it still counts. Changes nothing."""
        entry = self._entries.get(key)
        return entry if entry is not None and now_s < entry.until_s else None

    def name_of(self, key: Key, now_s: float) -> Name | None:
        """The name of a block that should be there; None for any other."""
        entry = self.find(key, now_s)
        return entry.name if entry is not None and entry.reason is None else None

    def there(self, names: Iterable[Name], now_s: float) -> None:
        """The store has these, as it says, or as it had when they were read. One that was found
        bad stays so."""
        for name in names:
            self._hear(Entry(name, None, now_s + self._memory.present_s), now_s)

    def stored(self, names: Iterable[Name], now_s: float) -> None:
        """These were written just now: they are good again."""
        for name in names:
            self._put(Entry(name, None, now_s + self._memory.present_s))

    def not_there(self, names: Iterable[Name], reason: Reason, now_s: float) -> None:
        """The store has not, or should not be asked for, these."""
        absent = reason is Reason.ABSENT
        lasting_s = self._memory.absent_s if absent else self._memory.failed_s
        for name in names:
            self._hear(Entry(name, reason, now_s + lasting_s), now_s)

    def forget(self, namespace: NamespaceId) -> None:
        """Drop all that is remembered of a namespace."""
        self._entries = {
            key: entry for key, entry in self._entries.items() if entry.name.namespace != namespace
        }

    def __len__(self) -> int:
        return len(self._entries)

    def _hear(self, entry: Entry, now_s: float) -> None:
        """Take a word in. One about the name alone leaves a value bad that was found so, and may
        keep it from being asked for even longer."""
        before = self.find(entry.name.key, now_s)
        if before is None or before.reason not in _JUDGED or entry.reason in _JUDGED:
            self._put(entry)
        elif entry.reason is not None and entry.until_s > before.until_s:
            self._put(replace(before, until_s=entry.until_s))

    def _put(self, entry: Entry) -> None:
        self._entries.pop(entry.name.key, None)
        self._entries[entry.name.key] = entry
        while len(self._entries) > self._memory.limit:
            del self._entries[next(iter(self._entries))]
