"""`pagoda bench tiers`: sealed writes and verified reads against plain I/O, in one run.

Each repetition moves the same blocks through both sides, one after the other, on the same
file system, in the same runs, from the same number of threads. What a tier adds shows as
the ratio of the two and as processor time. A first repetition is not counted: it gives the
preallocated files their first contents.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pagoda.core.errors import SettingsError
from pagoda.lab.bench import host
from pagoda.lab.bench.sides import Blocks, PlainFile, PlainMemory, SealedSide, Side, digest_all
from pagoda.lab.bench.stats import Spread, paired_ratio
from pagoda.store.level import RUN_BYTES
from pagoda.tiers.drive.tier import DriveConfig, DriveTier
from pagoda.tiers.host.tier import HostTier
from pagoda.tiers.sealed import SealedTier

SCHEMA = 1
KIB = 1 << 10
MIB = 1 << 20
GB = 1e9
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  (a directory of its own is made in it)

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSettings:
    """What to move. Sizes in bytes; `directory` None takes the system's temporary one."""

    directory: Path | None = None
    size_bytes: int = 256 * MIB
    block_sizes: tuple[int, ...] = (360 * KIB, 4 * MIB)
    depths: tuple[int, ...] = (1, 4)
    runs: int = 5
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Moved:
    """One pass over all blocks: seconds on the clock and of processor time (all threads)."""

    wall_s: float
    cpu_s: float


def measure_tiers(settings: TierSettings, say: Say) -> dict[str, Any]:
    """The report of all tiers, block sizes and depths. Raises TierError when a tier cannot be
    made, SettingsError when the directory cannot be used."""
    facts = host.facts()
    rows: list[dict[str, Any]] = []
    for block_bytes in settings.block_sizes:
        count = max(1, settings.size_bytes // block_bytes)
        blocks = Blocks.make(block_bytes=block_bytes, count=count, seed=settings.seed)
        for place in _places(settings):
            with _pair(place, blocks) as pair:
                for depth in settings.depths:
                    say(f"{place.name}, blocks of {block_bytes // KIB} KiB, depth {depth}")
                    rows += _measure(pair, blocks, depth, settings.runs)
    return {
        "schema": SCHEMA,
        "kind": "pagoda bench tiers",
        "size_bytes": settings.size_bytes,
        "run_bytes": RUN_BYTES,
        "host": facts,
        "load_1m_after": host.load_1m(),
        "rows": rows,
    }


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a tier lies; `directory` None is memory of this process."""

    name: str
    directory: Path | None


def _places(settings: TierSettings) -> list[_Place]:
    drive = settings.directory or Path(tempfile.gettempdir())
    places = [_Place("drive", drive), _Place("host", None)]
    if SHARED_MEMORY.is_dir():
        places.append(_Place("drive on tmpfs", SHARED_MEMORY))
    return places


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """Both sides of a comparison, and what is known of them."""

    place: str
    sealed: Side
    plain: Side
    direct: bool
    copies: Callable[[], int]  # payloads that the sealed side copied for want of alignment


@contextmanager
def _pair(place: _Place, blocks: Blocks) -> Iterator[_Pair]:
    if place.directory is None:
        tier = HostTier(slots=len(blocks.payloads), slot_bytes=blocks.block_bytes)
        yield _Pair(
            place=place.name,
            sealed=SealedSide(SealedTier(tier), blocks),
            plain=PlainMemory(blocks),
            direct=False,
            copies=lambda: 0,
        )
        return
    with ExitStack() as stack:
        directory = _work_directory(place.directory)
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        drive = DriveTier(
            DriveConfig(
                directory=directory,
                capacity_bytes=blocks.size_bytes + 16 * MIB,
                slot_bytes=blocks.block_bytes,
                free_floor_bytes=0,
            )
        )
        stack.callback(drive.close)
        plain = PlainFile(directory / "plain", blocks)
        stack.callback(plain.close)
        yield _Pair(
            place=place.name,
            sealed=SealedSide(SealedTier(drive), blocks),
            plain=plain,
            direct=drive.direct and plain.direct,
            copies=lambda: drive.bounced,
        )


def _work_directory(parent: Path) -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix="pagoda-bench-", dir=parent))
    except OSError as error:
        raise SettingsError(
            f"cannot make a directory in {parent}: {error.strerror}",
            key="directory", source="flag", remedy="name a directory on the drive to measure",
        ) from error  # fmt: skip


def _measure(pair: _Pair, blocks: Blocks, depth: int, runs: int) -> list[dict[str, Any]]:
    """Rows for writing and reading, `runs` alternations each after one that is not counted."""
    passes: dict[str, list[Moved]] = {}
    order = blocks.runs(RUN_BYTES)
    copies_before = pair.copies()
    with ThreadPoolExecutor(depth) as threads:
        for run in range(runs + 1):
            found = _alternate(pair, blocks, order, threads, flip=run % 2 == 1)
            for name, moved in found.items() if run else ():
                passes.setdefault(name, []).append(moved)
    common = {
        "place": pair.place,
        "block_bytes": blocks.block_bytes,
        "depth": depth,
        "direct": pair.direct,
        "alignment_copies": pair.copies() - copies_before,
    }
    size = blocks.size_bytes
    return [common | row("write", passes, size), common | row("read", passes, size)]


def _alternate(
    pair: _Pair, blocks: Blocks, order: Sequence[range], threads: ThreadPoolExecutor, *, flip: bool
) -> dict[str, Moved]:
    """One pass of everything; `flip` lets the sealed side go first, so that neither always
    finds the caches as the other left them."""
    sides = [("plain", pair.plain), ("sealed", pair.sealed)]
    sides = sides[::-1] if flip else sides
    found: dict[str, Moved] = {}
    for name, side in sides:
        found[f"{name} write"] = _timed(partial(_each, threads, side.write, order))
    for name, side in sides:
        blocks.zero_targets()
        found[f"{name} read"] = _timed(partial(_each, threads, side.read, order))
        blocks.check()
    found["digest"] = _timed(partial(digest_all, blocks.payloads))
    return found


def _each(
    threads: ThreadPoolExecutor, move: Callable[[range], None], order: Sequence[range]
) -> None:
    for _ in threads.map(move, order):
        pass


def _timed(work: Callable[[], object]) -> Moved:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Moved(time.perf_counter() - wall, time.process_time() - cpu)


def row(what: str, passes: dict[str, list[Moved]], size_bytes: int) -> dict[str, Any]:
    """One line of the report from the counted passes of both sides. Rates in GB/s (10⁹)."""
    sealed, plain, digests = (
        passes[name] for name in (f"sealed {what}", f"plain {what}", "digest")
    )
    gb = size_bytes / GB
    return {
        "what": what,
        "sealed_gb_per_s": asdict(Spread.of(gb / moved.wall_s for moved in sealed)),
        "plain_gb_per_s": asdict(Spread.of(gb / moved.wall_s for moved in plain)),
        "sealed_to_plain": asdict(
            paired_ratio([p.wall_s for p in plain], [s.wall_s for s in sealed])
        ),
        "sealed_cpu_s_per_gb": asdict(Spread.of(moved.cpu_s / gb for moved in sealed)),
        "plain_cpu_s_per_gb": asdict(Spread.of(moved.cpu_s / gb for moved in plain)),
        "digest_gb_per_s": asdict(Spread.of(gb / moved.wall_s for moved in digests)),
        "digest_share_of_cpu": asdict(
            paired_ratio([d.cpu_s for d in digests], [s.cpu_s for s in sealed])
        ),
    }
