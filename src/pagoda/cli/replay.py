"""`pagoda replay`: what policies and sizes would have given on a trace."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from pagoda.cli import replay_flags as flags
from pagoda.cli.bench_output import Json, OptionalJson, Plot, show
from pagoda.core.errors import SettingsError
from pagoda.lab.progress import Step, Tell, terminal
from pagoda.lab.replay import runs
from pagoda.lab.replay.capacities import blocks_of, parse_capacities, parse_capacity, parse_row
from pagoda.lab.replay.cells import SAME, WRITES
from pagoda.lab.replay.files import ReadTrace, read_trace
from pagoda.lab.replay.hints import with_hints
from pagoda.lab.replay.table import tables
from pagoda.lab.replay.what_if import Machine, Setup
from pagoda.lab.replay.what_if_table import tables as what_if_tables

COMMAND = OptionalJson
_Report = dict[str, Any]
_Run = Callable[[runs.Work], _Report]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where the requests come from, and what is done to them."""

    path: Path
    on_bad: flags.OnBadValue
    block_tokens: int | None
    token_bytes: int | None
    accuracy: float | None
    seed: int
    jobs: int


def command(  # noqa: PLR0913  (a command's parameters are its flags)
    trace: flags.Trace,
    *,
    policy: flags.Policy = None,
    drive_policy: flags.DrivePolicy = None,
    capacity: flags.Capacity = None,
    host: flags.Host = None,
    drive: flags.DriveSize = None,
    what_if: flags.WhatIf = False,
    kv_bytes_per_token: flags.TokenBytes = None,
    model: flags.Model = None,
    kv_dtype: flags.KvDtype = None,
    hint_accuracy: flags.HintAccuracy = None,
    seed: flags.Seed = 1,
    on_bad: flags.OnBad = "fail",
    block_tokens: flags.BlockTokens = None,
    jobs: flags.Jobs = None,
    writes: flags.Writes = None,
    recompute_ms: flags.RecomputeMs = None,
    host_gb_s: flags.HostGbS = None,
    drive_gb_s: flags.DriveGbS = None,
    drive_tb: flags.DriveTb = None,
    dwpd: flags.Dwpd = None,
    other_drive_gb_s: flags.OtherGbS = None,
    other_drive_tb: flags.OtherTb = None,
    other_dwpd: flags.OtherDwpd = None,
    json_to: Json = None,
    plot: Plot = None,
) -> None:
    """Replay a trace of requests against policies and sizes of tiers.

    Policies and state are those of the live store. `belady` knows the future: it is the bound.

    Of one tier, "µs a block" is the processor's time of the replay for each block that was asked
    for or put there. Of two, the stall is what a request waits for the KV of its prompt, in the
    mean and at the 99th percentile; what that and the drive's life rest on stands below the table.

    pagoda replay chat.jsonl --policy all --capacity 1%,5%,20% --plot hits.svg

    pagoda replay chat.jsonl --capacity 64GiB,256GiB --model llama-3.1-8b

    pagoda replay chat.jsonl --host 1%,2% --drive 4%,8% --writes spill,reuse --drive-policy same

    pagoda replay --what-if chat.jsonl --host 128GiB --drive 2TB --drive-gb-s 7
    """
    given = {name for name, value in locals().items() if value is not None}
    token_bytes = flags.token_bytes_of(kv_bytes_per_token, model, kv_dtype)
    machine = flags.machine_of(
        token_bytes,
        (recompute_ms, host_gb_s),
        (drive_gb_s, drive_tb, dwpd),
        (other_drive_gb_s, other_drive_tb, other_dwpd),
    )
    sizes = Sizes(capacity, host, drive)
    policies = Policies(policy, drive_policy, writes)
    if what_if:
        if plot is not None:
            _refuse("--plot draws sizes against hits, --what-if has no such line", "plot")
        run = _what_if(sizes, policies, machine, given)
    elif sizes.two:
        run = _two_tiers(sizes, policies, machine, given)
    else:
        run = _one_tier(sizes, policies)
    source = Source(
        path=trace,
        on_bad=on_bad,
        block_tokens=block_tokens,
        token_bytes=machine.token_bytes if what_if or sizes.two else token_bytes,
        accuracy=hint_accuracy,
        seed=seed,
        jobs=jobs or len(os.sched_getaffinity(0)),
    )
    report = _replayed(source, run)
    show(report, json_to, what_if_tables if what_if else tables)
    if plot is not None:
        from pagoda.lab.replay.picture import draw  # noqa: PLC0415 - brings matplotlib

        draw(report, plot)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The texts of --capacity, --host and --drive."""

    capacity: str | None
    host: str | None
    drive: str | None

    @property
    def two(self) -> bool:
        return self.host is not None or self.drive is not None

    def pairs(self) -> list[runs.Pair]:
        """Sizes of memory, each with its drives'. Raises SettingsError."""
        if self.capacity is not None:
            _refuse("--capacity is of one tier, --host and --drive of two", "capacity")
        if self.host is None or self.drive is None:
            _refuse("--host and --drive go together", "drive" if self.host else "host")
        hosts = parse_row(self.host, flag="--host")
        drives = parse_row(self.drive, flag="--drive")
        longest = max(len(hosts), len(drives))
        hosts, drives = (s * longest if len(s) == 1 else s for s in (hosts, drives))
        if len(hosts) != len(drives):
            _refuse(f"{len(hosts)} sizes of --host, {len(drives)} of --drive", "drive")
        if len({(h.size, d.size) for h, d in zip(hosts, drives, strict=True)}) < longest:
            _refuse(f"--host {self.host} --drive {self.drive} names two sizes twice", "drive")
        return [runs.Pair(*pair) for pair in zip(hosts, drives, strict=True)]


