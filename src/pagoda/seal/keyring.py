"""Master keys from a file, and the sub-keys that are made of them.

    # the first key is the current one: what is written is sealed with it
    2:8f0c…      64 hexadecimal digits
    1:51d7…      still read; delete the line once nothing sealed with it is wanted

Encryption and authentication use separate keys, both derived from the master key with
HKDF-Expand over SHA-256 (RFC 5869, section 2.3; a master key is uniformly random, so the
extraction step can be left out, section 3.3). No message or repr holds key material.
"""

from __future__ import annotations

import hmac
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from pagoda.core.errors import SettingsError

KEY_BYTES = 32
_MOST_FILE_BYTES = 64 * 1024
_LINE = re.compile(r"(?P<id>[0-9]{1,10}):(?P<key>[0-9a-fA-F]{64})")
_ENCRYPTION_LABEL = b"pagoda.seal.aes-256-gcm.v1\0"
_MAC_LABEL = b"pagoda.seal.blake3-mac.v1\0"


def expand(key: bytes, info: bytes) -> bytes:
    """HKDF-Expand of one SHA-256 block: 32 bytes for `info` from a uniformly random `key`."""
    return hmac.digest(key, info + b"\x01", "sha256")


class Keyring:
    """Keys by id; the first of `masters` is the current one.

    Ids are 1 … 2³²-1, and every master key is KEY_BYTES of good randomness.
    """

    __slots__ = ("_encryption", "_mac", "current")

    def __init__(self, masters: Mapping[int, bytes]) -> None:
        assert masters, "a keyring holds at least one key"
        for key_id, master in masters.items():
            assert 0 < key_id < 2**32, f"key id {key_id}"
            assert len(master) == KEY_BYTES, f"key {key_id} has {len(master)} bytes"
        self.current = next(iter(masters))
        self._encryption = {i: expand(key, _ENCRYPTION_LABEL) for i, key in masters.items()}
        self._mac = {i: expand(key, _MAC_LABEL) for i, key in masters.items()}

    def __repr__(self) -> str:
        return f"Keyring(current={self.current}, ids={sorted(self._mac)})"

    def __reduce__(self) -> str:
        raise TypeError("keys are not copied into files or other processes")

    def encryption_key(self, key_id: int) -> bytes | None:
        """32 bytes for AES-256; None when the key is not here."""
        return self._encryption.get(key_id)

    def mac_key(self, key_id: int) -> bytes | None:
        """32 bytes for keyed BLAKE3; None when the key is not here."""
        return self._mac.get(key_id)


def read_keyring(path: Path, *, setting: str) -> Keyring:
    """The keys of a file that nobody but its owner may read.

    Raises SettingsError, which names the file and the line, and never its content.
    """
    masters: dict[int, bytes] = {}
    for number, line in enumerate(_read(path, setting).splitlines(), start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        found = _LINE.fullmatch(text)
        key_id = int(found["id"]) if found else 0
        if found is None or not 0 < key_id < 2**32:
            raise _refusal(
                path, setting, f"line {number} is not id:key", "an id from 1, then 64 hex digits"
            )
        if key_id in masters:
            raise _refusal(path, setting, f"line {number} repeats key {key_id}", "use a new id")
        masters[key_id] = bytes.fromhex(found["key"])
    if not masters:
        raise _refusal(path, setting, "it holds no key", 'echo "1:$(openssl rand -hex 32)"')
    return Keyring(masters)


def _read(path: Path, setting: str) -> str:
    """The file's text. Looks at the file it has open, which nobody can exchange meanwhile."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise _refusal(path, setting, "it is no regular file", "name a file of keys")
            if status.st_mode & 0o077:
                raise _refusal(path, setting, "others may read or write it", f"chmod 600 {path}")
            data = os.read(fd, _MOST_FILE_BYTES + 1)
        finally:
            os.close(fd)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise _refusal(path, setting, why, "make the file, mode 0600") from error
    if len(data) > _MOST_FILE_BYTES or not data.isascii():
        raise _refusal(path, setting, "it is no text of keys", "one id:key a line")
    return data.decode("ascii")


def _refusal(path: Path, setting: str, why: str, remedy: str) -> SettingsError:
    return SettingsError(f"key file {path}: {why}", key=setting, source=str(path), remedy=remedy)
