"""What more memory or another drive would give."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.advise.plan.economics import Drive
from pagoda.lab.replay.assumptions import of_what_if
from pagoda.lab.replay.capacities import Blocks, parse_capacity
from pagoda.lab.replay.report import life_years
from pagoda.lab.replay.two_tiers import Flow
from pagoda.lab.replay.what_if import Machine, Setup, cells, changes, row_of

MACHINE = Machine(
    token_bytes=1000,
    compute_s=1e-3,
    host_bytes_a_second=1e7,
    drive=Drive(read=1e6),
    other=Drive(read=4e6, writes_per_day=3.0),
)
SETUP = Setup(
    host=parse_capacity("10%", flag="--host"),
    drive=parse_capacity("20", flag="--drive"),
    policy="lru",
    drive_policy="lfu",
    writes="reuse",
)
BLOCKS = Blocks(unique=100, bytes_each=4000)
tokens = st.integers(0, 10**6)


@given(tokens, tokens, tokens, st.integers(1, 1000))
def test_time_to_first_token_is_every_tokens_way(
    host: int, drive: int, missed: int, requests: int
) -> None:
    """Each token is read from memory, read from drives, or computed: the mean is their sum."""
    flow = Flow(
        requests=requests,
        input_tokens=host + drive + missed,
        host_tokens=host,
        drive_tokens=drive,
    )
    whole_s = host * 1000 / 1e7 + drive * 1000 / 1e6 + missed * 1e-3
    assert MACHINE.first_token_s(flow) == pytest.approx(whole_s / requests)


def test_each_change_changes_one_thing() -> None:
    """Memory, drive room or the drive; sizes follow."""
    changed = changes(SETUP, MACHINE)
    sizes = [(one.host_blocks, one.drive_blocks) for one in cells(changed, SETUP, BLOCKS)]
    assert [one.what for one in changed] == [
        "as it is",
        "2 × memory",
        "4 × memory",
        "2 × drive room",
        "another drive",
    ]
    assert sizes == [(10, 20), (20, 20), (40, 20), (10, 40), (10, 20)]
    assert [one.machine == MACHINE for one in changed] == [True] * 4 + [False]


def test_another_drive_needs_no_other_replay() -> None:
    """Only times and lives are others: a faster one with a higher rating has better ones."""
    changed = changes(SETUP, MACHINE)
    asked = cells(changed, SETUP, BLOCKS)
    assert asked[0] == asked[-1]
    flow = Flow(requests=1, input_tokens=90, host_tokens=9, drive_tokens=9, written_bytes=10**9)
    now, other = (row_of(changed[at], asked[at], flow, 100.0, tier_bytes=10**6) for at in (0, -1))
    assert now["token_hit_pct"] == other["token_hit_pct"]
    assert other["mean_first_token_ms"] < now["mean_first_token_ms"]
    assert other["drive_life_years"] == pytest.approx(3 * now["drive_life_years"], rel=1e-3)


@given(st.integers(0, 10**13), st.integers(1, 10**13))
def test_a_life_is_that_of_a_drive_on_which_the_tier_has_room(said: int, tier: int) -> None:
    """Of the size that was said, or of the tier's where that is larger or nothing was said."""
    machine = replace(MACHINE, drive=Drive(capacity_bytes=said))
    change = changes(SETUP, machine)[0]
    (cell,) = cells([change], SETUP, BLOCKS)
    row = row_of(change, cell, Flow(written_bytes=10**15), 86_400.0, tier_bytes=tier)
    drive = Drive(capacity_bytes=max(said, tier))
    assert row["rated_tb"] == drive.capacity_bytes / 1e12
    assert row["drive_life_years"] == life_years(10**15, drive=drive, span_s=86_400.0)


FIGURES = ("token_hit_pct", "mean_first_token_ms", "written_bytes_a_day", "drive_life_years")


@pytest.mark.parametrize(
    ("other", "moved"),
    [
        (replace(MACHINE, token_bytes=2000), {"mean_first_token_ms"}),
        (replace(MACHINE, compute_s=2e-3), {"mean_first_token_ms"}),
        (replace(MACHINE, host_bytes_a_second=2e7), {"mean_first_token_ms"}),
        (replace(MACHINE, drive=Drive(read=2e6)), {"mean_first_token_ms"}),
        (replace(MACHINE, drive=Drive(read=1e6, writes_per_day=2.0)), {"drive_life_years"}),
    ],
)
def test_a_figure_rests_on_what_moves_it(other: Machine, moved: set[str]) -> None:
    """A figure that an assumption's change moves is named beside that assumption."""
    flow = Flow(requests=1, input_tokens=90, host_tokens=9, drive_tokens=9, written_bytes=10**9)
    rows = []
    for machine in (MACHINE, other):
        change = changes(SETUP, machine)[0]
        (cell,) = cells([change], SETUP, BLOCKS)
        rows.append(row_of(change, cell, flow, 100.0, tier_bytes=10**6))
    assert {name for name in FIGURES if rows[0][name] != rows[1][name]} == moved
    before, after = (of_what_if(SETUP, machine, set()) for machine in (MACHINE, other))
    differing = [b for a, b in zip(before, after, strict=True) if a.text != b.text]
    assert len(differing) == 1
    assert moved <= set(differing[0].figures)


def test_what_a_flag_said_is_told_apart() -> None:
    """A drive's rating is said by two flags: one alone leaves it assumed."""
    given = {"policy", "drive_tb", "recompute_ms"}
    said = [one.text for one in of_what_if(SETUP, MACHINE, given) if one.given]
    assert said == [
        "lru chooses what stays in memory, lfu on drives; written is: reuse",
        "a token takes 1 ms to compute",
    ]