@dataclass(frozen=True, slots=True)
class Policies:
    """The texts of --policy, --drive-policy and --writes."""

    memory: str | None
    drive: str | None
    writes: str | None


def _one_tier(sizes: Sizes, asked: Policies) -> _Run:
    if asked.drive is not None:
        _refuse("--drive-policy is of two tiers: add --host and --drive", "drive-policy")
    policies = flags.policies_of(_else(asked.memory, flags.CHOSEN))
    capacities = parse_capacities(_else(sizes.capacity, flags.CAPACITIES), flag="--capacity")
    return lambda work: runs.one_tier(work, policies, capacities)


def _two_tiers(sizes: Sizes, asked: Policies, machine: Machine, given: set[str]) -> _Run:
    policies = flags.policies_of(_else(asked.memory, flags.CHOSEN))
    pairs = sizes.pairs()
    tiers = runs.TwoTiers(
        drive_policy=flags.drive_policy_of(asked.drive),
        writes=flags.names_of(_else(asked.writes, flags.WRITES), WRITES, flag="--writes"),
        machine=machine,
        given=given,
    )
    return lambda work: runs.two_tiers(work, policies, pairs, asked=tiers)


def _what_if(sizes: Sizes, asked: Policies, machine: Machine, given: set[str]) -> _Run:
    if sizes.capacity is not None:
        _refuse("--what-if is about two tiers: --host and --drive, not --capacity", "capacity")
    policies = flags.policies_of(_else(asked.memory, flags.OWN))
    kinds = flags.names_of(_else(asked.writes, flags.WRITTEN), WRITES, flag="--writes")
    if len(policies) > 1 or len(kinds) > 1:
        _refuse("--what-if changes the machine: one policy, one kind of writing", "policy")
    on_drives = flags.drive_policy_of(asked.drive)
    setup = Setup(
        host=parse_capacity(_else(sizes.host, flags.HOST), flag="--host"),
        drive=parse_capacity(_else(sizes.drive, flags.DRIVE), flag="--drive"),
        policy=policies[0],
        drive_policy=policies[0] if on_drives == SAME else on_drives,
        writes=kinds[0],
    )
    return lambda work: runs.what_if(work, setup, machine, given)


def _else(given: str | None, default: str) -> str:
    """What a flag says, even if that is nothing, or its default."""
    return default if given is None else given


def _replayed(source: Source, run: _Run) -> _Report:
    """Read, hint and replay, telling a person how far it is."""
    with terminal() as tell:
        read = _read(source, tell)
        hints = None
        if source.accuracy is not None:
            hinted = with_hints(read.trace, accuracy=source.accuracy, seed=source.seed)
            read = replace(read, trace=hinted)
            hints = {"accuracy": source.accuracy, "seed": source.seed}
        work = runs.Work(
            read=read,
            blocks=blocks_of(read.trace, source.token_bytes),
            jobs=source.jobs,
            tell=lambda done: tell(Step("replaying", done)),
            hints=hints,
        )
        return run(work)


def _read(source: Source, tell: Tell) -> ReadTrace:
    stage = f"reading {source.path.name}"
    tell(Step(stage))
    return read_trace(
        source.path,
        on_bad=source.on_bad,
        block_tokens=source.block_tokens,
        progress=lambda done, total: tell(Step(stage, done / total if total else None)),
    )


def _refuse(message: str, key: str) -> NoReturn:
    raise SettingsError(
        message, key=key, source="flag", remedy="`pagoda replay --help` has examples"
    )
