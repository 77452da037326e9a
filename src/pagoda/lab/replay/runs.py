"""The three things that a replay can answer, each as a report."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import asdict, dataclass
from typing import Any

from pagoda.advise.plan.economics import Drive
from pagoda.core.errors import SettingsError
from pagoda.lab.replay.assumptions import of_two_tiers, of_what_if
from pagoda.lab.replay.capacities import Blocks, Capacity
from pagoda.lab.replay.cells import SAME, OneTierCell, TwoTierCell
from pagoda.lab.replay.files import ReadTrace
from pagoda.lab.replay.report import fill_gaps, flow_row_of, rated, row_of, span_s, trace_part
from pagoda.lab.replay.sweep import Tell, sweep
from pagoda.lab.replay.what_if import Machine, Setup, cells, changes
from pagoda.lab.replay.what_if import row_of as what_if_row_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is replayed, how many at a time, and who hears how far it is."""

    read: ReadTrace
    blocks: Blocks
    jobs: int
    tell: Tell
    hints: dict[str, Any] | None = None

    def tier_bytes(self, blocks: int) -> int:
        """What so many blocks take. Two tiers are always told what a token takes."""
        assert self.blocks.bytes_each is not None, "bytes of a token are known or assumed"
        return blocks * self.blocks.bytes_each

    def report(self, rows: Sequence[dict[str, Any]], **more: Any) -> dict[str, Any]:
        return {"trace": trace_part(self.read), "hints": self.hints, **more, "rows": list(rows)}


@dataclass(frozen=True, slots=True)
class Pair:
    """Sizes of memory and of drives."""

    host: Capacity
    drive: Capacity


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoTiers:
    """What is asked of memory and drives beside policies and sizes: the policy on drives (or
    SAME), kinds of writing, the machine, and the names of the flags that were set."""

    drive_policy: str
    writes: Sequence[str]
    machine: Machine
    given: Set[str]


def one_tier(work: Work, policies: Sequence[str], capacities: Sequence[Capacity]) -> dict[str, Any]:
    """Every policy at every capacity."""
    sized = [(one, one.of(work.blocks, flag="--capacity")) for one in capacities]
    places = [
        {
            "policy": policy,
            "capacity": capacity.text,
            "capacity_blocks": count,
            "capacity_pct": _share(count, work.blocks),
        }
        for policy in policies
        for capacity, count in sized
    ]
    asked = [OneTierCell(policy, count) for policy in policies for _, count in sized]
    found = sweep(work.read.trace, asked, jobs=work.jobs, tell=work.tell)
    rows = [row_of(place, replayed) for place, replayed in zip(places, found, strict=True)]
    fill_gaps(rows)
    return work.report(rows)


def two_tiers(
    work: Work,
    policies: Sequence[str],
    pairs: Sequence[Pair],
    *,
    asked: TwoTiers,
) -> dict[str, Any]:
    """Every policy with every kind of writing at every pair of sizes."""
    machine = asked.machine
    sized = [
        (pair, pair.host.of(work.blocks, flag="--host"), pair.drive.of(work.blocks, flag="--drive"))
        for pair in pairs
    ]
    for _, _, drive in sized:
        _require_room(work.tier_bytes(drive), machine.drive, "--drive-tb")
    todo, places = [], []
    for policy in policies:
        for kind in asked.writes:
            for pair, host, drive in sized:
                todo.append(_cell(policy, kind, host, drive, asked))
                places.append(_place(todo[-1], pair, work.blocks))
    found = sweep(work.read.trace, todo, jobs=work.jobs, tell=work.tell)
    lasted_s = span_s(work.read.trace)
    rows = [
        flow_row_of(
            place,
            replayed,
            drive=rated(machine.drive, work.tier_bytes(cell.drive_blocks)),
            span_s=lasted_s,
        )
        for place, cell, replayed in zip(places, todo, found, strict=True)
    ]
    stated = of_two_tiers(asked.drive_policy, machine, asked.given)
    return work.report(
        rows, assumptions=[asdict(one) for one in stated], machine=_machine_part(machine)
    )


def what_if(work: Work, setup: Setup, machine: Machine, given: Set[str]) -> dict[str, Any]:
    """What more memory and another drive would give."""
    changed = changes(setup, machine)
    asked = cells(changed, setup, work.blocks)
    there = work.tier_bytes(asked[0].drive_blocks)
    _require_room(there, machine.drive, "--drive-tb")
    _require_room(there, machine.other, "--other-drive-tb")
    distinct = list(dict.fromkeys(asked))
    found = sweep(work.read.trace, distinct, jobs=work.jobs, tell=work.tell)
    flows = dict(zip(distinct, (one.figures for one in found), strict=True))
    lasted_s = span_s(work.read.trace)
    rows = [
        what_if_row_of(
            change, cell, flows[cell], lasted_s, tier_bytes=work.tier_bytes(cell.drive_blocks)
        )
        for change, cell in zip(changed, asked, strict=True)
    ]
    stated = [asdict(one) for one in of_what_if(setup, machine, given)]
    return work.report(rows, assumptions=stated, machine=_machine_part(machine))


def _share(count: int, blocks: Blocks) -> float:
    return round(100 * count / max(1, blocks.unique), 4)


def _require_room(tier_bytes: int, drive: Drive, flag: str) -> None:
    """Raises SettingsError where a drive was said to be smaller than the tier on it."""
    if 0 < drive.capacity_bytes < tier_bytes:
        raise SettingsError(
            f"{flag} {drive.capacity_bytes / 1e12:g} is less than the tier on it: "
            f"{tier_bytes / 1e12:.4g} TB",
            key=flag.lstrip("-"),
            source="flag",
            remedy="name all drives together, or leave it out: they are then as large as the tier",
        )


def _cell(policy: str, writes: str, host: int, drive: int, asked: TwoTiers) -> TwoTierCell:
    return TwoTierCell(
        policy=policy,
        drive_policy=policy if asked.drive_policy == SAME else asked.drive_policy,
        writes=writes,
        host_blocks=host,
        drive_blocks=drive,
        costs=asked.machine.costs(),
    )


def _place(cell: TwoTierCell, pair: Pair, blocks: Blocks) -> dict[str, Any]:
    return {
        "policy": cell.policy,
        "drive_policy": cell.drive_policy,
        "writes": cell.writes,
        "capacity": f"{pair.host.text} + {pair.drive.text}",
        "capacity_blocks": cell.host_blocks + cell.drive_blocks,
        "capacity_pct": _share(cell.host_blocks + cell.drive_blocks, blocks),
        "host_blocks": cell.host_blocks,
        "drive_blocks": cell.drive_blocks,
    }


def _machine_part(machine: Machine) -> dict[str, Any]:
    return {
        "kv_bytes_per_token": machine.token_bytes,
        "recompute_ms": machine.compute_s * 1e3,
        "host_gb_s": machine.host_bytes_a_second / 1e9,
        "drive": _drive_part(machine.drive),
        "other_drive": _drive_part(machine.other),
    }


def _drive_part(drive: Drive) -> dict[str, float | None]:
    """A drive in figures; `tb` None: as large as its tier."""
    return {
        "read_gb_s": drive.read / 1e9,
        "tb": drive.capacity_bytes / 1e12 or None,
        "writes_per_day": drive.writes_per_day,
        "warranty_years": drive.warranty_years,
        "write_amplification": drive.write_amplification,
    }
