"""The incident, three times: sound, with the mistake in a legacy cache, with it in Pagoda.

Each run fills its tiers with the load's past and with what a nightly job leaves behind, then
takes the peak in an open loop, then as much as it can in a closed one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from pagoda.lab.bench import host
from pagoda.lab.bench.figures import Figure
from pagoda.lab.defects.patch import Defect, applied
from pagoda.lab.incident.generator import Order
from pagoda.lab.incident.legacy import LegacyPath
from pagoda.lab.incident.pagoda_path import POLICY, PagodaPath
from pagoda.lab.incident.service import Path as Service
from pagoda.lab.incident.service import run_load
from pagoda.lab.incident.traffic import Conversations, Shape
from pagoda.store.executor import Runtime, ThreadExecutor
from pagoda.store.store import Store, StoreConfig
from pagoda.tiers.drive.tier import DriveConfig, DriveTier
from pagoda.tiers.host import HostTier
from pagoda.tiers.sealed import SealedTier

SCHEMA = 1
RATE_PER_S = 14_720.0
GOAL_SHARE = 0.90
GOAL_HEALTHY = 99  # percent; or there was no service to begin with
GOAL_P99 = 1.5
_CLOSE_S = 10.0
_WARM_S = 2.0
_NIGHTLY_CHAIN = 64

# The mistake: the last victim of an eviction gives its place away and keeps its key.
OFF_BY_ONE = Defect(
    name="off by one",
    seam="pagoda.core.state:TierState.retire",
    old="self._unpublish(slot)",
    new="slot == slots[-1] or self._unpublish(slot)",
    story="the last victim of each eviction is still found under its key",
)

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentSettings:
    """How long and how hard. `directory` None leaves the drive out."""

    shape: Shape = field(default_factory=Shape)
    rate_per_s: float = RATE_PER_S
    peak_s: float = 10.0
    saturated_s: float = 5.0
    outstanding: int = 128
    directory: Path | None = None


@dataclass(frozen=True, slots=True)
class _Run:
    """One of the three."""

    name: str
    title: str
    legacy: bool
    defect: bool


RUNS = (
    _Run("sound", "Pagoda, as it is", legacy=False, defect=False),
    _Run("legacy", "a cache without seals, off by one", legacy=True, defect=True),
    _Run("defect", "Pagoda, off by one", legacy=False, defect=True),
)


def measure_incident(settings: IncidentSettings, say: Say) -> dict[str, Any]:
    """The report of all three runs. Raises TierError when a tier cannot be made."""
    facts = host.facts()
    runs = {run.name: _measure(run, settings, say) for run in RUNS}
    return {
        "schema": SCHEMA,
        "kind": "pagoda lab incident",
        "host": facts,
        "load_1m_after": host.load_1m(),
        "rate_per_s": settings.rate_per_s,
        "shape": asdict(settings.shape),
        "drive": settings.directory is not None,
        "runs": runs,
        "figures": [asdict(figure) for figure in figures_of(runs)],
    }


def _measure(run: _Run, settings: IncidentSettings, say: Say) -> dict[str, Any]:
    conversations = Conversations(settings.shape)
    order = Order(
        conversations=len(conversations),
        seconds=_WARM_S,
        seed=settings.shape.seed,
        rate_per_s=settings.rate_per_s,
    )
    with _path_of(run, settings, conversations, say) as path:
        with applied(OFF_BY_ONE) if run.defect and not run.legacy else nullcontext():
            say(f"{run.title}: {settings.rate_per_s:,.0f} requests a second")
            peak = replace(order, seconds=settings.peak_s, seed=order.seed + 1)
            if not run.defect:  # neither of the others has a calm before its mistake
                run_load(path, conversations, order)
            opened = run_load(path, conversations, peak)
            say(f"{run.title}: as many as it can")
            most = replace(peak, rate_per_s=0.0, outstanding=settings.outstanding,
                           seconds=settings.saturated_s, seed=order.seed + 2)  # fmt: skip
            closed = run_load(path, conversations, most)
        counts = path.counts() if isinstance(path, PagodaPath) else {}
        if isinstance(path, PagodaPath) and not run.defect:
            path.check_invariants()
    return {"title": run.title, "open": opened, "closed": closed, "counts": counts}


@contextmanager
def _path_of(
    run: _Run, settings: IncidentSettings, conversations: Conversations, say: Say
) -> Iterator[Service]:
    shape = settings.shape
    with ExitStack() as stack:
        if run.legacy:
            blocks = shape.upper_blocks + shape.host_blocks
            path: Service = LegacyPath(blocks, shape.block_bytes, off_by_one=run.defect)
        else:
            blocks = shape.host_blocks
            store = _open(settings, stack)
            stack.push(partial(_close, store))
            path = PagodaPath(store, upper_blocks=shape.upper_blocks, block_bytes=shape.block_bytes)
        say(f"{run.title}: the night before")
        _fill(path, conversations, blocks)
        yield path


def _close(store: Store, kind: type[BaseException] | None, *exception: object) -> None:
    """Write what is queued, unless an error or a Ctrl-C cut the run short."""
    del exception
    store.close(flush_s=_CLOSE_S if kind is None else 0.0)


def _open(settings: IncidentSettings, stack: ExitStack) -> Store:
    shape = settings.shape
    ranks = [[SealedTier(HostTier(slots=shape.host_blocks, slot_bytes=shape.block_bytes))]]
    if settings.directory is not None:
        made = tempfile.TemporaryDirectory(prefix="pagoda-incident-", dir=settings.directory)
        config = DriveConfig(
            directory=Path(stack.enter_context(made)),
            capacity_bytes=shape.drive_blocks * (shape.block_bytes + 512),
            slot_bytes=shape.block_bytes,
            free_floor_bytes=0,
        )
        ranks.append([SealedTier(DriveTier(config))])
    executor = ThreadExecutor(load_threads=2, store_threads=1, inline=("host",))
    return Store(ranks, runtime=Runtime(executor=executor), config=StoreConfig(policy=POLICY))


def _fill(path: Service, conversations: Conversations, blocks: int) -> None:
    """Every conversation as it was yesterday, then chains of a job that nobody asks for again:
    with them the tiers, of `blocks` together, are full."""
    for keys in conversations.opened():
        path.fill(keys)
    for _ in range(blocks // 2 // _NIGHTLY_CHAIN):
        path.fill(conversations.unrelated(_NIGHTLY_CHAIN))
    path.settle()


def figures_of(runs: dict[str, Any]) -> list[Figure]:
    """What the three runs have to show."""
    sound, legacy, defect = runs["sound"], runs["legacy"], runs["defect"]
    in_time = _ratio(defect["open"]["in_time_per_s"], sound["open"]["in_time_per_s"])
    most = _ratio(defect["closed"]["answered_per_s"], sound["closed"]["answered_per_s"])
    p99 = _ratio(_p99(defect["open"]), _p99(sound["open"]))
    wrong = defect["open"]["wrong_blocks"] + defect["closed"]["wrong_blocks"]
    refused = defect["open"]["refused_blocks"] + defect["closed"]["refused_blocks"]
    served = legacy["open"]["wrong_blocks"]
    healthy = 100 * sound["open"]["in_time_share"]
    last = legacy["open"]["slices"][-2]["in_time"]  # the very last may hold no request
    return [
        _figure("healthy: requests within 50 ms", healthy, "%", f">= {GOAL_HEALTHY}",
                healthy >= GOAL_HEALTHY),
        _figure("legacy, off by one: wrong blocks served", served, "", "> 0", served > 0),
        _figure("legacy, off by one: requests in time at the end", last, "", "0", last == 0),
        _figure("Pagoda, off by one: wrong blocks served", wrong, "", "0", wrong == 0),
        _figure("Pagoda, off by one: blocks refused", refused, "", "> 0", refused > 0),
        _figure("Pagoda, off by one: in time, against healthy", in_time, "×",
                f">= {GOAL_SHARE}", in_time >= GOAL_SHARE),
        _figure("Pagoda, off by one: saturation, against healthy", most, "×",
                f">= {GOAL_SHARE}", most >= GOAL_SHARE),
        _figure("Pagoda, off by one: p99, against healthy", p99, "×", f"<= {GOAL_P99}",
                p99 <= GOAL_P99),
    ]  # fmt: skip


def _p99(load: dict[str, Any]) -> float:
    return float(load["wait_s"]["p99"]) if load["wait_s"] else float("inf")


def _ratio(value: float, to: float) -> float:
    return value / to if to else 0.0


def _figure(name: str, value: float, unit: str, goal: str, met: bool | None) -> Figure:
    return Figure(name=name, value=value, unit=unit, goal=goal, met=met)
