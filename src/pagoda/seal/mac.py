"""A keyed BLAKE3 trailer: proof that whoever wrote a value had the key.

    trailer   | magic PGDTRAIL | version u16 | zero u16 | key id u32 | MAC 32 |

The MAC covers everything before it: header, payload, and the trailer's own first 16 bytes.
Reference: J. O'Connor et al., BLAKE3, keyed mode.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Iterable

from pagoda.core.errors import SettingsError
from pagoda.core.events import Reason
from pagoda.seal.keyring import Keyring

MAGIC = b"PGDTRAIL"
VERSION = 1
MAC_BYTES = 32
_HEAD = struct.Struct("<8sHHI")
TRAILER_BYTES = _HEAD.size + MAC_BYTES


def trailer_key(trailer: memoryview) -> int | None:
    """The key id of a well-formed trailer; None for other bytes."""
    if len(trailer) != TRAILER_BYTES:
        return None
    magic, version, zero, key_id = _HEAD.unpack_from(trailer)
    return key_id if (magic, version, zero) == (MAGIC, VERSION, 0) else None


class Signer:
    """Signs with the current key of `keyring`, checks with any. Called from any thread.

    Raises SettingsError, which names `setting`, when the package blake3 is missing.
    """

    def __init__(self, keyring: Keyring, *, setting: str) -> None:
        try:
            from blake3 import blake3  # noqa: PLC0415 - its package is optional
        except ModuleNotFoundError:
            raise SettingsError(
                "authentication needs the package blake3",
                key=setting,
                source=setting,
                remedy="pip install 'pagoda-kv[crypto]'",
            ) from None
        self._hasher = blake3
        self._keyring = keyring

    def trailer(self, parts: Iterable[bytes | memoryview]) -> bytes:
        """The 48 bytes that follow `parts`."""
        key_id = self._keyring.current
        head = _HEAD.pack(MAGIC, VERSION, 0, key_id)
        key = self._keyring.mac_key(key_id)
        assert key is not None, "the current key is in the keyring"
        return head + self._mac(key, (*parts, head))

    def refusal(self, signed: memoryview, trailer: memoryview) -> Reason | None:
        """Why `trailer` is no proof of `signed`, the bytes before it; None if it is one."""
        key_id = trailer_key(trailer)
        if key_id is None:
            return Reason.UNSIGNED
        key = self._keyring.mac_key(key_id)
        if key is None:
            return Reason.LOCKED
        made = self._mac(key, (signed, trailer[: _HEAD.size]))
        return None if hmac.compare_digest(made, trailer[_HEAD.size :]) else Reason.CORRUPT

    def _mac(self, key: bytes, parts: Iterable[bytes | memoryview]) -> bytes:
        hasher = self._hasher(key=key)
        for part in parts:
            hasher.update(part)
        return hasher.digest()
