"""What `pagoda pin` shows to people."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from pagoda.settings.units import format_duration


def show_pin(pin: dict[str, Any]) -> None:
    """One that was pinned just now: where it is kept, and what is there of it."""
    console = Console()
    console.print(
        f"pinned {pin['id']} for {pin['owner']}: {pin['blocks']:,} blocks, {pin['tokens']:,} "
        f"tokens, ends in {_left(pin['until_s'])}",
        highlight=False,
    )
    for place in pin["places"]:
        kept = "kept" if place["granted"] else "not kept: it exceeds a budget there"
        console.print(f"{place['tier']}: {kept}, {place['resident']:,} there", highlight=False)
    if not pin["durable"]:
        console.print("a restart forgets it: no drive has it written down")


def show_pins(pins: Sequence[dict[str, Any]]) -> None:
    """A row a pin."""
    console = Console()
    if not pins:
        console.print("nothing is pinned")
        return
    tiers = [place["tier"] for place in pins[0]["places"]]
    table = Table("pin", "owner", "tenant", "ends in", "blocks", *tiers)
    for pin in pins:
        places = [
            f"{place['resident']:,}" if place["granted"] else "not kept" for place in pin["places"]
        ]
        table.add_row(
            pin["id"],
            pin["owner"],
            pin["tenant"],
            _left(pin["until_s"]),
            f"{pin['blocks']:,}",
            *places,
        )
    console.print(table)


def _left(until_s: float) -> str:
    """How long from now, in whole seconds or minutes."""
    seconds = max(0.0, until_s - time.time())
    step = 60.0 if seconds > 600 else 1.0
    return format_duration(round(seconds / step) * step)
