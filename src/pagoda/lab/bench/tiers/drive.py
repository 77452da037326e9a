"""A sealed drive against fio, and against the plain system calls that it is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

from pagoda.lab.bench.figures import Figure, Part
from pagoda.lab.bench.stats import Spread
from pagoda.lab.bench.tiers.fio import Fio, find_fio
from pagoda.lab.bench.tiers.pairs import (
    Moved,
    Passes,
    Timed,
    added_cpu,
    alternate,
    at_least,
    at_most,
    row,
    speed_ratio,
)
from pagoda.lab.bench.tiers.settings import DEPTH, KIB, MIB, Say, TierSettings
from pagoda.lab.bench.tiers.sides import Blocks, Each, PlainFile, SealedSide, Side, mover
from pagoda.tiers.drive import DriveConfig, DriveTier
from pagoda.tiers.sealed import SealedTier

FIO_GOAL = 0.95
CPU_GOAL = 0.06  # processor seconds a GB
LOSS_GOAL = 0.02  # of the rate that the drive alone would give


def measure(settings: TierSettings, directory: Path, say: Say) -> Part:
    """Every block size and depth, written and read. Raises SettingsError without fio."""
    program = find_fio()
    rows, figures = [], []
    for block_bytes in settings.block_sizes:
        count = max(*settings.depths, settings.size_bytes // block_bytes)
        blocks = Blocks.make(block_bytes=block_bytes, count=count, seed=settings.seed)
        place = directory / str(block_bytes)
        with _sides(place, blocks) as sides:
            for depth, what in product(settings.depths, ("write", "read")):
                shape = f"{what} of {block_bytes // KIB} KiB, depth {depth}"
                say(f"drive: {shape}")
                fio = Fio(
                    program=program,
                    path=place / "fio",
                    size_bytes=blocks.size_bytes,
                    block_bytes=block_bytes,
                    depth=depth,
                )
                with mover(depth, blocks) as each:
                    compared = _sides_of(sides, blocks, each, what) | _fio_sides(fio, what)
                    passes = alternate(compared, settings.pairs)
                rows.append(
                    row(
                        passes,
                        what=what,
                        block_bytes=block_bytes,
                        depth=depth,
                        direct=sides.direct,
                        alignment_copies=sides.copies(),
                    )
                )
                figures += _figures(passes, shape, depth, judged=settings.judged)
    return Part(figures=figures, rows=rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sides:
    sealed: Side
    plain: Side
    direct: bool
    copies: Callable[[], int]  # payloads that the sealed side copied for want of alignment


@contextmanager
def _sides(directory: Path, blocks: Blocks) -> Iterator[_Sides]:
    with ExitStack() as stack:
        drive = DriveTier(slab_for(directory, blocks))
        stack.callback(drive.close)
        plain = PlainFile(directory / "plain", blocks)
        stack.callback(plain.close)
        yield _Sides(
            sealed=SealedSide(SealedTier(drive), blocks),
            plain=plain,
            direct=drive.direct and plain.direct,
            copies=lambda: drive.bounced,
        )


def slab_for(directory: Path, blocks: Blocks, *, direct: str = "auto") -> DriveConfig:
    """A slab that holds all blocks."""
    return DriveConfig(
        directory=directory,
        capacity_bytes=blocks.size_bytes + 16 * MIB,
        slot_bytes=blocks.block_bytes,
        free_floor_bytes=0,
        direct=direct,
    )


def _sides_of(
    sides: _Sides, blocks: Blocks, each: Each, what: str
) -> dict[str, Callable[[], Moved]]:
    named = {"sealed": sides.sealed, "plain": sides.plain}
    if what == "write":
        return {
            name: Timed(work=partial(each, side.write), size_bytes=blocks.size_bytes)
            for name, side in named.items()
        }
    return {name: timed_reads(side, blocks, each) for name, side in named.items()}


def timed_reads(side: Side, blocks: Blocks, each: Each) -> Timed:
    """One pass over all blocks, checked byte by byte afterwards."""
    return Timed(
        work=partial(each, side.read),
        size_bytes=blocks.size_bytes,
        before=blocks.zero_targets,
        after=blocks.check,
    )


def _fio_sides(fio: Fio, what: str) -> dict[str, Callable[[], Moved]]:
    return {
        "fio": partial(fio.run, what),
        "fio in huge pages": partial(replace(fio, huge_pages=True).run, what),
    }


def _figures(passes: Passes, shape: str, depth: int, *, judged: bool) -> list[Figure]:
    """At depth 1 a digest can overlap with nothing, and the drive idles meanwhile: told, and
    not judged."""
    sealed, plain = passes["sealed"], passes["plain"]
    judged = judged and depth == DEPTH
    loss = Spread.of(1 - s.gb_per_s / p.gb_per_s for s, p in zip(sealed, plain, strict=True))
    return [
        at_least(f"{shape}: {fio}", speed_ratio(sealed, passes[fio]), FIO_GOAL, judged=judged)
        for fio in ("fio", "fio in huge pages")
    ] + [
        at_most(f"{shape}: integrity, loss", loss, LOSS_GOAL, "of the rate", judged=judged),
        at_most(
            f"{shape}: integrity, processor",
            added_cpu(sealed, plain),
            CPU_GOAL,
            "CPU s/GB",
            judged=judged,
        ),
    ]
