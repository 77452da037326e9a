"""The files of a converted model: their digest, their manifest, their way to the medium."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from pathlib import Path

MANIFEST = "pagoda-manifest.json"


def is_ready(path: Path) -> bool:
    """Whether `path` holds a finished model of ours, by its manifest and its files' sizes.

    The bytes were checked before the directory got its name; they are not read again here.
    """
    try:
        sizes = json.loads((path / MANIFEST).read_text(encoding="utf-8"))["sizes_bytes"]
        return all((path / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def tensors_digest(path: Path) -> str:
    """SHA-256 of a safetensors file's content, in hex, whatever the order of its tensors.

    Hashed are, by ascending name, the JSON array [name, dtype, shape] in UTF-8 and the bytes.
    Raises ValueError when the file is no safetensors file or is cut short.
    """
    digest = hashlib.sha256()
    with path.open("rb") as file:
        try:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
        except struct.error as error:
            raise ValueError(f"{path} is cut short") from error
        for name in sorted(header.keys() - {"__metadata__"}):
            begin, end = header[name]["data_offsets"]
            digest.update(json.dumps([name, header[name]["dtype"], header[name]["shape"]]).encode())
            file.seek(8 + length + begin)
            payload = file.read(end - begin)
            if len(payload) != end - begin:
                raise ValueError(f"{path} is cut short")
            digest.update(payload)
    return digest.hexdigest()


def write_manifest(model: Path, tensors_sha256: str) -> None:
    """Record the sizes of all files of a model that was found good."""
    sizes = {path.name: path.stat().st_size for path in sorted(model.iterdir())}
    content = {"tensors_sha256": tensors_sha256, "sizes_bytes": sizes}
    (model / MANIFEST).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def sync(directory: Path) -> None:
    """Bring a directory and its files to the medium: a rename must not overtake its data."""
    for path in [*directory.iterdir(), directory]:
        sync_one(path)


def sync_one(path: Path) -> None:
    """Bring one file, or one directory's list of names, to the medium."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
