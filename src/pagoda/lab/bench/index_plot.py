"""The index bench as a picture: look-ups a second against the number of blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pagoda.lab.picture import figure_of, save

NAMES = {"table": "Pagoda's index, with leases and policy", "dict": "bare dictionary"}


def draw(report: dict[str, Any], path: Path) -> None:
    """Write the picture; its kind is the name's ending. Raises SettingsError."""
    figure, axes = figure_of(width=7.0, height=4.0)
    blocks = [row["blocks"] for row in report["rows"]]
    for side, name in NAMES.items():
        spreads = [row["per_s"][side] for row in report["rows"]]
        medians = [spread["median"] for spread in spreads]
        below = [spread["median"] - spread["low"] for spread in spreads]
        above = [spread["high"] - spread["median"] for spread in spreads]
        axes.errorbar(blocks, medians, yerr=[below, above], marker="o", capsize=3, label=name)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("blocks in the index")
    axes.set_ylabel("prefixes of 64 blocks a second, one core")
    axes.legend(frameon=False)
    save(figure, path)
