"""What the figures of two tiers and of a what-if rest on, each said in a line."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from pagoda.advise.plan.economics import Drive
from pagoda.lab.replay.cells import SAME
from pagoda.lab.replay.what_if import Machine, Setup

HITS, FIRST_TOKEN = "token_hit_pct", "mean_first_token_ms"
WRITTEN, LIFE, SIZES = "written_bytes_a_day", "drive_life_years", "sizes"
STALL, WRITTEN_BYTES = "mean_stall_ms", "written_bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """One of them, and the figures that rest on it; `given` if a flag said so."""

    text: str
    figures: tuple[str, ...]
    given: bool = False


def of_what_if(setup: Setup, machine: Machine, given: Set[str]) -> list[Assumption]:
    """All of a what-if; `given` has the names of the flags that were set."""
    return [
        *_of_the_replay(setup, given),
        _token(machine, (SIZES, FIRST_TOKEN, WRITTEN, LIFE), given),
        *_of_the_times(machine, given),
        _rating("the drive", machine.drive, given >= {"drive_tb", "dwpd"}),
        _rating("another drive", machine.other, given >= {"other_drive_tb", "other_dwpd"}),
    ]


def of_two_tiers(drive_policy: str, machine: Machine, given: Set[str]) -> list[Assumption]:
    """All of two tiers under named policies, with this one on drives; `given` as above."""
    everything = (HITS, STALL, WRITTEN_BYTES, LIFE)
    on_drives = "the same policy" if drive_policy == SAME else drive_policy
    alone = "a request is alone: memory takes it no time, it waits for drives, then computes"
    return [
        _traffic(everything),
        Assumption(
            text=f"the named policy chooses what stays in memory, {on_drives} on drives",
            figures=everything,
            given="drive_policy" in given,
        ),
        _token(machine, (SIZES, STALL, WRITTEN_BYTES, LIFE), given),
        _compute(machine, STALL, given),
        _drive_reads(machine, STALL, given),
        Assumption(text=alone, figures=(STALL,)),
        _rating("the drive", machine.drive, given >= {"drive_tb", "dwpd"}),
    ]


def _of_the_replay(setup: Setup, given: Set[str]) -> list[Assumption]:
    everything = (HITS, FIRST_TOKEN, WRITTEN, LIFE)
    return [
        _traffic(everything),
        Assumption(
            text=f"{setup.policy} chooses what stays in memory, {setup.drive_policy} on drives; "
            f"written is: {setup.writes}",
            figures=everything,
            given=bool(given & {"policy", "drive_policy", "writes"}),
        ),
        Assumption(
            text=f"memory of {setup.host.text} and drives of {setup.drive.text} are there now "
            "(percents: of the trace's unique blocks)",
            figures=(*everything, SIZES),
            given=given >= {"host", "drive"},
        ),
    ]


def _of_the_times(machine: Machine, given: Set[str]) -> list[Assumption]:
    host_gb_s, other_gb_s = machine.host_bytes_a_second / 1e9, machine.other.read / 1e9
    alone = (
        "a request is alone: it waits for nobody, reads memory, then drives, then computes the "
        "rest of its prompt"
    )
    return [
        _compute(machine, FIRST_TOKEN, given),
        _rate(f"memory is read at {host_gb_s:g} GB/s", FIRST_TOKEN, "host_gb_s" in given),
        _drive_reads(machine, FIRST_TOKEN, given),
        _rate(f"another drive reads {other_gb_s:g} GB/s", FIRST_TOKEN, "other_drive_gb_s" in given),
        Assumption(text=alone, figures=(FIRST_TOKEN,)),
    ]


def _traffic(figures: tuple[str, ...]) -> Assumption:
    return Assumption(
        text="this trace stands for the traffic, from empty tiers on; a drive is written "
        "every day as it was in the trace's time",
        figures=figures,
    )


def _token(machine: Machine, figures: tuple[str, ...], given: Set[str]) -> Assumption:
    return Assumption(
        text=f"a token's KV takes {machine.token_bytes:,} B",
        figures=figures,
        given=bool(given & {"kv_bytes_per_token", "model"}),
    )


def _compute(machine: Machine, figure: str, given: Set[str]) -> Assumption:
    text = f"a token takes {machine.compute_s * 1e3:g} ms to compute"
    return _rate(text, figure, "recompute_ms" in given)


def _drive_reads(machine: Machine, figure: str, given: Set[str]) -> Assumption:
    text = f"the drive reads {machine.drive.read / 1e9:g} GB/s"
    return _rate(text, figure, "drive_gb_s" in given)


def _rate(text: str, figure: str, given: bool) -> Assumption:
    return Assumption(text=text, figures=(figure,), given=given)


def _rating(name: str, drive: Drive, given: bool) -> Assumption:
    size = "is as large as the tier on it"
    if drive.capacity_bytes:
        size = f"has {drive.capacity_bytes / 1e12:g} TB (as the tier on it, where that is larger)"
    return Assumption(
        text=f"{name} {size}, is rated for {drive.writes_per_day:g} × its size a day over "
        f"{drive.warranty_years:g} years, and writes {drive.write_amplification:g} bytes inside "
        "for each that it is given",
        figures=(LIFE,),
        given=given,
    )
