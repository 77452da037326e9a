"""vLLM's names of stored chunks, kept beside a drive's slab, so that what the drive holds can be
announced after a restart: a key is made from a name, and no name from a key.

One file for each namespace, `names-<digits>.vllm`, mode 0600: names of 36 bytes behind each other.
It proves nothing and is needed for nothing else: a name whose chunk is not there is dropped when
the file is read, and whatever is damaged in it is such a name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from pagoda.core.identity import DIGEST_BYTES, NamespaceId

NAME_BYTES = DIGEST_BYTES + 4  # a chunk's digest and its group
_DIGITS = 16


class NamesFile:
    """Blocks on I/O, but raises nothing of it: without it, less is announced."""

    def __init__(self, directory: Path, namespace: NamespaceId) -> None:
        self.path = directory / f"names-{namespace.hex()[:_DIGITS]}.vllm"

    def read(self) -> list[bytes]:
        """The names, each once; those of a broken-off write are left out."""
        content = b""
        with suppress(OSError):
            content = self.path.read_bytes()
        ends = range(NAME_BYTES, len(content) + 1, NAME_BYTES)
        return list(dict.fromkeys(content[end - NAME_BYTES : end] for end in ends))

    def write(self, names: Iterable[bytes]) -> None:
        """Have these and no others."""
        unnamed = self.path.with_suffix(".new")
        with suppress(OSError):
            unnamed.unlink(missing_ok=True)
            _append(unnamed, names)
            unnamed.replace(self.path)

    def append(self, names: Sequence[bytes]) -> None:
        """Have these as well."""
        with suppress(OSError):
            _append(self.path, names)


def _append(path: Path, names: Iterable[bytes]) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "ab") as file:
        file.write(b"".join(names))
