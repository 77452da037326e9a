"""A slab's file that shows every write and sync to a tap before it happens."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import NoReturn, Protocol

from pagoda.tiers.drive.file import SlabFile
from pagoda.tiers.drive.slab import SLAB_NAME


@dataclass(frozen=True, slots=True)
class Op:
    """A write of `data` at `offset` of the file `path`; without data, a sync of all before."""

    path: Path
    offset: int = 0
    data: bytes = b""

    @property
    def syncs(self) -> bool:
        return not self.data


class Tap(Protocol):
    """Sees an operation, and carries it out by calling `act`."""

    def __call__(self, op: Op, act: Callable[[], int]) -> int: ...


class TappedFile(SlabFile):
    """A SlabFile behind a tap."""

    def __init__(self, path: Path, direct: str, *, tap: Tap) -> None:
        self._path = path
        self._tap = tap
        super().__init__(path, direct)

    def write_table(self, data: bytes, offset: int) -> int:
        act = super().write_table
        return self._tap(Op(self._path, offset, data), lambda: act(data, offset))

    def write_payloads(self, buffers: Sequence[memoryview], offset: int) -> int:
        act = super().write_payloads
        return self._tap(Op(self._path, offset, b"".join(buffers)), lambda: act(buffers, offset))

    def sync(self) -> None:
        def act() -> int:
            SlabFile.sync(self)
            return 0

        self._tap(Op(self._path), act)


class Recorder:
    """A tap that remembers every operation in the order in which they returned, each with the
    name that its file had by then."""

    def __init__(self) -> None:
        self.log: list[Op] = []

    def __call__(self, op: Op, act: Callable[[], int]) -> int:
        done = act()
        renamed = not op.path.exists()
        self.log.append(replace(op, path=op.path.with_name(SLAB_NAME)) if renamed else op)
        return done

    def position(self) -> int:
        """Operations that have returned."""
        return len(self.log)


class Moment(StrEnum):
    """When, in an operation, the process dies."""

    BEFORE = "before"
    WITHIN = "within"  # a write stops at some byte
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL at operation number `op`; `share` in [0, 1) is how much of a write is done."""

    op: int
    moment: Moment
    share: float = 0.0

    @property
    def cut(self) -> int:
        """Operations that had been issued by then."""
        return self.op + (self.moment is not Moment.BEFORE)


class Killer:
    """A tap that ends its process by SIGKILL at one operation."""

    def __init__(self, kill: Kill) -> None:
        self._kill = kill
        self._count = 0

    def __call__(self, op: Op, act: Callable[[], int]) -> int:
        due = self._count == self._kill.op
        if due and self._kill.moment is Moment.BEFORE:
            _die()
        if due and self._kill.moment is Moment.WITHIN:
            _write_part(op, self._kill.share)
            _die()
        done = act()
        if due:
            _die()
        self._count += 1
        return done

    def position(self) -> int:
        """Operations that have returned."""
        return self._count


def _write_part(op: Op, share: float) -> None:
    fd = os.open(op.path, os.O_WRONLY)
    os.pwrite(fd, op.data[: int(len(op.data) * share)], op.offset)


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("nothing survives SIGKILL")
