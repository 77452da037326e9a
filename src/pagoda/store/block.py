"""A block on its way into the store."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pagoda.core.identity import Key, NamespaceId
from pagoda.seal.header import Seal


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block to store: its name, its place in its chain, and its bytes in caller's memory.

    `created_ms` is when it was first stored, in ms since the epoch; None: now. Each copy of it
    keeps that, so that a block is as old in every tier.
    """

    namespace: NamespaceId
    key: Key
    parent: Key
    depth: int
    tokens: int
    payload: memoryview
    created_ms: int | None = None

    def born(self, now_ms: int) -> Block:
        """The block with its age: it begins to age now, unless it did before."""
        return replace(self, created_ms=now_ms) if self.created_ms is None else self

    def seal(self, *, generation: int) -> Seal:
        """The seal to write, its digest still to be filled in."""
        assert self.created_ms is not None, "a block that is stored has an age"
        return Seal(
            namespace=self.namespace,
            key=self.key,
            parent=self.parent,
            depth=self.depth,
            tokens=self.tokens,
            generation=generation,
            raw_bytes=len(self.payload),
            stored_bytes=len(self.payload),
            payload_digest=bytes(16),
            created_ms=self.created_ms,
        )
