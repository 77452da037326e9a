"""Pagoda's tiers against the disk caches of vLLM and LMCache: one drive, the same blocks.

Both peers verify nothing and make nothing durable; Pagoda does both, and is not relieved of it
here. Reads are compared twice. Cold: the peers' files are written back and dropped from the page
cache before each pass; Pagoda's drive never uses it. Warm: everything lies in memory; in the page
cache for the peers and for a Pagoda drive with `direct = off`, and in the host tier, which is
where Pagoda keeps what is warm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Protocol

from pagoda.lab.bench.figures import Figure, Part
from pagoda.lab.bench.tiers.drive import slab_for, timed_reads
from pagoda.lab.bench.tiers.file_peer import FilePeer
from pagoda.lab.bench.tiers.lmcache_peer import LMCachePeer, Missing
from pagoda.lab.bench.tiers.pairs import (
    Moved,
    Passes,
    Timed,
    alternate,
    at_least,
    not_measured,
    row,
    speed_ratio,
)
from pagoda.lab.bench.tiers.settings import DEPTH, KIB, MIB, Say, TierSettings
from pagoda.lab.bench.tiers.sides import Blocks, SealedSide, mover
from pagoda.tiers.drive import DriveTier
from pagoda.tiers.host import HostTier
from pagoda.tiers.sealed import SealedTier

GOAL = 1.0
JUDGED = {"write": "pagoda drive", "read cold": "pagoda drive", "read warm": "pagoda host tier"}
_BLOCK = 4 * MIB
_VLLM, _VLLM_DIRECT = "vLLM fs tier, buffered", "vLLM fs tier, O_DIRECT"
_LMCACHE, _LMCACHE_DIRECT = "LMCache disk, buffered", "LMCache disk, O_DIRECT"
_NEVER_WARM = {_VLLM_DIRECT, _LMCACHE_DIRECT}  # they read the drive every time


class Peer(Protocol):
    """A cache of files that moves all blocks at once."""

    def forget(self) -> None:
        """Delete all files, so that the next pass writes them anew."""
        ...

    def drop(self) -> None:
        """Write back and drop its files from the page cache."""
        ...

    def write(self) -> None: ...

    def read(self) -> None: ...

    def check(self) -> None:
        """Assert that what was read is what was written, and let go of it."""
        ...

    def close(self) -> None: ...


def measure(settings: TierSettings, directory: Path, say: Say) -> Part:
    """Writes, cold reads and warm reads of each peer; one that is not there is said to be."""
    count = max(DEPTH, settings.size_bytes // _BLOCK)
    blocks = Blocks.make(block_bytes=_BLOCK, count=count, seed=settings.seed)
    figures: list[Figure] = []
    rows = []
    with ExitStack() as stack:
        peers: dict[str, Peer] = {}
        for name, make in _peers(directory, blocks, settings.lmcache):
            try:
                peers[name] = make()
                stack.callback(peers[name].close)
            except Missing as missing:
                figures.append(
                    not_measured(f"{name}: write, read cold, read warm", "> 1", str(missing))
                )
        ours = _Ours(directory, blocks, stack)
        for what in ("write", "read cold", "read warm"):
            say(f"other caches: {what}")
            taking_part = {
                name: _peer_side(peer, blocks, what)
                for name, peer in peers.items()
                if what != "read warm" or name not in _NEVER_WARM
            }
            passes = alternate(ours.sides(what) | taking_part, settings.pairs)
            rows.append(row(passes, what=what, block_bytes=_BLOCK, depth=DEPTH))
            figures += _figures(what, passes, JUDGED[what], judged=settings.judged)
    return Part(figures=figures, rows=rows)


def _peers(
    directory: Path, blocks: Blocks, lmcache: Path | None
) -> Iterator[tuple[str, Callable[[], Peer]]]:
    files, lm = directory / "files", directory / "lmcache"
    yield _VLLM, partial(FilePeer, files / "cached", blocks, direct=False)
    yield _VLLM_DIRECT, partial(FilePeer, files / "direct", blocks, direct=True)
    yield _LMCACHE, partial(LMCachePeer, lm / "cached", blocks, direct=False, package=lmcache)
    yield _LMCACHE_DIRECT, partial(LMCachePeer, lm / "direct", blocks, direct=True, package=lmcache)


class _Ours:
    """Pagoda's sides of each comparison."""

    def __init__(self, directory: Path, blocks: Blocks, stack: ExitStack) -> None:
        drive = DriveTier(slab_for(directory / "drive", blocks))
        cached = DriveTier(slab_for(directory / "cached", blocks, direct="off"))
        host = HostTier(slots=len(blocks.payloads), slot_bytes=blocks.block_bytes)
        self._blocks = blocks
        self._each = stack.enter_context(mover(DEPTH, blocks))
        self._sides: dict[str, SealedSide] = {}
        for name, tier in (
            ("pagoda drive", drive),
            ("pagoda drive, page cache", cached),
            ("pagoda host tier", host),
        ):
            stack.callback(tier.close)
            self._sides[name] = SealedSide(SealedTier(tier), blocks)
            self._each(self._sides[name].write)

    def sides(self, what: str) -> dict[str, Callable[[], Moved]]:
        """What takes part in a comparison."""
        size = self._blocks.size_bytes
        if what == "write":
            side = self._sides["pagoda drive"]
            return {"pagoda drive": Timed(work=partial(self._each, side.write), size_bytes=size)}
        warm = ("pagoda host tier", "pagoda drive, page cache")
        return {
            name: timed_reads(self._sides[name], self._blocks, self._each)
            for name in (warm if what == "read warm" else ("pagoda drive",))
        }


def _peer_side(peer: Peer, blocks: Blocks, what: str) -> Timed:
    size = blocks.size_bytes
    if what == "write":
        return Timed(work=peer.write, size_bytes=size, before=peer.forget, after=peer.drop)
    before = peer.drop if what == "read cold" else blocks.zero_targets
    return Timed(work=peer.read, size_bytes=size, before=before, after=peer.check)


def _figures(what: str, passes: Passes, judged_by: str, *, judged: bool) -> list[Figure]:
    ours = [name for name in passes if name.startswith("pagoda")]
    return [
        at_least(
            f"{what} of {_BLOCK // KIB} KiB, {side}: {peer}",
            speed_ratio(passes[side], passes[peer]),
            GOAL,
            judged=judged and side == judged_by,
        )
        for side in ours
        for peer in passes
        if peer not in ours
    ]
