"""What a tier remembers of the seals of its slots: 47 bytes each, not an object.

A plain payload's seal is a row of flat tables: generation, digest, length, and enough of the
key (its last 8 bytes) to notice a mix-up of slots, since whoever reads names the whole key.
Seals of coded or encrypted payloads, which need more to be opened, are kept as they are.
Written by the tier's I/O threads, each slot by one at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pagoda.core.identity import DIGEST_BYTES as KEY_BYTES
from pagoda.core.identity import Key, NamespaceId
from pagoda.seal.digest import DIGEST_BYTES
from pagoda.seal.header import CODEC_RAW, Seal
from pagoda.seal.headers import Headers

_ABSENT, _PLAIN, _WHOLE = 0, 1, 2
_DEEPEST = 2**16 - 1


class SealTable:
    """Seals by slot, for `slots` slots of fewer than 4 GiB each."""

    def __init__(self, slots: int) -> None:
        self.kinds = np.zeros(slots, dtype=np.uint8)
        self.created_s = np.zeros(slots, dtype=np.uint32)  # seconds since the epoch
        self.depths = np.zeros(slots, dtype=np.uint16)  # saturates
        self.namespace_of = np.zeros(slots, dtype=np.uint32)  # index into `namespaces`
        self.namespaces: list[NamespaceId] = []
        self._generations = np.zeros(slots, dtype=np.uint64)
        self._tails = np.zeros(slots, dtype=np.uint64)
        self._lengths = np.zeros(slots, dtype=np.uint32)
        self._digests = np.zeros((slots, DIGEST_BYTES), dtype=np.uint8)
        self._whole: dict[int, Seal] = {}
        self._numbers: dict[NamespaceId, int] = {}
        self._naming = threading.Lock()
        # The same memory, for one slot at a time: indexing a memoryview is faster.
        self._kind_at = self.kinds.data
        self._generation_at = self._generations.data
        self._tail_at = self._tails.data
        self._length_at = self._lengths.data
        self._digest_at = self._digests.reshape(-1).data

    @property
    def present(self) -> NDArray[np.bool_]:
        """Which slots hold a sealed payload."""
        held: NDArray[np.bool_] = self.kinds != _ABSENT
        return held

    @property
    def size_bytes(self) -> int:
        """Memory of the rows."""
        rows = (self.kinds, self.created_s, self.depths, self.namespace_of, self._generations)
        return sum(row.nbytes for row in (*rows, self._tails, self._lengths, self._digests))

    @property
    def lengths(self) -> NDArray[np.uint32]:
        """Bytes stored in each slot (meaningless where none is present)."""
        return self._lengths

    def put(self, slot: int, seal: Seal) -> None:
        """Remember the seal that `slot` was committed with."""
        self.forget([slot])
        self.created_s[slot] = seal.created_ms // 1000
        self.depths[slot] = min(seal.depth, _DEEPEST)
        self.namespace_of[slot] = self._number(seal.namespace)
        self._generation_at[slot] = seal.generation
        self._tail_at[slot] = _tail(seal.key)
        self._length_at[slot] = seal.stored_bytes
        self._digest_at[slot * DIGEST_BYTES : (slot + 1) * DIGEST_BYTES] = seal.payload_digest
        if seal.codec != CODEC_RAW:
            self._whole[slot] = seal
        self._kind_at[slot] = _PLAIN if seal.codec == CODEC_RAW else _WHOLE

    def put_headers(self, headers: Headers) -> None:
        """Remember sound plain headers that were found in their slots."""
        slots = headers["slot"].astype(np.intp)
        self.created_s[slots] = headers["created_ms"] // 1000
        self.depths[slots] = np.minimum(headers["depth"], _DEEPEST)
        self.namespace_of[slots] = self._numbers_of(headers)
        self._generations[slots] = headers["generation"]
        keys = np.ascontiguousarray(headers["key"]).view("<u8").reshape(-1, KEY_BYTES // 8)
        self._tails[slots] = keys[:, -1]
        self._lengths[slots] = headers["stored_bytes"]
        digests = np.ascontiguousarray(headers["payload_digest"]).view(np.uint8)
        self._digests[slots] = digests.reshape(-1, DIGEST_BYTES)
        self.kinds[slots] = _PLAIN

    def forget(self, slots: Sequence[int]) -> None:
        """These slots hold nothing any more."""
        for slot in slots:
            if self._kind_at[slot] == _WHOLE:
                self._whole.pop(slot, None)
            self._kind_at[slot] = _ABSENT

    def whole(self, slot: int) -> Seal | None:
        """The seal of a payload that is coded or encrypted; None for a plain one."""
        return self._whole.get(slot) if self._kind_at[slot] == _WHOLE else None

    def length(self, slot: int, *, generation: int, key: Key) -> int | None:
        """Bytes stored in `slot`; None when it holds another block or generation, or nothing."""
        if self._kind_at[slot] == _ABSENT or self._generation_at[slot] != generation:
            return None
        return self._length_at[slot] if self._tail_at[slot] == _tail(key) else None

    def raw_bytes(self, slot: int) -> int:
        """Size of the payload in `slot` once it is opened; 0 when the slot holds nothing."""
        if self._kind_at[slot] == _ABSENT:
            return 0
        seal = self.whole(slot)
        return self._length_at[slot] if seal is None else seal.raw_bytes

    def namespace(self, slot: int) -> NamespaceId:
        """Whose the payload in a slot is that holds one."""
        return self.namespaces[int(self.namespace_of[slot])]

    def digest(self, slot: int) -> bytes:
        """The digest of the payload as it is stored."""
        return bytes(self._digest_at[slot * DIGEST_BYTES : (slot + 1) * DIGEST_BYTES])

    def _number(self, namespace: NamespaceId) -> int:
        with self._naming:
            number = self._numbers.setdefault(namespace, len(self.namespaces))
            if number == len(self.namespaces):
                self.namespaces.append(namespace)
            return number

    def _numbers_of(self, headers: Headers) -> NDArray[np.uint32]:
        names = np.ascontiguousarray(headers["namespace"])
        # By their first 8 bytes: sorting whole names would take most of a restart.
        _, first, which = np.unique(
            names.view("<u8")[:: KEY_BYTES // 8], return_index=True, return_inverse=True
        )
        numbers = [self._number(NamespaceId(names[index].tobytes())) for index in first]
        return np.array(numbers, dtype=np.uint32)[which.reshape(-1)]


def _tail(key: Key) -> int:
    return int.from_bytes(key[-8:], "little")
