"""The payload digest: XXH3-128, in canonical (big-endian) byte order.

It finds accidents — flipped, lost, misdirected and torn bytes — at memory speed; it is no
defence against someone who can write to the medium. Reference: Y. Collet, xxHash, XXH3.
"""

from __future__ import annotations

from collections.abc import Sequence

from xxhash import xxh3_128, xxh3_128_digest

from pagoda.core import native

DIGEST_BYTES = 16
_SHORT_BYTES = 240  # XXH3 takes these in another way, which the compiled code leaves out


def digest(payload: memoryview | bytes) -> bytes:
    """The 16-byte digest of `payload`."""
    return xxh3_128_digest(payload)


def digests(payloads: Sequence[memoryview]) -> list[bytes]:
    """The digest of each payload: compiled, all of them in one turn of the interpreter lock."""
    tables = native.TABLES
    if tables is None or any(payload.nbytes <= _SHORT_BYTES for payload in payloads):
        return [digest(payload) for payload in payloads]
    found: list[bytes] = tables.digests(payloads)
    return found


class Digesting:
    """The digest of a payload that is seen piece by piece, in order.

    Pieces are hashed without the interpreter lock. Equal to `digest` of all of them together.
    """

    def __init__(self) -> None:
        self._state = xxh3_128()
        self.see = self._state.update

    def digest(self) -> bytes:
        """The 16-byte digest of what was seen so far."""
        return self._state.digest()
