"""All parts of `pagoda bench engine`, one after the other, into one report."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pagoda.lab.bench import host
from pagoda.lab.bench.engine import bitwise, decode, exact, memory, prefill, restore, start
from pagoda.lab.bench.engine.setup import Say, Setup
from pagoda.lab.bench.figures import Part, chosen_parts

SCHEMA = 1

PARTS: dict[str, Callable[[Setup, Say], Part]] = {
    "restore": restore.measure,
    "bitwise": bitwise.measure,
    "decode": decode.measure,
    "prefill": prefill.measure,
    "exact": exact.measure,
    "memory": memory.measure,
    "start": start.measure,
}
QUICK_RUNS = 1


def measure_engine(setup: Setup, only: Sequence[str], say: Say) -> dict[str, Any]:
    """The report of the parts named by `only`, or of all. A directory of the bench's own is made
    in `setup.directory` and removed. Raises SettingsError for an unknown part."""
    chosen = chosen_parts(only, PARTS)
    facts = host.facts()
    parts: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="pagoda-bench-", dir=setup.directory) as made:
        for name in chosen:
            load_before = host.load_1m()
            found = PARTS[name](_of_part(setup, Path(made), name), say)
            parts[name] = asdict(found) | {"load_1m": [load_before, host.load_1m()]}
            shutil.rmtree(Path(made) / name, ignore_errors=True)
    return {
        "schema": SCHEMA,
        "kind": "pagoda bench engine",
        "model": setup.model.name,
        "threads": setup.threads,
        "runs": setup.runs,
        "quick": setup.quick,
        "host": facts,
        "load_1m_after": host.load_1m(),
        "parts": parts,
    }


def _of_part(setup: Setup, made: Path, name: str) -> Setup:
    return Setup(
        model=setup.model,
        directory=made / name,
        threads=setup.threads,
        runs=QUICK_RUNS if setup.quick else setup.runs,
        quick=setup.quick,
    )
