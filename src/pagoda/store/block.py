"""A block on its way into the store."""

from __future__ import annotations

from dataclasses import dataclass

from pagoda.core.identity import Key, NamespaceId
from pagoda.seal.header import Seal


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block to store: its name, its place in its chain, and its bytes in caller's memory."""

    namespace: NamespaceId
    key: Key
    parent: Key
    depth: int
    tokens: int
    payload: memoryview

    def seal(self, *, generation: int, created_ms: int) -> Seal:
        """The seal to write, its digest still to be filled in."""
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
            created_ms=created_ms,
        )
