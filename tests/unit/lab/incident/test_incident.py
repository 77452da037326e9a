"""The incident: its load, its oracle, the cache that fails, and the one that does not."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from pagoda.cli.lab_incident import wrong_blocks as wrong_blocks_of_pagoda
from pagoda.core.identity import Key
from pagoda.lab.defects.patch import applied
from pagoda.lab.incident.generator import REQUEST, Order, arrivals, send_closed, send_open
from pagoda.lab.incident.legacy import CacheCorruption, LegacyCache, LegacyPath
from pagoda.lab.incident.oracle import Oracle
from pagoda.lab.incident.pagoda_path import PagodaPath
from pagoda.lab.incident.picture import draw
from pagoda.lab.incident.run import OFF_BY_ONE, IncidentSettings, figures_of, measure_incident
from pagoda.lab.incident.service import run_load
from pagoda.lab.incident.traffic import Conversations, Shape, order_of_visits, true_bytes
from pagoda.machine.buffers import aligned_buffer
from pagoda.store.executor import Runtime
from pagoda.store.store import Store
from pagoda.testing.executor import SteppedExecutor
from pagoda.tiers.host import HostTier
from pagoda.tiers.sealed import SealedTier

SHAPE = Shape(groups=4, conversations=64, upper_blocks=600, host_blocks=400, block_bytes=4096)


def key(number: int) -> Key:
    """A key for tests."""
    return Key(number.to_bytes(8, "little") * 4)


def test_prefixes_have_the_incidents_lengths_and_turns_come_back() -> None:
    """8 to 64 blocks; a visit finds the turns of the one before; some are left behind."""
    talk = Conversations(SHAPE)
    before = dict(enumerate(talk.opened()))
    grown = left_behind = 0
    for number in islice(order_of_visits(len(talk), seed=1), 10 * len(talk)):
        keys, known = talk.visit(number), set(before[number])
        assert 8 <= len(keys) <= 64
        new = [position for position, k in enumerate(keys) if k not in known]
        assert new in ([], [len(keys) - 1]), "a turn is added at the end"
        grown += len(new)
        left_behind += len(known - set(keys))
        before[number] = keys
    assert grown == 2 * len(talk), "every fourth of ten visits"
    assert left_behind == len(talk), "the second turn of each took the first one's place"


def test_the_seed_decides_the_load() -> None:
    """Two of a seed are equal, two of different seeds share nothing."""
    one, two, other = (Conversations(replace(SHAPE, seed=seed)) for seed in (1, 1, 2))
    assert [one.visit(n) for n in (5, 5, 9)] == [two.visit(n) for n in (5, 5, 9)]
    assert not set(one.visit(3)) & set(other.visit(3))


def test_an_open_loop_has_its_rate_and_waits_for_nobody() -> None:
    """As many requests as the rate says, each meant for its instant; nothing is read back."""
    order = Order(conversations=64, seconds=0.2, seed=3, rate_per_s=20_000)
    assert 3700 < len(list(arrivals(order, 0))) < 4300
    sent: list[bytes] = []
    found = send_open(order, sent.append)
    frames = list(REQUEST.iter_unpack(b"".join(sent)))
    assert found["requests"] == len(frames) == len(list(arrivals(order, 0)))
    assert [at for at, _ in frames] == sorted(at for at, _ in frames)
    assert {number for _, number in frames} == set(range(64))
    assert found["late_s"]["p50"] >= 0


def test_a_closed_loop_sends_as_many_as_were_finished() -> None:
    """The service's pace is the load's."""
    sent: list[bytes] = []
    told = iter([3, 1, -1])
    order = Order(conversations=64, seconds=60, seed=3, outstanding=8)
    assert send_closed(order, sent.append, lambda: next(told))["requests"] == 12
    assert [len(data) // REQUEST.size for data in sent] == [8, 3, 1]


def test_the_oracle_sees_one_wrong_block() -> None:
    """Among those that moved and among those that stayed; any byte of the former counts."""
    size = 4096
    pool = memoryview(aligned_buffer(8 * size))[: 8 * size]
    views = [pool[i * size : (i + 1) * size] for i in range(8)]
    for slot in range(8):
        views[slot][:] = true_bytes(key(slot), size)
    keys, slots = [key(n) for n in range(8)], list(range(8))
    oracle = Oracle(pool, views, size)
    oracle.check([(keys, slots, 5)])
    assert oracle.wrong == 0
    views[6][2000] ^= 1
    oracle.check([(keys, slots, 5)])
    assert oracle.wrong == 1
    views[2][:] = views[3]
    oracle.check([(keys, slots, 5), (keys[:3], slots[:3], 3)])
    assert oracle.wrong == 1 + 2 + 1


def test_a_cache_without_seals_serves_wrong_blocks_and_then_nothing() -> None:
    """The incident, in small; without the mistake the same cache is right."""
    for off_by_one in (False, True):
        path = LegacyPath(32, 4096, off_by_one=off_by_one)
        for number in range(4000):
            keys = [key((number * 7 + i) % 48) for i in range(4)]
            path.begin([(number, keys)])
            path.step()
        assert (path.wrong > 0) == (path.failed > 0) == off_by_one
    with pytest.raises(CacheCorruption):
        path._cache.get(key(47))


def test_a_sound_legacy_cache_evicts_the_least_recently_used() -> None:
    """What makes it comparable."""
    cache = LegacyCache(8, 64, off_by_one=False)
    for number in range(8):
        cache.put(key(number), true_bytes(key(number), 64))
    cache.get(key(0))
    cache.put(key(8), true_bytes(key(8), 64))
    assert [n for n in range(9) if cache.get(key(n)) is not None] == [0, 8] or cache.get(key(8))


def node(upper: int = 300, host: int = 64) -> tuple[PagodaPath, SteppedExecutor]:
    """A path over a stepped store."""
    executor = SteppedExecutor()
    tier = SealedTier(HostTier(slots=host, slot_bytes=4096))
    store = Store([[tier]], runtime=Runtime(executor=executor))
    return PagodaPath(store, upper_blocks=upper, block_bytes=4096), executor


def answer(path: PagodaPath, executor: SteppedExecutor, prefixes: list[list[Key]]) -> None:
    """Ask for prefixes together, and see them answered."""
    path.begin(list(enumerate(prefixes)))
    done: list[int] = []
    while len(done) < len(prefixes):
        executor.step()
        done += path.step()
    executor.drain()
    path.step()


def test_requests_that_need_the_same_blocks_at_once_are_all_answered() -> None:
    """Each computes for itself; one copy stays."""
    path, executor = node()
    keys = [key(n) for n in range(10)]
    answer(path, executor, [keys, keys[:8], keys])
    assert (path.wrong, path.waiting) == (0, 0)
    answer(path, executor, [keys])
    assert path.counts() == {"restored": 0, "computed": 28, "crossed": 0}
    path.check_invariants()


def test_the_mistake_costs_blocks_and_no_wrong_byte() -> None:
    """Stale keys are met and not followed; the sound path meets none."""
    for defect in (False, True):
        path, executor = node(upper=300, host=150)
        talk = Conversations(replace(SHAPE, conversations=48))
        visits = order_of_visits(48, seed=2)
        with applied(OFF_BY_ONE) if defect else nullcontext():
            for number in range(1500):
                path.begin([(number, talk.visit(next(visits)))])
                while path.waiting > 3:  # some are always under way
                    executor.step()
                    path.step()
        assert path.wrong == 0
        assert path.counts()["crossed"] > 0
        assert (path.refused > 0) == defect


def test_figures_are_judged_against_the_healthy_run() -> None:
    """Every goal can be missed."""
    good = {
        "in_time_share": 1.0, "in_time_per_s": 100.0, "answered_per_s": 100.0,
        "wait_s": {"p99": 0.01}, "wrong_blocks": 0, "refused_blocks": 5,
        "slices": [{"in_time": 5}] * 3,
    }  # fmt: skip
    bad = good | {
        "in_time_per_s": 89.0, "answered_per_s": 80.0, "wait_s": {"p99": 0.02},
        "wrong_blocks": 1, "refused_blocks": 0,
    }  # fmt: skip
    gone = good | {"wrong_blocks": 7, "slices": [{"in_time": 0}] * 3}
    run = {"sound": {"open": good, "closed": good}}
    met = figures_of(run | {"legacy": {"open": gone}, "defect": {"open": good, "closed": good}})
    assert all(figure.met is not False for figure in met)
    missed = figures_of(run | {"legacy": {"open": good}, "defect": {"open": bad, "closed": bad}})
    assert [figure.met for figure in missed if figure.goal] == [True] + [False] * 7


def test_the_whole_of_it_in_small(tmp_path: Path) -> None:
    """Three runs with a real generator: the first and the last answer everything rightly."""
    settings = IncidentSettings(
        shape=SHAPE, rate_per_s=300.0, peak_s=1.0, saturated_s=0.5, directory=tmp_path
    )
    said: list[str] = []
    report = measure_incident(settings, said.append)
    for name in ("sound", "defect"):
        opened = report["runs"][name]["open"]
        assert opened["answered"] == opened["asked"] > 100
        assert opened["wrong_blocks"] == 0
        assert sum(row["asked"] for row in opened["slices"]) == opened["asked"]
        assert report["runs"][name]["closed"]["answered"] > 0
    assert opened["generator_late_s"]["count"] == opened["asked"]
    assert len(said) == 3 * 3
    draw(report, tmp_path / "incident.png")
    assert (tmp_path / "incident.png").read_bytes()[1:4] == b"PNG"


def test_a_load_without_answers_ends_with_its_time() -> None:
    """A path that never answers is given a grace, and its requests count as not in time."""

    class Deaf(LegacyPath):
        def step(self) -> list[int]:
            return []

    path = Deaf(64, 4096, off_by_one=False)
    order = Order(conversations=64, seconds=0.2, seed=1, rate_per_s=500)
    report = run_load(path, Conversations(SHAPE), order)
    assert report["answered"] == 0
    assert report["asked"] > 50
    assert report["in_time_share"] == 0.0


@pytest.mark.parametrize("bad", ["sound", "defect", "legacy"])
def test_only_wrong_blocks_of_pagoda_fail_the_command(bad: str) -> None:
    """The cache without seals is meant to be wrong; a run too short for it is no failure."""
    loops = ("open", "closed")
    runs = {
        run: {loop: {"wrong_blocks": int((run, loop) == (bad, "closed"))} for loop in loops}
        for run in ("sound", "legacy", "defect")
    }
    assert wrong_blocks_of_pagoda({"runs": runs}) == (bad != "legacy")
