"""What `pagoda pin` shows to people."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pagoda.core.durations import human_duration


def show_pin(pin: dict[str, Any], console: Console) -> None:
    """One that was pinned just now: where it is kept, and what is there of it."""
    console.print(
        f"pinned {pin['id']} for {pin['owner']}: {pin['blocks']:,} blocks, {pin['tokens']:,} "
        f"tokens, ends in {_left(pin['until_s'])}",
        highlight=False,
        markup=False,
    )
    for place in pin["places"]:
        kept = "kept" if place["granted"] else "not kept: it exceeds a budget there"
        console.print(f"{place['tier']}: {kept}, {place['resident']:,} there", highlight=False)
    if not pin["durable"]:
        console.print("a restart forgets it: no drive has it written down")


def show_pins(pins: Sequence[dict[str, Any]], console: Console) -> None:
    """A row a pin. Its id is whole however narrow the console is, for `unpin` takes it; other
    cells fold."""
    if not pins:
        console.print("nothing is pinned")
        return
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("pin", no_wrap=True, min_width=max(len(pin["id"]) for pin in pins))
    table.add_column("owner", overflow="fold")
    table.add_column("ends in", overflow="fold")
    table.add_column("blocks", overflow="fold", justify="right")
    table.add_column("there", overflow="fold")
    for pin in pins:
        table.add_row(
            pin["id"], escape(pin["owner"]), _left(pin["until_s"]), f"{pin['blocks']:,}",
            escape(_there(pin["places"])),
        )  # fmt: skip
    console.print(table)


def _there(places: Sequence[dict[str, Any]]) -> str:
    """How many blocks each tier holds that keeps the pin, then which do not keep it."""
    kept = [f"{place['tier']} {place['resident']:,}" for place in places if place["granted"]]
    others = [place["tier"] for place in places if not place["granted"]]
    return "; ".join(
        [", ".join(kept)] * bool(kept) + [f"not kept: {', '.join(others)}"] * bool(others)
    )


def _left(until_s: float) -> str:
    """How long from now, in two units."""
    return human_duration(round(max(0.0, until_s - time.time())), parts=2)
