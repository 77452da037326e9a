"""What the figures of a what-if rest on, each said in a line."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from pagoda.advise.plan.economics import Drive
from pagoda.lab.replay.what_if import Machine, Setup

HITS, FIRST_TOKEN = "token_hit_pct", "mean_first_token_ms"
WRITTEN, LIFE, SIZES = "written_bytes_a_day", "drive_life_years", "sizes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """One of them, and the figures that rest on it; `given` if a flag said so."""

    text: str
    figures: tuple[str, ...]
    given: bool = False


def assumptions(setup: Setup, machine: Machine, given: Set[str]) -> list[Assumption]:
    """All of them; `given` has the names of the flags that were set."""
    return [
        *_of_the_replay(setup, given),
        Assumption(
            text=f"a token's KV takes {machine.token_bytes:,} B",
            figures=(SIZES, FIRST_TOKEN, WRITTEN, LIFE),
            given=bool(given & {"kv_bytes_per_token", "model"}),
        ),
        *_of_the_times(machine, given),
        _rating("the drive", machine.drive, given >= {"drive_tb", "dwpd"}),
        _rating("another drive", machine.other, given >= {"other_drive_tb", "other_dwpd"}),
    ]


def _of_the_replay(setup: Setup, given: Set[str]) -> list[Assumption]:
    everything = (HITS, FIRST_TOKEN, WRITTEN, LIFE)
    return [
        Assumption(
            text="this trace stands for the traffic, from empty tiers on; a drive is written "
            "every day as it was in the trace's time",
            figures=everything,
        ),
        Assumption(
            text=f"{setup.policy} chooses what stays in memory and on drives; written is: "
            f"{setup.writes}",
            figures=everything,
            given=bool(given & {"policy", "writes"}),
        ),
        Assumption(
            text=f"memory of {setup.host.text} and drives of {setup.drive.text} are there now "
            "(percents: of the trace's unique blocks)",
            figures=(*everything, SIZES),
            given=given >= {"host", "drive"},
        ),
    ]


def _of_the_times(machine: Machine, given: Set[str]) -> list[Assumption]:
    rates = [
        (f"a token takes {machine.compute_s * 1e3:g} ms to compute", "recompute_ms"),
        (f"memory is read at {machine.host_bytes_a_second / 1e9:g} GB/s", "host_gb_s"),
        (f"the drive reads {machine.drive.read / 1e9:g} GB/s", "drive_gb_s"),
        (f"another drive reads {machine.other.read / 1e9:g} GB/s", "other_drive_gb_s"),
    ]
    alone = (
        "a request is alone: it waits for nobody, reads memory, then drives, then computes the "
        "rest of its prompt"
    )
    return [
        *(
            Assumption(text=text, figures=(FIRST_TOKEN,), given=flag in given)
            for text, flag in rates
        ),
        Assumption(text=alone, figures=(FIRST_TOKEN,)),
    ]


def _rating(name: str, drive: Drive, given: bool) -> Assumption:
    return Assumption(
        text=f"{name} is rated for {drive.writes_per_day:g} × {drive.capacity_bytes / 1e12:g} TB "
        f"a day over {drive.warranty_years:g} years, and writes {drive.write_amplification:g} "
        "bytes inside for each that it is given",
        figures=(LIFE,),
        given=given,
    )
