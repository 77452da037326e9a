"""What `pagoda cache` shows to people."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from pagoda.settings.units import format_duration


def show_holdings(lines: Sequence[dict[str, Any]], tiers: Sequence[dict[str, Any]]) -> None:
    """A row a tier and namespace, the sum of each tier, and which tiers take no more."""
    console = Console()
    if lines:
        _show_rows(console, lines)
    else:
        console.print("nothing is cached")
    for one in tiers:
        if one["standing"] != "serving":
            console.print(f"{one['tier']} is {one['standing']}", highlight=False)
        if one["pinned"]:
            console.print(f"{one['tier']}: {one['pinned']:,} blocks are pinned", highlight=False)


def _show_rows(console: Console, lines: Sequence[dict[str, Any]]) -> None:
    table = Table(
        "tier", "tenant", "namespace", "served", "blocks", "MB", "tokens", "longest", "oldest",
        "newest",
    )  # fmt: skip
    for line in lines:
        table.add_row(
            line["tier"],
            line["tenant"],
            line["namespace"][:12],
            {True: "yes", False: "no", None: "?"}[line["current"]],
            f"{line['blocks']:,}",
            f"{line['size_bytes'] / 1e6:,.1f}",
            f"{line['tokens']:,}",
            f"{line['longest_chain']:,}",
            age(line["oldest_s"]),
            age(line["newest_s"]),
        )
    console.print(table)
    for tier in dict.fromkeys(line["tier"] for line in lines):
        own = [line for line in lines if line["tier"] == tier]
        blocks, size = (sum(line[name] for line in own) for name in ("blocks", "size_bytes"))
        console.print(f"{tier}: {blocks:,} blocks, {size / 1e6:,.1f} MB", highlight=False)


def show_lookup(found: dict[str, Any]) -> None:
    """How much of a prompt is resident, and where."""
    console = Console()
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


def show_cleared(cleared: dict[str, Any]) -> None:
    """What went, and what reading the headers back found."""
    console = Console()
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
    verdict = "verified: nothing is left" if cleared["verified"] else "NOT VERIFIED: see the log"
    console.print(verdict)


def show_ttls(ttls: Sequence[dict[str, Any]]) -> None:
    """A line a time to live."""
    if not ttls:
        print("no time to live is set: blocks stay until their place is needed")
    for ttl in ttls:
        print(f"{ttl['tenant'] or 'everybody else':<16}  {format_duration(ttl['seconds'])}")


def age(created_s: float) -> str:
    """How long ago, in the largest unit that fits."""
    seconds = max(0.0, time.time() - created_s)
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit} ago"
    return f"{seconds:.0f} s ago"
