"""What `pagoda cache` shows to people."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pagoda.cli.console import output
from pagoda.core.durations import human_duration

_SHORT_NAMESPACE = 8  # digits; `--namespace` takes how one begins


def show_holdings(
    lines: Sequence[dict[str, Any]],
    tiers: Sequence[dict[str, Any]],
    console: Console,
    *,
    wide: bool,
) -> None:
    """A row a tier and namespace, the sum of each tier, and which tiers take no more."""
    if lines:
        console.print(_table(lines, wide=wide))
        _show_sums(lines, console)
    else:
        console.print("nothing is cached")
    for one in tiers:
        if one["standing"] != "serving":
            console.print(f"{one['tier']} is {one['standing']}", highlight=False)
        if one["pinned"]:
            console.print(f"{one['tier']}: {one['pinned']:,} blocks are pinned", highlight=False)


def _table(lines: Sequence[dict[str, Any]], *, wide: bool) -> Table:
    """Six columns that fit 80 characters; `wide` adds the rest, and whole namespaces."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    rows = [_row(line, wide=wide) for line in lines]
    for name in rows[0]:
        numbers = name in {"blocks", "MB", "tokens", "longest"}
        table.add_column(name, overflow="fold", justify="right" if numbers else "left")
    for row in rows:
        table.add_row(*map(escape, row.values()))
    return table


def _row(line: dict[str, Any], *, wide: bool) -> dict[str, str]:
    """Cells by their columns' names."""
    row = {
        "tier": line["tier"],
        "tenant": line["tenant"],
        "namespace": line["namespace"] if wide else line["namespace"][:_SHORT_NAMESPACE],
        "blocks": f"{line['blocks']:,}",
        "MB": f"{line['size_bytes'] / 1e6:,.1f}",
        "age": ages(line["newest_s"], line["oldest_s"], time.time()),
    }
    if wide:
        row |= {
            "served": {True: "yes", False: "no", None: "?"}[line["current"]],
            "tokens": f"{line['tokens']:,}",
            "longest": f"{line['longest_chain']:,}",
        }
    return row


def _show_sums(lines: Sequence[dict[str, Any]], console: Console) -> None:
    for tier in dict.fromkeys(line["tier"] for line in lines):
        own = [line for line in lines if line["tier"] == tier]
        blocks, size = (sum(line[name] for line in own) for name in ("blocks", "size_bytes"))
        console.print(f"{tier}: {blocks:,} blocks, {size / 1e6:,.1f} MB", highlight=False)


def show_lookup(found: dict[str, Any]) -> None:
    """How much of a prompt is resident, and where."""
    console = output()
    resident, prompt = found["resident_tokens"], found["prompt_tokens"]
    console.print(
        f"{resident:,} of {prompt:,} prompt tokens are resident "
        f"(whole blocks of {found['block_tokens']})",
        highlight=False,
    )
    table = Table("tier", "read from here", "held here")
    for place in found["places"]:
        table.add_row(place["tier"], f"{place['first']:,}", f"{place['held']:,}")
    console.print(table)


def show_cleared(cleared: dict[str, Any], asked: Mapping[str, object]) -> None:
    """What went of what was asked for, and what reading the headers back found."""
    console = output()
    dropped = ", ".join(f"{blocks:,} from {tier}" for tier, blocks in cleared["dropped"].items())
    console.print(f"dropped blocks: {dropped or 'none'}", highlight=False)
    if cleared["erased"]:
        console.print(
            f"erased {cleared['erased']:,} headers of blocks that were evicted earlier",
            highlight=False,
        )
    for scan in cleared["scans"]:
        if scan["left"] is None:
            console.print(f"{scan['tier']}: what is left is unknown: it could not be read back")
            continue
        newer = f", {scan['newer']:,} written since" if scan["newer"] else ""
        console.print(
            f"{scan['tier']}: {scan['headers']:,} headers read back, {scan['left']:,} of them "
            f"still of what was cleared{newer}",
            highlight=False,
        )
    for tier in cleared["untouched"]:
        console.print(f"{tier}: untouched; only whole tenants and namespaces are cleared there")
    nothing = f"verified: nothing{_cleared_of(asked)} is left"
    verdict = nothing if cleared["verified"] else "NOT VERIFIED: see the log"
    console.print(verdict, highlight=False, markup=False)


def show_ttls(ttls: Sequence[dict[str, Any]]) -> None:
    """A line a time to live."""
    if not ttls:
        print("no time to live is set: blocks stay until their place is needed")
    for ttl in ttls:
        print(f"{ttl['tenant'] or 'everybody else':<16}  {human_duration(ttl['seconds'])}")


def ages(newest_s: float, oldest_s: float, now_s: float) -> str:
    """How long ago the newest and the oldest block came, in one unit each: "3m–2h"."""
    told = [human_duration(round(max(0.0, now_s - at)), parts=1) for at in (newest_s, oldest_s)]
    return "–".join(dict.fromkeys(told))


def _cleared_of(asked: Mapping[str, object]) -> str:
    """What a clearing's conditions name, to stand after "nothing"; empty for all there is."""
    told = {
        "tenant": " of tenant {}",
        "cache_salt": " of the salt's tenant",
        "namespace": " in namespace {}",
    }
    given = {name: value for name, value in asked.items() if value is not None}
    age_s = given.pop("older_than_s", None)
    parts = [text.format(given.pop(name)) for name, text in told.items() if name in given]
    if given:
        parts.append(" of the prompt and what continues it")
    if isinstance(age_s, float):
        parts.append(f" older than {human_duration(age_s)}")
    return "".join(parts)
