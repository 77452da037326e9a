"""What the flags of `pagoda replay` say: policies, sizes, a model, a machine."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from pagoda.advise.plan.economics import Drive
from pagoda.cli.plan_inputs import model_facts
from pagoda.core.admission import REGISTRY
from pagoda.core.errors import SettingsError
from pagoda.core.policy import DEFAULT, DRIVE_DEFAULT
from pagoda.core.sizing import Parallel, kv_dtype
from pagoda.lab.replay.cells import SAME
from pagoda.lab.replay.policies import POLICIES
from pagoda.lab.replay.what_if import Machine
from pagoda.settings.units import format_size, parse_size

ALL = "all"
CHOSEN = "lru,heat,belady"
OWN = DEFAULT  # for --what-if: what a server has
CAPACITIES = "1%,2%,5%,10%"
HOST, DRIVE = "1%", "4%"
WRITES = "spill,reuse"
WRITTEN = "reuse"  # for --what-if
TOKEN_BYTES = 160 << 10
COMPUTE_MS = 0.1
HOST_GB_S = 25.0
DRIVE_GB_S, OTHER_GB_S = 7.0, 14.0
DWPD, OTHER_DWPD = 1.0, 3.0

_SIZES = "sizes"
_COSTS = "machine (two tiers)"

Trace = Annotated[
    Path,
    typer.Argument(
        help="A trace: .runs, JSON lines of Mooncake, Bailian or agents, or a recording."
    ),
]
Policy = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,…|all",
        help=f"Policies to replay, in memory: {', '.join(POLICIES)}. Default: {CHOSEN}; with "
        f"--what-if {OWN}.",
    ),
]
DrivePolicy = Annotated[
    str | None,
    typer.Option(
        metavar=f"NAME|{SAME}",
        help=f"Two tiers: the policy on drives, or the {SAME} as in memory. Default: "
        f"{DRIVE_DEFAULT}, as a server has it.",
    ),
]
OnBadValue = Literal["fail", "skip"]
OnBad = Annotated[OnBadValue, typer.Option(help="A malformed line ends it, or is counted.")]
BlockTokens = Annotated[
    int | None,
    typer.Option(min=1, help="Tokens a block, where neither format nor file says."),
]
WhatIf = Annotated[
    bool,
    typer.Option("--what-if", help="What more memory or another drive would give."),
]
Jobs = Annotated[
    int | None, typer.Option(min=1, help="Replays at a time. Default: this process's CPUs.")
]
HintAccuracy = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        help="Tell each request whether its session goes on, right with this chance.",
    ),
]
Seed = Annotated[int, typer.Option(help="Of the hints' errors.")]
Capacity = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE,…",
        help="Sizes of one tier: 5% of the trace's unique blocks, 4096 blocks, or 20GiB. "
        f"Default: {CAPACITIES}.",
        rich_help_panel=_SIZES,
    ),
]
Host = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE,…",
        help=f"Two tiers: sizes of memory. Default with --what-if: {HOST}.",
        rich_help_panel=_SIZES,
    ),
]
DriveSize = Annotated[
    str | None,
    typer.Option(
        "--drive",
        metavar="SIZE,…",
        help=f"Two tiers: sizes of drives, one to each of --host. Default with --what-if: {DRIVE}.",
        rich_help_panel=_SIZES,
    ),
]
TokenBytes = Annotated[
    str | None,
    typer.Option(
        "--kv-bytes-per-token",
        metavar="SIZE",
        help=f"KV of a token. Default: {format_size(TOKEN_BYTES)} for two tiers.",
        rich_help_panel=_SIZES,
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help="Take it from a model: catalogue name, config.json, directory.",
        rich_help_panel=_SIZES,
    ),
]
KvDtype = Annotated[
    str | None,
    typer.Option(help="bf16, fp8, … Default: the model's.", rich_help_panel=_SIZES),
]
Writes = Annotated[
    str | None,
    typer.Option(
        metavar="KIND,…",
        help="What is written to drives: spill (all that memory evicts), or what an admission "
        f"takes: {', '.join(REGISTRY)}. Default: {WRITES}; with --what-if {WRITTEN}.",
        rich_help_panel=_COSTS,
    ),
]


def _cost(help: str) -> typer.models.OptionInfo:
    """A figure of the machine, in a range in which all that follows from it is finite."""
    option = typer.Option(min=1e-6, max=1e6, help=help, rich_help_panel=_COSTS)
    assert isinstance(option, typer.models.OptionInfo), "an option"
    return option


RecomputeMs = Annotated[float | None, _cost(f"To compute a token. Default: {COMPUTE_MS}.")]
HostGbS = Annotated[float | None, _cost(f"Memory to device. Default: {HOST_GB_S:g}.")]
DriveGbS = Annotated[float | None, _cost(f"The drive reads. Default: {DRIVE_GB_S:g}.")]
DriveTb = Annotated[float | None, _cost("Of all drives. Default: as large as the tier.")]
Dwpd = Annotated[float | None, _cost(f"Rated writes a day, for 5 years. Default: {DWPD:g}.")]
OtherGbS = Annotated[float | None, _cost(f"Another drive reads. Default: {OTHER_GB_S:g}.")]
OtherTb = Annotated[float | None, _cost("Of others. Default: as --drive-tb.")]
OtherDwpd = Annotated[float | None, _cost(f"Another's rated writes. Default: {OTHER_DWPD:g}.")]


def policies_of(text: str) -> tuple[str, ...]:
    """Names of policies between commas, each once, or all. Raises SettingsError."""
    known = tuple(POLICIES)
    return known if text.strip().lower() == ALL else names_of(text, known, flag="--policy")


def drive_policy_of(text: str | None) -> str:
    """The one policy on drives, or SAME. Raises SettingsError."""
    asked = DRIVE_DEFAULT if text is None else text
    names = names_of(asked, (*POLICIES, SAME), flag="--drive-policy")
    if len(names) > 1:
        raise SettingsError(
            f"--drive-policy {text} are {len(names)} policies",
            key="drive-policy",
            source="flag",
            remedy=f"name one, or {SAME} for those of --policy",
        )
    return names[0]


def names_of(text: str, known: Sequence[str], *, flag: str) -> tuple[str, ...]:
    """Known names between commas, each once. Raises SettingsError."""
    asked = tuple(dict.fromkeys(part.strip().lower() for part in text.split(",")))
    for name in asked:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise SettingsError(
                f"{flag} {name!r} is unknown",
                key=flag.lstrip("-"),
                source="flag",
                remedy=f"{hint}known: {', '.join(known)}",
            )
    return asked


def token_bytes_of(text: str | None, model: str | None, dtype: str | None) -> int | None:
    """Bytes of a token's KV below the device, as the flags or a model say it; None if neither
    does. Raises SettingsError and ModelNotFound."""
    if text is None and model is None:
        return None
    if text is None:
        assert model is not None, "one of the two is there"
        return _token_bytes_of_model(model, dtype)
    if model is not None:
        raise _refuse("--kv-bytes-per-token and --model are two answers", "give one of them")
    try:
        size_bytes = parse_size(text)
    except ValueError as error:
        raise _refuse(f"--kv-bytes-per-token {text!r} {error}", "write 160KiB") from error
    if size_bytes < 1:
        raise _refuse("--kv-bytes-per-token is 0", "write 160KiB")
    return size_bytes


def _token_bytes_of_model(name: str, dtype: str | None) -> int:
    facts = model_facts(name, None, None, None)
    chosen = kv_dtype(dtype or facts.kv_dtype or "auto")
    size_bytes = facts.kv.token_bytes(chosen, Parallel())
    if not size_bytes:
        raise _refuse(f"{name} keeps nothing a token", "replay a model with attention")
    return size_bytes


def machine_of(
    token_bytes: int | None,
    rates: tuple[float | None, float | None],
    drive: tuple[float | None, float | None, float | None],
    other: tuple[float | None, float | None, float | None],
) -> Machine:
    """The machine that flags describe: (ms to compute a token, GB/s of memory), then of each
    drive GB/s, TB (None: as large as the tier on it) and writes a day."""
    compute_ms, host_gb_s = rates
    there = _drive(drive, DRIVE_GB_S, 0, DWPD)
    return Machine(
        token_bytes=token_bytes or TOKEN_BYTES,
        compute_s=(compute_ms or COMPUTE_MS) / 1e3,
        host_bytes_a_second=(host_gb_s or HOST_GB_S) * 1e9,
        drive=there,
        other=_drive(other, OTHER_GB_S, there.capacity_bytes, OTHER_DWPD),
    )


def _drive(
    given: tuple[float | None, float | None, float | None],
    gb_s: float,
    capacity_bytes: float,
    dwpd: float,
) -> Drive:
    own_gb_s, own_tb, own_dwpd = given
    return Drive(
        read=(own_gb_s or gb_s) * 1e9,
        capacity_bytes=own_tb * 1e12 if own_tb else capacity_bytes,
        writes_per_day=own_dwpd or dwpd,
    )


def _refuse(message: str, remedy: str) -> SettingsError:
    return SettingsError(message, key="kv_bytes_per_token", source="flag", remedy=remedy)
