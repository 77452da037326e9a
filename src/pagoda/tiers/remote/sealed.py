"""The seal wrapper of a shared store: what comes out is what some node sealed for that name.

A value (seal.value) states its namespace, key and length, and may be signed; its payload
(seal.envelope) may be encrypted. Nothing of it is believed before it was checked, and the
caller's buffer is touched only by a payload whose digest was right.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pagoda.core.errors import TierError, TierFault
from pagoda.core.events import Reason
from pagoda.core.identity import Key, NamespaceId
from pagoda.core.outcome import Corrupt, Hit, Miss, Outcome, Unavailable
from pagoda.seal import value
from pagoda.seal.envelope import PLAIN, Envelope
from pagoda.seal.header import Seal
from pagoda.seal.mac import Signer
from pagoda.tiers.remote.port import SharedTier
from pagoda.tiers.sealed import reason_of

_CLEAR_NAMES = 1000  # deleted in one call


@dataclass(frozen=True, slots=True)
class Name:
    """A block in a shared store."""

    namespace: NamespaceId
    key: Key

    def __str__(self) -> str:
        return f"{prefix_of(self.namespace)}{self.key.hex()}"


def prefix_of(namespace: NamespaceId) -> str:
    """What every name of a namespace starts with."""
    return f"{namespace.hex()}/"


@dataclass(frozen=True, slots=True)
class Emptied:
    """How many names were deleted, and how many a second listing still found: 0, unless
    another node writes meanwhile, or the store does not delete."""

    dropped: int
    left: int


class SealedShared:
    """Sealed writes and verified reads over a SharedTier. Called from I/O threads.

    With a `signer`, a value without a valid trailer is refused; without one a trailer is
    left unread.
    """

    def __init__(
        self, tier: SharedTier, *, envelope: Envelope = PLAIN, signer: Signer | None = None
    ) -> None:
        self.tier = tier
        self.name = tier.name
        self._envelope = envelope
        self._signer = signer

    def store(self, seals: Sequence[Seal], payloads: Sequence[memoryview]) -> int:
        """Seal and write blocks; returns the bytes sent. Raises TierError; any of them may
        have been written then, which is no harm: each is whole, or refused."""
        names: list[str] = []
        values: list[list[memoryview]] = []
        for seal, payload in zip(seals, payloads, strict=True):
            names.append(str(Name(seal.namespace, seal.key)))
            values.append(self._value(seal, payload))
        self.tier.put(names, values)
        return sum(len(piece) for pieces in values for piece in pieces)

    def load(
        self, names: Sequence[Name], into: Sequence[memoryview], claim: Callable[[], bool]
    ) -> list[Outcome] | None:
        """Read blocks into caller-owned buffers; each holds a verified payload then, or zeros.

        Values arrive in memory of their own. Only then `claim` is asked whether the buffers
        are still wanted: None says that they were not, and that they were not touched. Raises
        nothing of a tier.
        """
        longest = value.OVERHEAD_BYTES + max(map(len, into), default=0)
        try:
            values = self._get(names, longest + 1)
            failure = None
        except TierError as error:
            values = [None] * len(names)
            failure = Unavailable(self.name, reason_of(error))
        if not claim():
            return None
        outcomes: list[Outcome] = []
        for name, data, buffer in zip(names, values, into, strict=True):
            outcome = failure or self._judge(name, data, buffer)
            if not isinstance(outcome, Hit):
                buffer[:] = bytes(len(buffer))
            outcomes.append(outcome)
        return outcomes

    def has(self, names: Sequence[Name]) -> list[bool]:
        """Which names exist, as the store says. Raises TierError."""
        answers = self.tier.has([str(name) for name in names])
        if len(answers) != len(names):
            raise TierFault(f"{self.name}: {len(answers)} answers to {len(names)}", tier=self.name)
        return answers

    def drop(self, names: Sequence[Name]) -> None:
        """Delete blocks. Raises TierError."""
        self.tier.drop([str(name) for name in names])

    def clear(self, namespace: NamespaceId) -> Emptied:
        """Delete everything of a namespace and list it again to see. Raises TierError."""
        prefix = prefix_of(namespace)
        dropped = 0
        names = self.tier.names(prefix)
        while batch := list(itertools.islice(names, _CLEAR_NAMES)):
            self.tier.drop(batch)
            dropped += len(batch)
        return Emptied(dropped, left=len(set(self.tier.names(prefix))))

    def _get(self, names: Sequence[Name], limit_bytes: int) -> list[memoryview | None]:
        values = self.tier.get([str(name) for name in names], limit_bytes)
        if len(values) != len(names):
            raise TierFault(f"{self.name}: {len(values)} values of {len(names)}", tier=self.name)
        return values

    def _value(self, seal: Seal, payload: memoryview) -> list[memoryview]:
        sealed, stored = self._envelope.wrap(seal, payload)
        return value.pieces(sealed, stored, self._signer)

    def _judge(self, name: Name, data: memoryview | None, into: memoryview) -> Outcome:
        if data is None:
            return Miss()
        reason = self._unseal(name, data.toreadonly(), into)
        if reason is None:
            return Hit(self.name)
        # What only we cannot read may be sound to others, and is left to them.
        return Miss(reason) if reason is Reason.LOCKED else Corrupt(self.name, reason)

    def _unseal(self, name: Name, data: memoryview, into: memoryview) -> Reason | None:
        found = value.read(data, namespace=name.namespace, key=name.key, signer=self._signer)
        if isinstance(found, Reason):
            return found
        return self._envelope.unwrap(found.seal, found.stored, into)
