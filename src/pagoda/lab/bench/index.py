"""`pagoda bench index`: look-ups, memory, growth and restart of the index, beside a bare
dictionary. Each size is measured in a process of its own (lab.bench.index_side)."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pagoda.lab.bench import host
from pagoda.lab.bench.child import run_child
from pagoda.lab.bench.figures import Figure
from pagoda.lab.bench.sparse_slab import make_sparse_slab
from pagoda.lab.bench.stats import Spread

SCHEMA = 1
JUDGED = 1_000_000  # blocks; the goals speak of this size
LARGEST = 4_000_000
SIZES = (10_000, 100_000, JUDGED, LARGEST)
GOAL_PER_S = 50_000
GOAL_P99_S = 200e-6
GOAL_BYTES = 120
GOAL_GROWTH = 1.5
GOAL_RESTART_S = 3.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSettings:
    """What to measure. `lookups` are prefixes in a run; `directory` holds the sparse slab."""

    directory: Path | None = None
    sizes: Sequence[int] = SIZES
    lookups: int = 2000
    runs: int = 9
    restarts: int = 3
    seed: int = 0


def measure_index(settings: IndexSettings, say: Say) -> dict[str, Any]:
    """The report: one row a size, the restart, and the figures with their goals."""
    facts = host.facts()
    rows = []
    for blocks in settings.sizes:
        say(f"{blocks:,} blocks")
        order = {"lookups": settings.lookups, "runs": settings.runs, "seed": settings.seed}
        rows.append(run_child("index", order | {"blocks": blocks}))
    restart = _restart(settings, max(size for size in settings.sizes if size <= JUDGED), say)
    return {
        "schema": SCHEMA,
        "kind": "pagoda bench index",
        "host": facts,
        "load_1m_after": host.load_1m(),
        "rows": rows,
        "restart": restart,
        "figures": [asdict(figure) for figure in _figures(rows, restart)],
    }


def _restart(settings: IndexSettings, blocks: int, say: Say) -> dict[str, Any]:
    say(f"a restart with {blocks:,} blocks on the drive")
    with tempfile.TemporaryDirectory(prefix="pagoda-bench-", dir=settings.directory) as made:
        make_sparse_slab(Path(made), slots=blocks, seed=settings.seed)
        found = [run_child("reopen", {"directory": made}) for _ in range(settings.restarts)]
    assert all(run["blocks"] == blocks for run in found), "a restart finds every block"
    return {
        "blocks": blocks,
        "seconds": asdict(Spread.of(run["seconds"] for run in found)),
        "bytes_a_block": asdict(Spread.of(run["bytes_a_block"] for run in found)),
    }


def _figures(rows: Sequence[dict[str, Any]], restart: dict[str, Any]) -> list[Figure]:
    """What the goals say, for the sizes that were measured."""
    by_size = {row["blocks"]: row for row in rows}
    figures: list[Figure] = []
    if row := by_size.get(JUDGED):
        figures += _size_figures(row)
        if largest := by_size.get(LARGEST):
            growth = row["per_s"]["table"]["median"] / largest["per_s"]["table"]["median"]
            figures.append(
                _figure("time a look-up, 4,000,000 against 1,000,000 blocks", growth, "×",
                        f"<= {GOAL_GROWTH}", growth <= GOAL_GROWTH)
            )  # fmt: skip
    judged = restart["seconds"]["median"] <= GOAL_RESTART_S
    figures.append(
        _figure(f"restart with {restart['blocks']:,} blocks", restart["seconds"]["median"], "s",
                f"<= {GOAL_RESTART_S:.0f}", judged if restart["blocks"] == JUDGED else None)
    )  # fmt: skip
    return figures


def _size_figures(row: dict[str, Any]) -> list[Figure]:
    per_s, p99_s = row["per_s"]["table"]["median"], row["latency_s"]["table"]["p99"]
    size = row["table_bytes_a_block"]
    return [
        _figure("prefixes of 64 blocks looked up and leased", per_s, "/s",
                f">= {GOAL_PER_S:,}", per_s >= GOAL_PER_S),
        _figure("the same, against a bare dictionary", row["table_to_dict"]["median"], "×",
                "", None),
        _figure("p99 of one look-up and lease", p99_s * 1e6, "µs",
                f"< {GOAL_P99_S * 1e6:.0f}", p99_s < GOAL_P99_S),
        _figure("memory a block: state, index and the policy's links", size, "bytes",
                f"<= {GOAL_BYTES}", size <= GOAL_BYTES),
        _figure("with the seals' table", size + row["seal_bytes_a_block"], "bytes",
                f"<= {GOAL_BYTES}", size + row["seal_bytes_a_block"] <= GOAL_BYTES),
    ]  # fmt: skip


def _figure(name: str, value: float, unit: str, goal: str, met: bool | None) -> Figure:
    return Figure(name=name, value=value, unit=unit, goal=goal, met=met)
