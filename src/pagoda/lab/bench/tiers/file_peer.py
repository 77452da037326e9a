"""What vLLM's file system tier does for I/O, in its Python path, written anew from its behaviour.

One file a block, in two levels of directories named by the key; four threads. Storing: skip what
is there, create the parents, write a file under a temporary name in one call, rename it. Loading:
open, one readv into the block's place, close. No fsync, no digest, and a file is believed
whatever is in it, if it is long enough. O_DIRECT where the directory has it, else buffered
(vllm-project/vllm#41735 and later, as of 2026-11).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pagoda.lab.bench.tiers.sides import Blocks

THREADS = 4
_O_DIRECT = getattr(os, "O_DIRECT", 0)


class FilePeer:
    """Files of blocks in a directory."""

    def __init__(self, directory: Path, blocks: Blocks, *, direct: bool) -> None:
        self._directory = directory
        self._blocks = blocks
        self._flags = _O_DIRECT if direct else 0
        self._threads = ThreadPoolExecutor(THREADS)
        keys = [hashlib.sha256(b"%d" % i).hexdigest() for i in range(len(blocks.payloads))]
        self._paths = [directory / key[:3] / key[3:5] / f"{key}.bin" for key in keys]

    def forget(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    def drop(self) -> None:
        drop_from_page_cache(self._paths)

    def write(self) -> None:
        list(self._threads.map(self._store, self._paths, self._blocks.payloads))

    def read(self) -> None:
        list(self._threads.map(self._load, self._paths, self._blocks.into))

    def check(self) -> None:
        self._blocks.check()

    def close(self) -> None:
        self._threads.shutdown()

    def _store(self, path: Path, payload: memoryview) -> None:
        if path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        unnamed = path.with_suffix(f".{threading.get_ident()}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | self._flags
        fd = os.open(unnamed, flags, 0o600)
        try:
            assert os.write(fd, payload) == len(payload), "a short write"
        finally:
            os.close(fd)
        unnamed.replace(path)

    def _load(self, path: Path, into: memoryview) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | self._flags)
        try:
            assert os.readv(fd, [into]) == len(into), "a short read"
        finally:
            os.close(fd)


def drop_from_page_cache(paths: list[Path]) -> None:
    """Write files back and forget their pages."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
