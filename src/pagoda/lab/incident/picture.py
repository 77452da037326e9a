"""The three runs over time, as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pagoda.lab.incident.timeline import SLICE_S
from pagoda.lab.picture import figure_of, save

_COLOURS = {"sound": "tab:green", "legacy": "tab:red", "defect": "tab:blue"}


def draw(report: dict[str, Any], path: Path) -> None:
    """Requests answered in time above, wrong blocks served below. Raises SettingsError."""
    figure, (above, below) = figure_of(width=8.0, height=5.5, rows=2)
    for name, run in report["runs"].items():
        slices = run["open"]["slices"]
        at_s = [row["at_s"] for row in slices]
        look = {"color": _COLOURS[name], "label": run["title"], "drawstyle": "steps-post"}
        above.plot(at_s, [row["in_time"] / SLICE_S for row in slices], **look)
        below.plot(at_s, [row["wrong_blocks"] / SLICE_S for row in slices], **look)
    above.axhline(report["rate_per_s"], color="gray", linewidth=0.8, linestyle=":")
    above.set_ylabel("answered within 50 ms, a second")
    above.set_ylim(bottom=0)
    above.legend(frameon=False)
    below.set_ylabel("wrong blocks served, a second")
    below.set_yscale("symlog", linthresh=1)
    below.set_ylim(bottom=0)
    below.set_xlabel(f"seconds of the peak, {report['rate_per_s']:,.0f} requests a second")
    save(figure, path)
