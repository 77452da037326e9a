"""A shared store in this process: several nodes of a simulation can hold one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


class MemoryShared:
    """A SharedTier over a dictionary. Closing it forgets nothing: other nodes use it too."""

    def __init__(self, name: str = "remote") -> None:
        self.name = name
        self.values: dict[str, bytes] = {}

    def put(self, names: Sequence[str], values: Sequence[Sequence[memoryview]]) -> None:
        for name, pieces in zip(names, values, strict=True):
            self.values[name] = b"".join(pieces)

    def get(self, names: Sequence[str], limit_bytes: int) -> list[memoryview | None]:
        found = [self.values.get(name) for name in names]
        return [None if value is None else memoryview(value)[:limit_bytes] for value in found]

    def has(self, names: Sequence[str]) -> list[bool]:
        return [name in self.values for name in names]

    def drop(self, names: Sequence[str]) -> None:
        for name in names:
            self.values.pop(name, None)

    def names(self, prefix: str) -> Iterator[str]:
        return iter([name for name in self.values if name.startswith(prefix)])

    def close(self) -> None:
        """Nothing to let go of."""
