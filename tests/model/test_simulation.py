"""The simulation of `pagoda lab sim`, on the seeds that every change must pass."""

from __future__ import annotations

import os

from pagoda.lab.sim.many import Plan, run_seeds

SEEDS = range(1, 21)
STEPS = 20_000


def test_twenty_seeds_run_clean() -> None:
    """`pagoda lab sim --seed N --steps 20000` does one of them again; the report says which."""
    jobs = min(4, len(os.sched_getaffinity(0)))
    plan = Plan(seeds=SEEDS, steps=STEPS, coverage=False)
    reports = [outcome.report for outcome in run_seeds(plan, jobs=jobs)]
    failed = [f"seed {r.seed}, step {r.steps}: {r.failed}: {r.detail}" for r in reports if r.failed]
    assert not failed, "\n".join(failed)
    assert {report.seed for report in reports} == set(SEEDS)
    restored = sum(report.counts["blocks restored"] for report in reports)
    refused = sum(report.counts["blocks refused"] for report in reports)
    assert restored > 10_000, "a run without hits proves nothing"
    assert refused > 1_000, "a run without bad blocks proves nothing"
