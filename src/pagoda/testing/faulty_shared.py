"""A wrapper around the SharedTier port that lies about what passes through it, on purpose.

It models: another block's value, an old value, a flipped byte, a cut value, a wrong answer
about presence, a put that never arrives, a drop that does nothing, and errors. It does not
model a value that mixes two puts (the port promises whole values), nor time; a slow store is
the executor's matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pagoda.core.errors import TierError
from pagoda.tiers.remote.port import SharedTier


@dataclass(slots=True)
class SharedFaults:
    """What to lie about, by name, until it is cleared. Errors are raised as they are.

    `swap` answers a get with another name's value, `old` with the value before the last put;
    `flip` is the position of the byte to change (negative: from the end), `cut` how many bytes
    are delivered; `claim` and `deny` are answers of has; `lose` and `keep` are names whose put
    or drop does nothing.
    """

    swap: dict[str, str] = field(default_factory=dict)
    old: set[str] = field(default_factory=set)
    flip: dict[str, int] = field(default_factory=dict)
    cut: dict[str, int] = field(default_factory=dict)
    claim: set[str] = field(default_factory=set)
    deny: set[str] = field(default_factory=set)
    lose: set[str] = field(default_factory=set)
    keep: set[str] = field(default_factory=set)
    read_error: TierError | None = None
    write_error: TierError | None = None

    def clear(self) -> None:
        """Everything is true again."""
        self.__init__()  # type: ignore[misc]


class FaultyShared:
    """A SharedTier that does what the inner one does, but for its `faults`."""

    def __init__(self, inner: SharedTier) -> None:
        self.inner = inner
        self.name = inner.name
        self.faults = SharedFaults()
        self._before: dict[str, bytes] = {}  # the value before the last put
        self._last: dict[str, bytes] = {}

    def put(self, names: Sequence[str], values: Sequence[Sequence[memoryview]]) -> None:
        if self.faults.write_error is not None:
            raise self.faults.write_error.with_traceback(None)
        kept = [i for i, name in enumerate(names) if name not in self.faults.lose]
        for i in kept:
            self._before[names[i]] = self._last.get(names[i], b"")
            self._last[names[i]] = b"".join(values[i])
        self.inner.put([names[i] for i in kept], [values[i] for i in kept])

    def get(self, names: Sequence[str], limit_bytes: int) -> list[memoryview | None]:
        if self.faults.read_error is not None:
            raise self.faults.read_error.with_traceback(None)
        asked = [self.faults.swap.get(name, name) for name in names]
        values = self.inner.get(asked, limit_bytes)
        return [self._lie(name, value) for name, value in zip(names, values, strict=True)]

    def has(self, names: Sequence[str]) -> list[bool]:
        if self.faults.read_error is not None:
            raise self.faults.read_error.with_traceback(None)
        found = self.inner.has(names)
        return [
            (there or name in self.faults.claim) and name not in self.faults.deny
            for name, there in zip(names, found, strict=True)
        ]

    def drop(self, names: Sequence[str]) -> None:
        if self.faults.write_error is not None:
            raise self.faults.write_error.with_traceback(None)
        self.inner.drop([name for name in names if name not in self.faults.keep])

    def names(self, prefix: str) -> Iterator[str]:
        if self.faults.read_error is not None:
            raise self.faults.read_error.with_traceback(None)
        return self.inner.names(prefix)

    def close(self) -> None:
        self.inner.close()

    def _lie(self, name: str, value: memoryview | None) -> memoryview | None:
        if name in self.faults.old:
            value = memoryview(self._before.get(name, b""))
        if value is None:
            return None
        data = bytearray(value)
        if name in self.faults.flip and data:
            data[self.faults.flip[name] % len(data)] ^= 0x10
        return memoryview(data)[: self.faults.cut.get(name, len(data))]
