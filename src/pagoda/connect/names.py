"""An engine's names of stored blocks, kept beside a drive's slab, so that what the drive holds can
be announced after a restart: a key is made from a name, and no name from a key.

One file for each namespace, `names-<digits>.<engine>`, mode 0600: names of one length behind each
other. It proves nothing and is needed for nothing else: a name whose block is not there is dropped
when the file is read, and whatever is damaged in it is such a name.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from pagoda.core.identity import NamespaceId

_DIGITS = 16
_MOST_BYTES = 256 << 20  # names of millions of blocks; what stands behind them is not read
_NOFOLLOW = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # neither links nor a pipe's other end


class NamesFile:
    """Blocks on I/O, but raises nothing of it: without it, less is announced."""

    def __init__(
        self, directory: Path, namespace: NamespaceId, *, engine: str, name_bytes: int
    ) -> None:
        self.path = directory / f"names-{namespace.hex()[:_DIGITS]}.{engine}"
        self._name_bytes = name_bytes

    def read(self) -> list[bytes]:
        """The names, each once; those of a broken-off write are left out."""
        content = b""
        with suppress(OSError), os.fdopen(_opened(self.path, os.O_RDONLY), "rb") as file:
            content = file.read(_MOST_BYTES)
        size = self._name_bytes
        ends = range(size, len(content) + 1, size)
        return list(dict.fromkeys(content[end - size : end] for end in ends))

    def write(self, names: Iterable[bytes]) -> None:
        """Have these and no others."""
        unnamed = self.path.with_suffix(".new")
        with suppress(OSError):
            unnamed.unlink(missing_ok=True)
            self._append(unnamed, names)
            unnamed.replace(self.path)

    def append(self, names: Sequence[bytes]) -> None:
        """Have these as well."""
        with suppress(OSError):
            self._append(self.path, names)

    def _append(self, path: Path, names: Iterable[bytes]) -> None:
        """What a write that was broken off has left comes off first: names stand in line."""
        fd = _opened(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        with os.fdopen(fd, "ab") as file:
            size = os.fstat(fd).st_size
            os.ftruncate(fd, size - size % self._name_bytes)
            file.write(b"".join(names))


def _opened(path: Path, flags: int) -> int:
    """A descriptor of a plain file. Raises OSError, also for what is none."""
    fd = os.open(path, flags | _NOFOLLOW, 0o600)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise FileNotFoundError(path)
    return fd
