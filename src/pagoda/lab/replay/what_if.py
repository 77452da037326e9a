"""What more memory or another drive would give: hits, time to first token, drive life.

Hits come from replays of memory and drives; times and lives are computed from what the replays
moved, by figures that are stated beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pagoda.advise.plan.economics import SECONDS_A_DAY, Drive
from pagoda.lab.replay.capacities import Blocks, Capacity
from pagoda.lab.replay.cells import TwoTierCell
from pagoda.lab.replay.report import Row, life_years, rated
from pagoda.lab.replay.two_tiers import Costs, Flow

HOST_FACTORS = (2, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What is assumed of it: KV of a token, time to compute one, how fast memory is read onto
    the device, the drive that is there and the one that might be.

    A drive is rated for its `capacity_bytes`, and never for less than the tier on it: 0 is one as
    large as its tier.
    """

    token_bytes: int
    compute_s: float
    host_bytes_a_second: float
    drive: Drive
    other: Drive

    def costs(self) -> Costs:
        """As the simulator takes them."""
        return Costs(
            token_bytes=self.token_bytes,
            drive_bytes_a_second=self.drive.read,
            compute_s=self.compute_s,
        )

    def first_token_s(self, flow: Flow) -> float:
        """The mean time to first token of a request alone: KV read from memory and drives, one
        after the other, and the rest of the prompt computed."""
        read_s = flow.host_tokens * self.token_bytes / self.host_bytes_a_second
        read_s += flow.drive_tokens * self.token_bytes / self.drive.read
        missed = flow.input_tokens - flow.host_tokens - flow.drive_tokens
        return (read_s + missed * self.compute_s) / max(1, flow.requests)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What is there: sizes of memory and drives, the policy over each, what is written."""

    host: Capacity
    drive: Capacity
    policy: str
    drive_policy: str
    writes: str


@dataclass(frozen=True, slots=True)
class Change:
    """A machine as it is, or with one thing changed."""

    what: str
    host: Capacity
    drive: Capacity
    machine: Machine


def changes(setup: Setup, machine: Machine) -> list[Change]:
    """As it is; more memory; more room on drives; another drive."""
    host, drive = setup.host, setup.drive
    other = replace(machine, drive=machine.other)
    return [
        Change("as it is", host, drive, machine),
        *(Change(f"{n} × memory", host.scaled(n), drive, machine) for n in HOST_FACTORS),
        Change("2 × drive room", host, drive.scaled(2), machine),
        Change("another drive", host, drive, other),
    ]


def cells(changed: Sequence[Change], setup: Setup, blocks: Blocks) -> list[TwoTierCell]:
    """The replay of each change. Another drive of the same size hits the same."""
    return [
        TwoTierCell(
            policy=setup.policy,
            drive_policy=setup.drive_policy,
            writes=setup.writes,
            host_blocks=change.host.of(blocks, flag="--host"),
            drive_blocks=change.drive.of(blocks, flag="--drive"),
            costs=changed[0].machine.costs(),
        )
        for change in changed
    ]


def row_of(change: Change, cell: TwoTierCell, flow: Flow, span_s: float, *, tier_bytes: int) -> Row:
    """What a change gives; `tier_bytes` is the room on drives."""
    machine = change.machine
    drive = rated(machine.drive, tier_bytes)
    day_bytes = round(flow.written_bytes / span_s * SECONDS_A_DAY) if span_s > 0 else None
    return {
        "what": change.what,
        "host_blocks": cell.host_blocks,
        "drive_blocks": cell.drive_blocks,
        "drive_read_gb_s": drive.read / 1e9,
        "token_hit_pct": round(flow.token_hit_pct, 4),
        "host_hit_pct": round(flow.host_hit_pct, 4),
        "drive_hit_pct": round(flow.drive_hit_pct, 4),
        "mean_first_token_ms": round(machine.first_token_s(flow) * 1e3, 3),
        "written_bytes_a_day": day_bytes,
        "rated_tb": drive.capacity_bytes / 1e12,
        "drive_life_years": life_years(flow.written_bytes, drive=drive, span_s=span_s),
    }
