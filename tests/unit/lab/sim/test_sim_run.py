"""A run of the simulation: reproducible, explained when it fails, and covering what it says."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest

from pagoda.lab.defects.hunt import named
from pagoda.lab.defects.patch import applied
from pagoda.lab.sim.coverage import Coverage
from pagoda.lab.sim.many import Plan, run_fallback, run_seed
from pagoda.lab.sim.run import Simulation
from pagoda.store.store import Store

_ONE_RUN = "from pagoda.lab.sim.run import Simulation; print(Simulation(5).run(1500).digest)"


def test_one_seed_is_one_run() -> None:
    """Trace and counts are equal, in processes that hash differently; another seed differs."""
    traces = {_digest(hash_seed) for hash_seed in ("0", "1", "2")}
    assert len(traces) == 1
    assert Simulation(6).run(1500).digest not in traces


def _digest(hash_seed: str) -> str:
    environment = os.environ | {
        "PYTHONHASHSEED": hash_seed,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    ran = subprocess.run(
        [sys.executable, "-c", _ONE_RUN],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.strip()


def test_a_failing_run_says_what_happened_last() -> None:
    """The check, what it saw, and the steps before it; the same seed fails at the same step."""
    with applied(named("key-without-parent")):
        one, again = Simulation(1).run(20_000), Simulation(1).run(20_000)
    assert one.failed == "bytes"
    assert "another's" in one.detail or "wrong bytes" in one.detail
    assert one.last[-1].startswith(f"{one.steps} ")
    assert (one.steps, one.digest, one.last) == (again.steps, again.digest, again.last)


def test_an_exception_of_the_store_is_a_finding_not_a_crash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also in the middle of an operation, where the store turns exceptions into outcomes."""

    def broken(self: object) -> None:
        raise RuntimeError("oops")

    monkeypatch.setattr("pagoda.core.suspects.Suspects.clear", broken)
    report = Simulation(1).run(5_000)
    assert report.failed == "exception"
    assert "broken" in report.detail


def test_a_run_visits_both_nodes_all_faults_and_several_lives() -> None:
    """A simulation that only seems to do something would be clean, too."""
    report = Simulation(2).run(6_000)
    assert report.failed is None
    assert report.counts["lives"] > 6
    for kind in ("Stored", "Restored", "Refused", "Evicted", "Degraded", "Skipped", "Scrubbed"):
        assert report.counts[f"events {kind}"] > 5, kind


def test_coverage_sees_the_lines_that_ran_and_no_others() -> None:
    """What a run passes through is counted, with and without the compiled tables."""
    plan = Plan(seeds=(3,), steps=12_000)
    lines = Coverage()
    compiled = run_seed(plan, 3)
    lines.add(compiled.seen)
    files = {file.name: file for file in lines.files()}
    assert files["store/reader.py"].share > 0.8
    assert files["core/state.py"].share > 0.7
    before = files["core/keyindex.py"].share
    lines.add(run_fallback(plan, 3).seen)
    assert {file.name: file for file in lines.files()}["core/keyindex.py"].share > before
    assert lines.share() > 0.8
    assert not any(file.seen - file.lines for file in lines.files())


def test_nothing_is_covered_before_it_ran() -> None:
    """A fresh count is empty."""
    assert Coverage().share() == 0


def test_a_run_keeps_nothing_of_its_dead_processes() -> None:
    """Errors that a fault raises again and again must not hold the frames of earlier lives: a
    million steps took twenty gigabytes."""
    simulation = Simulation(200)
    simulation.run(12_000)
    lives = sum(node.lives for node in simulation.nodes)
    gc.collect()
    stores = sum(isinstance(held, Store) for held in gc.get_objects())
    assert lives > 10
    assert stores < lives / 2
