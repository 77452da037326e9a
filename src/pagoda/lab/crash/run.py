"""`pagoda lab crash`: record a workload, kill it everywhere, cut its power everywhere."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pagoda.core.errors import SettingsError
from pagoda.lab.crash.cuts import Recording, cut_power
from pagoda.lab.crash.kills import kill_at, points
from pagoda.lab.crash.ledger import Event
from pagoda.lab.crash.tap import Recorder, TappedFile
from pagoda.lab.crash.workload import Plan, Workload
from pagoda.lab.progress import Step, Tell
from pagoda.tiers.drive.slab import SLAB_NAME

SCHEMA = 1

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashSettings:
    """How much to try. `kills` bounds the processes killed, `steps` the workload and with it
    the power cuts; each cut leaves 3 images and twice `scrambled` random ones."""

    seed: int = 1
    steps: int = 150
    kills: int = 400
    scrambled: int = 2
    directory: Path | None = None  # of the processes that are killed; None: a temporary one


def crash(settings: CrashSettings, tell: Tell) -> dict[str, Any]:
    """The report. Raises SettingsError when the directory cannot be used."""
    with _work_directory(settings.directory) as name:
        directory = Path(name)
        plan = Plan(directory=directory / "whole", seed=settings.seed, steps=settings.steps)
        tell(Step("recording a workload"))
        recording = record(plan)
        everywhere = points(recording.log, _chance(settings))
        kills = spread(everywhere, settings.kills)
        killed = kill_at(kills, replace(plan, directory=directory), tell)
    chance, scrambled = _chance(settings), settings.scrambled
    cuts = cut_power(recording, rng=chance, scrambled=scrambled, tell=tell)
    rows = {"kill -9": killed} | {f"cut, {kind}": found for kind, found in cuts.items()}
    return {
        "schema": SCHEMA,
        "kind": "pagoda lab crash",
        "seed": settings.seed,
        "steps": settings.steps,
        "operations": len(recording.log),
        "syncs": sum(op.syncs for op in recording.log),
        "kill_points": len(everywhere),
        "kills": len(kills),
        "images": sum(found.crashes for found in cuts.values()),
        "rows": {name: asdict(found) for name, found in rows.items()},
        "kept": all(found.kept for found in rows.values()),
    }


def record(plan: Plan) -> Recording:
    """Run a plan to its end, remembering every operation on its drive."""
    recorder = Recorder()
    events: list[Event] = []
    Workload(
        plan,
        opener=partial(TappedFile, tap=recorder),
        tell=events.append,
        position=recorder.position,
    ).run()
    size_bytes = (plan.directory / SLAB_NAME).stat().st_size
    return Recording(log=recorder.log, events=events, size_bytes=size_bytes)


def spread(items: Sequence[Item], most: int) -> list[Item]:
    """At most `most` of the items, evenly spread over them."""
    count = min(most, len(items))
    return [items[i * len(items) // count] for i in range(count)]


def _chance(settings: CrashSettings) -> random.Random:
    return random.Random(settings.seed)  # noqa: S311 - places to break, no secret


def _work_directory(parent: Path | None) -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix="pagoda-crash-", dir=parent)
    except OSError as error:
        raise SettingsError(
            f"cannot make a directory in {parent}: {error.strerror}",
            key="directory", source="flag", remedy="name a directory that you may write to",
        ) from error  # fmt: skip
