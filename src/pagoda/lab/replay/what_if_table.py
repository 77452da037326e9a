"""The answer to a what-if, with what each figure rests on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.table import Table

from pagoda.advise.plan.facts import GIB
from pagoda.lab.replay.assumptions import FIRST_TOKEN, HITS, LIFE, SIZES, WRITTEN
from pagoda.lab.replay.report import Row
from pagoda.lab.replay.table import columns, header, number


def tables(report: dict[str, Any]) -> Group:
    """A line a change; the last line's numbers lead to the assumptions below."""
    return Group(header(report), _changes(report), _stated(report["assumptions"]))


_COLUMNS = (
    ("memory\nGiB", SIZES),
    ("drives\nGiB", SIZES),
    ("hit\n%", HITS),
    ("drives\n%", HITS),
    ("TTFT\nms", FIRST_TOKEN),
    ("written\nTB/day", WRITTEN),
    ("life\nyears", LIFE),
)


def _changes(report: dict[str, Any]) -> Table:
    block_bytes = report["machine"]["kv_bytes_per_token"] * report["trace"]["block_tokens"]
    table = columns("what would it give", "", *(name for name, _ in _COLUMNS))
    for row in report["rows"]:
        table.add_row(row["what"], *_figures(row, block_bytes))
    table.add_section()
    stated = report["assumptions"]
    table.add_row("rests on", *(_numbers(stated, figure) for _, figure in _COLUMNS))
    return table


def _figures(row: Row, block_bytes: int) -> list[str]:
    day_bytes = row["written_bytes_a_day"]
    return [
        number(row["host_blocks"] * block_bytes / GIB, 1),
        number(row["drive_blocks"] * block_bytes / GIB, 1),
        number(row["token_hit_pct"]),
        number(row["drive_hit_pct"]),
        number(row["mean_first_token_ms"], 1),
        number(None if day_bytes is None else day_bytes / 1e12),
        number(row["drive_life_years"]),
    ]


def _numbers(stated: Sequence[Row], figure: str) -> str:
    """Which assumptions a figure rests on: "1-3, 5"."""
    numbers = [n for n, one in enumerate(stated, start=1) if figure in one["figures"]]
    runs: list[list[int]] = []
    for n in numbers:
        if runs and runs[-1][-1] == n - 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _stated(stated: Sequence[Row]) -> Table:
    table = Table("", "rests on (* said by a flag, else assumed)", show_edge=False, box=None)
    for n, one in enumerate(stated, start=1):
        table.add_row(f"{n}{'*' if one['given'] else ''}", one["text"])
    return table
