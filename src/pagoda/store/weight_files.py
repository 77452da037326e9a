"""The files that hold a model's weights: which they are, when they changed, where headers end."""

from __future__ import annotations

import os
import struct
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import BinaryIO

from pagoda.core.errors import ModelError, ModelNotFound

PATTERNS = ("*.safetensors", "*.gguf")
_GGUF_MAGIC = b"GGUF"
_GGUF_VERSIONS = (2, 3)
_GGUF_STRING, _GGUF_ARRAY = 8, 9
_GGUF_WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_GGUF_DEEPEST = 4  # arrays in arrays


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What the file system says of a file's content; any difference means that it may differ."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    device: int

    def values(self) -> list[int]:
        """As a list, for a file."""
        return list(astuple(self))

    @property
    def changed_ns(self) -> int:
        """The last change that left a trace. Writing sets both times, `touch -d` only one."""
        return max(self.mtime_ns, self.ctime_ns)


def weight_files(path: Path) -> list[Path]:
    """All weights files of a directory in order of name, or the one file that `path` is.

    Also those that an engine would not load: too many names part two models that could share
    blocks, too few would mix up two that cannot. Raises ModelNotFound.
    """
    files = [path] if path.is_file() else sorted(f for p in PATTERNS for f in path.glob(p))
    if not files:
        raise ModelNotFound(
            f"no {' or '.join(PATTERNS)} in {path}",
            path=str(path),
            remedy="name a directory that holds a model's weights",
        )
    return files


def stamp_of(file: Path) -> Stamp:
    """The file's stamp, links followed. Raises ModelNotFound."""
    try:
        found = file.stat()
    except OSError as error:
        raise ModelNotFound(f"cannot read {file}: {error.strerror}", path=str(file)) from error
    return Stamp(
        size=found.st_size,
        mtime_ns=found.st_mtime_ns,
        ctime_ns=found.st_ctime_ns,
        inode=found.st_ino,
        device=found.st_dev,
    )


def header_bytes(stream: BinaryIO, size_bytes: int, file: Path) -> int:
    """How many bytes of a weights file come before its tensors. Raises ModelError."""
    try:
        start = stream.read(8)
        if start[:4] == _GGUF_MAGIC:
            end = _gguf_end(stream, start)
        else:
            end = 8 + int.from_bytes(start, "little")
    except (struct.error, EOFError, KeyError, ValueError, OverflowError) as error:
        raise _damaged(file) from error
    if len(start) < 8 or end > size_bytes:
        raise _damaged(file)
    return end


def _gguf_end(stream: BinaryIO, start: bytes) -> int:
    """Walks over the metadata and the list of tensors (ggml's docs/gguf.md)."""
    if int.from_bytes(start[4:], "little") not in _GGUF_VERSIONS:
        raise ValueError("this version of GGUF is unknown")
    tensors, entries = _numbers(stream, "QQ")
    for _ in range(entries):
        _skip_text(stream)
        _skip_value(stream, *_numbers(stream, "I"))
    for _ in range(tensors):
        _skip_text(stream)
        (dimensions,) = _numbers(stream, "I")
        _skip(stream, 8 * dimensions + 4 + 8)
    return stream.tell()


def _skip_value(stream: BinaryIO, kind: int, depth: int = 0) -> None:
    if kind == _GGUF_STRING:
        _skip_text(stream)
    elif kind == _GGUF_ARRAY and depth < _GGUF_DEEPEST:
        item, count = _numbers(stream, "IQ")
        if item in _GGUF_WIDTHS:
            _skip(stream, _GGUF_WIDTHS[item] * count)
            return
        for _ in range(count):
            _skip_value(stream, item, depth + 1)
    else:
        _skip(stream, _GGUF_WIDTHS[kind])


def _skip_text(stream: BinaryIO) -> None:
    _skip(stream, *_numbers(stream, "Q"))


def _skip(stream: BinaryIO, count: int) -> None:
    """Forward, not beyond the end: a damaged count may be any number."""
    if stream.tell() + count > os.fstat(stream.fileno()).st_size:
        raise EOFError("the file ends inside its header")
    stream.seek(count, os.SEEK_CUR)


def _numbers(stream: BinaryIO, layout: str) -> tuple[int, ...]:
    shape = struct.Struct(f"<{layout}")
    return shape.unpack(stream.read(shape.size))


def _damaged(file: Path) -> ModelError:
    return ModelError(
        f"{file} is neither a safetensors nor a GGUF file, or is cut short",
        path=str(file),
        remedy="fetch the model again, or set model.fingerprint to full if the file is right",
    )
