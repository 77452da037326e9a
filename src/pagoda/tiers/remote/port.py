"""The port of a shared store: names and values, six methods.

Slots are ours; names in a shared store are everybody's. Another node writes, overwrites and
deletes without telling us, so nothing is reserved, leased or scanned here: a value that was
there a moment ago may be gone, and one that appears was not ours to order. Values are opaque
bytes that verify themselves (tiers.remote.sealed). docs/adr/0009 has the reasons.

A name is "<namespace in hex>/<key in hex>". Methods are called from several threads at once.
Failures are TierErrors whose texts hold no name of a block, no credential and no value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol


class SharedTier(Protocol):
    """A store of named values that other nodes write and delete too."""

    @property
    def name(self) -> str: ...

    def put(self, names: Sequence[str], values: Sequence[Sequence[memoryview]]) -> None:
        """Write values, each given in pieces to be joined. A reader sees an old value or the
        whole new one, never a part. After an error, any of them may have been written."""
        ...

    def get(self, names: Sequence[str], limit_bytes: int) -> list[memoryview | None]:
        """The values, None for an absent one, in memory of their own. Of a value larger than
        `limit_bytes` only its front of that size, however large others may have made it."""
        ...

    def has(self, names: Sequence[str]) -> list[bool]:
        """Which names exist now."""
        ...

    def drop(self, names: Sequence[str]) -> None:
        """Delete names; absent ones are no error."""
        ...

    def names(self, prefix: str) -> Iterator[str]:
        """Every name that starts with `prefix` (which ends in "/", or is empty), at least
        once; names written or deleted meanwhile may or may not appear. Raises while iterated."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...
