"""The answer to a what-if, with what each figure rests on."""

from __future__ import annotations

from typing import Any

from rich.console import Group
from rich.table import Table

from pagoda.advise.plan.facts import GIB
from pagoda.lab.replay.assumptions import FIRST_TOKEN, HITS, LIFE, SIZES, WRITTEN
from pagoda.lab.replay.report import Row
from pagoda.lab.replay.table import columns, header, number, rests_on, stated, years


def tables(report: dict[str, Any]) -> Group:
    """A line a change; the last line's numbers lead to the assumptions below."""
    return Group(header(report), _changes(report), stated(report["assumptions"]))


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
    rests_on(table, report["assumptions"], [figure for _, figure in _COLUMNS])
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
        years(row["drive_life_years"]),
    ]
