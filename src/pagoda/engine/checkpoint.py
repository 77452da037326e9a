"""Reading tensors out of safetensors files, without mapping them into memory.

A mapped file counts as the process's memory beside the packed copy; plain reads keep the
peak at the weights plus one tensor. Format: an 8-byte little-endian length, a JSON header
{name: {dtype, shape, data_offsets}}, then the bytes (huggingface/safetensors README).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import torch

from pagoda.core.errors import ModelNotFound, UnsupportedModel

_DTYPES: Final = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
_HEADER_LIMIT_BYTES: Final = 100 * 1024 * 1024  # the format's own limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Where one tensor lies: its file, first byte, dtype and shape."""

    file: Path
    offset: int
    dtype: torch.dtype
    shape: tuple[int, ...]


class Checkpoint:
    """The tensors of a model directory by name; a context manager that owns open files."""

    def __init__(self, directory: Path) -> None:
        self.path = directory
        self._files: dict[Path, BinaryIO] = {}
        self.entries: dict[str, Entry] = {}
        for file in _weight_files(directory):
            self.entries.update(_read_header(file))

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def read_into(self, name: str, target: torch.Tensor) -> None:
        """Fill the contiguous `target` with tensor `name`, converting its dtype if needed."""
        entry = self.entries[name]
        if entry.dtype != target.dtype:
            raw = torch.empty(entry.shape, dtype=entry.dtype)
            self._fill(entry, raw)
            target.copy_(raw)
        else:
            self._fill(entry, target)

    def read(self, name: str, dtype: torch.dtype) -> torch.Tensor:
        """Tensor `name` as a new tensor of `dtype`."""
        target = torch.empty(self.entries[name].shape, dtype=dtype)
        self.read_into(name, target)
        return target

    def _fill(self, entry: Entry, target: torch.Tensor) -> None:
        file = self._files.get(entry.file)
        if file is None:
            file = self._files[entry.file] = entry.file.open("rb", buffering=0)
        file.seek(entry.offset)
        view = memoryview(target.view(torch.uint8).numpy().data).cast("B")
        done = 0
        while done < len(view):
            count = file.readinto(view[done:])  # type: ignore[attr-defined]
            if not count:
                raise ModelNotFound(
                    f"{entry.file} ends inside a tensor",
                    path=str(entry.file),
                    remedy="fetch the model again",
                )
            done += count


def _weight_files(directory: Path) -> list[Path]:
    index = directory / "model.safetensors.index.json"
    names = {"model.safetensors"}
    if index.is_file():
        try:
            names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (ValueError, KeyError, AttributeError) as error:
            raise ModelNotFound(f"{index} is damaged: {error!r}", path=str(index)) from error
    for name in sorted(names):
        # A name from the index must not lead out of the model's directory.
        if Path(name).name != name or not (directory / name).is_file():
            raise ModelNotFound(
                f"no weights file {name} in {directory}",
                path=str(directory),
                remedy="Pagoda reads safetensors only (other formats can run code)",
            )
    return [directory / name for name in sorted(names)]


def _read_header(path: Path) -> dict[str, Entry]:
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(_HEADER_LIMIT_BYTES, size - 8):
            raise ModelNotFound(f"{path} is not a safetensors file", path=str(path))
        try:
            header = json.loads(file.read(length))
            header.pop("__metadata__", None)
            return {name: _entry(name, info, path, 8 + length) for name, info in header.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelNotFound(
                f"{path} has a damaged header: {error!r}", path=str(path)
            ) from error


def _entry(name: str, info: dict[str, Any], path: Path, base: int) -> Entry:
    dtype = _DTYPES.get(info["dtype"])
    if dtype is None:
        raise UnsupportedModel(
            f"{path}: tensor {name} is {info['dtype']}; Pagoda reads {', '.join(_DTYPES)}",
            path=str(path),
            feature=f"{info['dtype']} weights",
        )
    shape = tuple(int(n) for n in info["shape"])
    first, last = (int(n) for n in info["data_offsets"])
    if last - first != math.prod(shape) * dtype.itemsize or first < 0:
        raise ValueError(f"tensor {name} has offsets that contradict its shape")
    if base + last > path.stat().st_size:
        raise ValueError(f"tensor {name} lies beyond the end of the file")
    return Entry(file=path, offset=base + first, dtype=dtype, shape=shape)
