"""A replay's report as tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from pagoda.advise.plan.facts import GIB
from pagoda.lab.replay.report import BASE, BOUND, Row, distinct, label

_SKIPPED_SHOWN = 5


def tables(report: dict[str, Any]) -> Group:
    """What was replayed, and what came of it."""
    rows = report["rows"]
    body = [_flows(rows)] if "writes" in rows[0] else _one_tier(rows)
    return Group(header(report), *body)


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


def _flows(rows: Sequence[Row]) -> Table:
    """Two tiers: a line a policy, kind of writing and pair of sizes."""
    names = ("memory +\ndrives", "hit\n%", "drives\n%", "stall\nms", "p99\nms")
    table = columns("two tiers", "policy,\nwrites", *names, "written\nGiB", "life\nyears")
    for row in rows:
        table.add_row(
            label(row),
            row["capacity"],
            number(row["token_hit_pct"]),
            number(row["drive_hit_pct"]),
            number(row["mean_stall_ms"], 1),
            number(row["p99_stall_ms"], 1),
            number(row["written_bytes"] / GIB, 1),
            number(row["drive_life_years"]),
        )
    return table
