"""Reading the small text files that operators name."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path

LIMIT_BYTES = 16 << 20


def read_text(path: Path, *, limit_bytes: int = LIMIT_BYTES) -> str:
    """A file's text, UTF-8. Raises OSError, also for one of more than `limit_bytes` (a device
    never ends), and UnicodeDecodeError."""
    with path.open("rb") as stream:
        data = stream.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8").read()
