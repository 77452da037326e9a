"""All parts of `pagoda bench tiers`, one after the other, into one report.

The sides of a comparison alternate in one run, move the same blocks on the same file system from
the same number of threads, and are divided pair by pair.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pagoda.core.errors import SettingsError
from pagoda.lab.bench import host
from pagoda.lab.bench.figures import Part, chosen_parts
from pagoda.lab.bench.tiers import drive, memory, peers
from pagoda.lab.bench.tiers.settings import PAIRS, Say, TierSettings

SCHEMA = 2

PARTS: dict[str, Callable[[TierSettings, Path, Say], Part]] = {
    "drive": drive.measure,
    "host": memory.measure_host,
    "ceiling": memory.measure_ceiling,
    "peers": peers.measure,
}


def measure_tiers(settings: TierSettings, say: Say, *, only: Sequence[str] = ()) -> dict[str, Any]:
    """The report of the parts named by `only`, or of all. Directories of the bench's own are made
    and removed.

    Raises TierError when a tier cannot be made, SettingsError for an unknown part, a directory
    that cannot be used, or a missing fio.
    """
    chosen = chosen_parts(only, PARTS)
    facts = host.facts()
    parts: dict[str, Any] = {}
    for name in chosen:
        load_before = host.load_1m()
        with _work_directory(settings.drive) as made:
            found = PARTS[name](settings, Path(made), say)
        parts[name] = asdict(found) | {"load_1m": [load_before, host.load_1m()]}
    return {
        "schema": SCHEMA,
        "kind": "pagoda bench tiers",
        "size_bytes": settings.size_bytes,
        "pairs": settings.pairs,
        "pairs_for_a_verdict": PAIRS,
        "host": facts,
        "load_1m_after": host.load_1m(),
        "parts": parts,
    }


def _work_directory(parent: Path) -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix="pagoda-bench-", dir=parent)
    except OSError as error:
        raise SettingsError(
            f"cannot make a directory in {parent}: {error.strerror}",
            key="directory", source="flag", remedy="name a directory on the drive to measure",
        ) from error  # fmt: skip
