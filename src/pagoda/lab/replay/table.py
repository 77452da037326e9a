"""A replay's report as tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from pagoda.advise.plan.facts import GIB
from pagoda.lab.replay.assumptions import HITS, LIFE, SIZES, STALL, WRITTEN_BYTES
from pagoda.lab.replay.report import BASE, BOUND, Row, distinct, label

_SKIPPED_SHOWN = 5


def tables(report: dict[str, Any]) -> Group:
    """What was replayed, and what came of it."""
    rows = report["rows"]
    if "writes" in rows[0]:
        return Group(header(report), _flows(report), stated(report["assumptions"]))
    return Group(header(report), *_one_tier(rows))


def header(report: dict[str, Any]) -> Text:
    """The trace in a line, and what was wrong in its file."""
    trace = report["trace"]
    lines = [
        f"{trace['name']} ({trace['format']}): {trace['requests']:,} requests, "
        f"{trace['input_tokens']:,} tokens of prompts, {trace['unique_blocks']:,} unique blocks "
        f"of {trace['block_tokens']} tokens"
    ]
    if report["hints"] is not None:
        share = report["hints"]["accuracy"]
        lines.append(f"hints: alive or closed, right with a chance of {share:g}")
    if trace["skipped_lines"]:
        lines.append(f"skipped {trace['skipped_lines']:,} malformed lines:")
        shown = trace["skipped"][:_SKIPPED_SHOWN]
        lines += [f"  line {bad['line']}: {bad['what']}" for bad in shown]
        lines += ["  …"] * (trace["skipped_lines"] > len(shown))
    return Text("\n".join(lines))


def number(value: float | None, digits: int = 2) -> str:
    """A figure as tables show it; nothing where there is none."""
    return "" if value is None else f"{value:,.{digits}f}"


def years(value: float | None) -> str:
    """A life, of which days are told as well; nothing where there is no end."""
    return number(value) if value is None or value >= 1 else f"{value:.2g}"


def columns(title: str, *names: str) -> Table:
    """An empty table: the first column has names, the others figures."""
    table = Table(
        title=title,
        title_justify="left",
        show_edge=False,
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column(names[0])
    for name in names[1:]:
        table.add_column(name, justify="right")
    return table


def rests_on(table: Table, assumed: Sequence[Row], figures: Sequence[str]) -> None:
    """Add a last line: the numbers of the assumptions that each column's figures rest on."""
    table.add_section()
    table.add_row("rests on", *(_numbers(assumed, figure) for figure in figures))


def _numbers(assumed: Sequence[Row], figure: str) -> str:
    """Which assumptions a figure rests on: "1-3, 5"."""
    numbers = [n for n, one in enumerate(assumed, start=1) if figure in one["figures"]]
    runs: list[list[int]] = []
    for n in numbers:
        if runs and runs[-1][-1] == n - 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def stated(assumed: Sequence[Row]) -> Table:
    """Each assumption in a line, with the number that tables call it by."""
    table = Table("", "rests on (* said by a flag, else assumed)", show_edge=False, box=None)
    for n, one in enumerate(assumed, start=1):
        table.add_row(f"{n}{'*' if one['given'] else ''}", one["text"])
    return table


def _one_tier(rows: Sequence[Row]) -> list[Table]:
    """Hits of every policy, and the share of the gap where it is known."""
    found = [_matrix("token hit %", rows, "token_hit_pct", cost=True)]
    others = [row for row in rows if row["policy"] not in {BASE, BOUND}]
    if any(row["gap_closed_pct"] is not None for row in others):
        title = f"share of the gap from {BASE} to {BOUND} that is closed, %"
        found.append(_matrix(title, others, "gap_closed_pct"))
    return found


def _matrix(title: str, rows: Sequence[Row], key: str, *, cost: bool = False) -> Table:
    """Policies down, capacities across, one figure in each place; `cost` adds a column."""
    capacities = distinct(rows, "capacity")
    table = columns(title, "policy", *capacities, *(["µs a block"] if cost else []))
    at = {(row["policy"], row["capacity"]): row for row in rows}
    for policy in distinct(rows, "policy"):
        mine = [at[policy, capacity] for capacity in capacities]
        table.add_row(policy, *(number(row[key]) for row in mine), *([_cost(mine)] if cost else []))
    return table


def _cost(rows: Sequence[Row]) -> str:
    """The processor's time for a block's access, over all capacities."""
    accesses = sum(row["block_accesses"] for row in rows)
    return number(sum(row["seconds"] for row in rows) / max(1, accesses) * 1e6, 1)


_FLOWS = (
    ("memory +\ndrives", SIZES),
    ("hit\n%", HITS),
    ("drives\n%", HITS),
    ("mean\nstall ms", STALL),
    ("p99\nms", STALL),
    ("written\nGiB", WRITTEN_BYTES),
    ("life\nyears", LIFE),
)


def _flows(report: dict[str, Any]) -> Table:
    """Two tiers: a line a policy, kind of writing and pair of sizes."""
    table = columns("two tiers", "policy,\nwrites", *(name for name, _ in _FLOWS))
    for row in report["rows"]:
        table.add_row(
            label(row),
            row["capacity"],
            number(row["token_hit_pct"]),
            number(row["drive_hit_pct"]),
            number(row["mean_stall_ms"], 1),
            number(row["p99_stall_ms"], 1),
            number(row["written_bytes"] / GIB, 1),
            years(row["drive_life_years"]),
        )
    rests_on(table, report["assumptions"], [figure for _, figure in _FLOWS])
    return table
