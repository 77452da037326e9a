"""The host tier against numpy copies, and a drive on tmpfs: what the code itself costs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pagoda.lab.bench.figures import Figure, Part
from pagoda.lab.bench.host import usable_cpus
from pagoda.lab.bench.tiers.drive import slab_for, timed_reads
from pagoda.lab.bench.tiers.pairs import (
    Passes,
    alternate,
    at_least,
    not_measured,
    row,
    speed_ratio,
)
from pagoda.lab.bench.tiers.settings import KIB, MIB, Say, TierSettings
from pagoda.lab.bench.tiers.sides import (
    Blocks,
    PlainMemory,
    SealedSide,
    Side,
    UnverifiedSide,
    mover,
)
from pagoda.machine.mounts import mount_of, mounts
from pagoda.machine.tree import HostTree
from pagoda.tiers.drive import DriveTier
from pagoda.tiers.host import HostTier
from pagoda.tiers.sealed import SealedTier

COPY_GOAL = 0.85
CEILING_GOAL = 0.65
DIGEST_GOAL = 0.85
_PREFIX = "pagoda-bench-"
_HOST_BLOCKS = (1 * MIB, 4 * MIB)
_CEILING_BLOCK = 4 * MIB


def measure_host(settings: TierSettings, directory: Path, say: Say) -> Part:
    """A verified get into a caller's buffer against a numpy copy, one thread and more."""
    del directory  # nothing is written
    rows, figures = [], []
    for block_bytes in _HOST_BLOCKS:
        count = max(1, settings.size_bytes // block_bytes)
        blocks = Blocks.make(block_bytes=block_bytes, count=count, seed=settings.seed)
        tier = SealedTier(HostTier(slots=count, slot_bytes=block_bytes))
        sides: dict[str, Side] = {"sealed": SealedSide(tier, blocks), "numpy": PlainMemory(blocks)}
        for threads in sorted({1, usable_cpus()}):
            shape = f"get of {block_bytes // KIB} KiB, {threads} thread(s)"
            say(f"host tier: {shape}")
            passes = _reads(sides, blocks, threads, settings.pairs)
            rows.append(row(passes, what="read", block_bytes=block_bytes, depth=threads))
            ratio = speed_ratio(passes["sealed"], passes["numpy"])
            figures.append(
                at_least(f"{shape}: numpy copy", ratio, COPY_GOAL, judged=settings.judged)
            )
        tier.close()
    return Part(figures=figures, rows=rows)


def measure_ceiling(settings: TierSettings, directory: Path, say: Say) -> Part:
    """A drive on tmpfs, read on one core: against a numpy copy, and without the digest."""
    del directory  # it is made on the tmpfs
    name = f"tmpfs, verified read of {_CEILING_BLOCK // KIB} KiB, one core"
    place = settings.memory_directory
    if not place.is_dir():
        return Part(figures=[not_measured(name, f"≥ {CEILING_GOAL}", f"no {place}")], rows=[])
    say(name)
    count = max(1, settings.size_bytes // _CEILING_BLOCK)
    blocks = Blocks.make(block_bytes=_CEILING_BLOCK, count=count, seed=settings.seed)
    with ExitStack() as stack:
        made = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=_PREFIX, dir=place)))
        drive = DriveTier(slab_for(made, blocks))
        stack.callback(drive.close)
        sides: dict[str, Side] = {
            "sealed": SealedSide(SealedTier(drive), blocks),
            "without the digest": UnverifiedSide(drive, blocks),
            "numpy": PlainMemory(blocks),
        }
        stack.enter_context(_one_core())
        passes = _reads(sides, blocks, 1, settings.pairs)
    found = row(passes, what="read", block_bytes=_CEILING_BLOCK, depth=1, file_system=_kind(place))
    return Part(figures=_ceiling_figures(name, passes, settings), rows=[found])


def _ceiling_figures(name: str, passes: Passes, settings: TierSettings) -> list[Figure]:
    return [
        at_least(
            f"{name}: {other}",
            speed_ratio(passes["sealed"], passes[other]),
            goal,
            judged=settings.judged,
        )
        for other, goal in (("numpy", CEILING_GOAL), ("without the digest", DIGEST_GOAL))
    ]


def _reads(sides: dict[str, Side], blocks: Blocks, depth: int, pairs: int) -> Passes:
    """Write each side once, then alternate reads."""
    with mover(depth, blocks) as each:
        for side in sides.values():
            each(side.write)
        timed = {name: timed_reads(side, blocks, each) for name, side in sides.items()}
        return alternate(timed, pairs)


@contextmanager
def _one_core() -> Iterator[None]:
    """The calling thread stays on one processor."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _kind(directory: Path) -> str:
    """The file system's type and options: huge pages make it twice as fast."""
    mount = mount_of(mounts(HostTree()), directory.resolve())
    return "" if mount is None else ",".join([mount.kind, *sorted(mount.options)])
