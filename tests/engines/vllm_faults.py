"""Faults of a drive inside an engine's process, in the one place that all its bytes pass.

Each is drawn by a generator with a seed: the same I/O in the same order has the same faults.
"""

from __future__ import annotations

import errno
import os
import random
import threading
import time
from typing import Any


class Faults:
    """What happens to reads and writes of payloads from now on: `eio` and `late` are the shares of
    reads that fail, and that take `late_s`; with `full`, every write finds no space."""

    def __init__(self) -> None:
        self._rng = random.Random(0)
        self._lock = threading.Lock()
        self.counts = {"eio": 0, "late": 0, "full": 0}
        self.begin({})

    def begin(self, wanted: dict[str, Any]) -> dict[str, int]:
        """Other faults, or none; how many there have been."""
        self._eio, self._late = wanted.get("eio", 0.0), wanted.get("late", 0.0)
        self._late_s, self._full = wanted.get("late_s", 0.0), wanted.get("full", False)
        self._rng.seed(wanted.get("seed", 0))
        return self.counts

    def on_read(self) -> None:
        with self._lock:
            drawn = self._rng.random()
            fault = "eio" if drawn < self._eio else "late" if drawn < self._eio + self._late else ""
            if fault:
                self.counts[fault] += 1
        if fault == "eio":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if fault == "late":
            time.sleep(self._late_s)

    def on_write(self) -> None:
        if self._full:
            self.counts["full"] += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def install(*, pause_s: float) -> Faults:
    """Put them between every slab and its file; a drive that failed rests for `pause_s`."""
    from pagoda.store import trust
    from pagoda.tiers.drive.file import SlabFile

    faults = Faults()
    read, write = SlabFile.read_payloads, SlabFile.write_payloads

    def faulty_read(self: Any, into: Any, offsets: Any) -> Any:
        faults.on_read()
        return read(self, into, offsets)

    def faulty_write(self: Any, buffers: Any, offset: int) -> int:
        faults.on_write()
        return write(self, buffers, offset)

    SlabFile.read_payloads, SlabFile.write_payloads = faulty_read, faulty_write
    trust._FIRST_PAUSE_S = trust._LONGEST_PAUSE_S = pause_s
    return faults
