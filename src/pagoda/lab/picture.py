"""Pictures through matplotlib, without a display."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pagoda.core.errors import SettingsError


def require_pictures() -> None:
    """Raises SettingsError when matplotlib is not installed. Imports nothing."""
    try:
        there = find_spec("matplotlib") is not None
    except ImportError:
        there = False
    if not there:
        raise SettingsError(
            "pictures need matplotlib",
            key="plot",
            source="flag",
            remedy="pip install 'pagoda-kv[plot]'",
        )


def figure_of(*, width: float, height: float, rows: int = 1) -> tuple[Any, Any]:
    """A figure of so many inches and its axes, one below the other. Raises SettingsError when
    matplotlib is not installed."""
    require_pictures()
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - optional
    from matplotlib.figure import Figure  # noqa: PLC0415 - optional, and slow to import

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, 1, sharex=True)
    for one in axes if rows > 1 else [axes]:
        one.spines[["top", "right"]].set_visible(False)
        one.grid(axis="y", alpha=0.25)
    return figure, axes


def save(figure: Any, path: Path) -> None:
    """Write it; the kind is the name's ending. Raises SettingsError."""
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise SettingsError(f"cannot write {path}: {error}", key="plot", source="flag") from error
