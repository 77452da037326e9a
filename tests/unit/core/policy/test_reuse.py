"""The learned hazard of reuse is what its definition says, and ranks chains by what they do."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_reuse import Seen, naive_base, naive_densities, naive_fit, naive_tally

from pagoda.core.policy import reuse
from pagoda.core.policy.port import Hint
from pagoda.core.policy.reuse import BINS, EDGES_S, NEUTRAL, WORTHLESS, Kind, ReuseModel

WINDOW = 64
HINTS = list(Hint)
NO_ONE = Kind(1, 1, Hint.NONE)

KINDS = st.builds(Kind, st.integers(1, 12), st.integers(0, 2000), st.sampled_from(HINTS))
TIMES = st.one_of(
    st.sampled_from([0.0, 0.1, 0.5, 30.0, 4000.0]), st.sampled_from(EDGES_S), st.floats(0.0, 1e7)
)


@pytest.fixture
def small_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few observations fill the window, and each is fitted at once."""
    monkeypatch.setattr(reuse, "_WINDOW", WINDOW)
    monkeypatch.setattr(reuse, "_REFIT", 1)


class Observed:
    """A model beside a list of what it was told."""

    def __init__(self) -> None:
        self.model = ReuseModel()
        self.told: list[Seen] = []
        self.now_s = 0.0

    def observe(self, kind: Kind, at_s: float) -> int:
        self.now_s = max(self.now_s, at_s)
        self.told.append(Seen(_place(kind), at_s))
        return self.model.observe(kind, at_s)

    def reused(self, number: int, at_s: float) -> None:
        self.now_s = max(self.now_s, at_s)
        seen = self.told[number]
        self.told[number] = Seen(seen.place, seen.since_s, max(0.0, at_s - seen.since_s))
        self.model.reused(number, at_s)

    def last(self) -> list[Seen]:
        return self.told[-reuse._WINDOW :]


STEPS = st.lists(st.tuples(KINDS, TIMES, TIMES, st.integers(0, 90)), min_size=1, max_size=90)


def _walk(steps: list[tuple[Kind, float, float, int]]) -> Observed:
    """Chains are left, by requests that may have begun long before, and some are continued."""
    observed = Observed()
    clock_s = 0.0
    open_: list[int] = []
    for kind, pause_s, lasted_s, which in steps:
        clock_s += pause_s
        open_.append(observed.observe(kind, max(0.0, clock_s - lasted_s)))
        if which < len(open_):
            observed.reused(open_.pop(which), clock_s)
    return observed


@pytest.mark.usefixtures("small_window")
@settings(max_examples=25)
@given(steps=STEPS)
def test_it_counts_events_and_seconds_at_risk(steps: list[tuple[Kind, float, float, int]]) -> None:
    """By kind and bin of age, those of the last requests, continued or not, exactly."""
    observed = _walk(steps)
    now_s = max(seen.since_s for seen in observed.last())
    events, risk_s = observed.model._tally(0.0)
    by_place = naive_tally(observed.last(), now_s)
    for got, expected in zip((events, risk_s), by_place, strict=True):
        table = got.reshape((*reuse._SHAPE, BINS))
        assert math.isclose(table.sum(), sum(map(sum, expected.values())), abs_tol=1e-6)
        for place, row in expected.items():
            np.testing.assert_allclose(table[place], row, rtol=1e-9, atol=1e-6)


@pytest.mark.usefixtures("small_window")
@settings(max_examples=15)
@given(steps=STEPS)
def test_it_is_the_naive_fit(steps: list[tuple[Kind, float, float, int]]) -> None:
    """Its levels, and what each is worth at each age."""
    observed = _walk(steps)
    observed.model._fit(0.0)
    now_s = max(seen.since_s for seen in observed.last())
    fit = naive_fit(observed.last(), now_s, sweeps=reuse._SWEEPS, prior=reuse._PRIOR)
    for seen in observed.last():
        factor = observed.model._factors[seen.place]
        assert math.isclose(factor, fit.factor(seen.place), rel_tol=1e-6)
    for level in (1, NEUTRAL, reuse._LEVELS - 1):
        power = reuse._LOWEST_FACTOR * reuse._LEVEL_RATIO**level
        np.testing.assert_allclose(
            observed.model.scores[level], naive_densities(fit.base, power), rtol=1e-5
        )


@pytest.mark.usefixtures("small_window")
@settings(max_examples=25)
@given(steps=STEPS, kinds=st.lists(KINDS, max_size=5))
def test_whatever_comes_it_stays_a_ranking(
    steps: list[tuple[Kind, float, float, int]], kinds: list[Kind]
) -> None:
    """Time that stands still, leaps, or comes late: all worths are finite, those of levels above
    the lowest are not nothing, a higher level is never worth less, and levels are in range."""
    model = _walk(steps).model
    scores = np.array(model.scores)
    assert scores.shape == (reuse._LEVELS, BINS)
    assert np.isfinite(scores).all()
    assert (scores[WORTHLESS] == 0).all()
    assert (scores[1:] > 0).all()
    for lower, higher in pairwise(scores):
        assert (higher >= lower * (1 - 1e-9)).all()
    assert all(1 <= model.level(kind) < reuse._LEVELS for kind in kinds)


@settings(max_examples=40)
@given(
    events=st.lists(st.floats(0, 1e4), min_size=BINS, max_size=BINS),
    risk_s=st.lists(st.floats(0, 1e7), min_size=BINS, max_size=BINS),
)
def test_the_base_is_smooth_and_falls_behind_its_peak(
    events: list[float], risk_s: list[float]
) -> None:
    """Against loops, for any tally."""
    base = reuse._base(np.array(events), np.array(risk_s))
    np.testing.assert_allclose(base, naive_base(events, risk_s), rtol=1e-9)


def test_overlapping_requests_are_fitted() -> None:
    """A long request that ends after a shorter one began before it. The fit took the beginning
    of the last to end for now: chains that had been left later had lived a negative time, which
    counted in the bins of another kind, or stopped the server."""
    for kind in (Kind(0, 0, Hint.NONE), Kind(3, 9, Hint.ALIVE)):
        observed = Observed()
        for _ in range(reuse._REFIT - 1):
            observed.observe(kind, 100.0)
        observed.observe(kind, 10.0)
        events, risk_s = observed.model._tally(10.0)
        assert risk_s.sum() == pytest.approx(90.0)
        assert (events.sum(), risk_s.min()) == (0, 0)


def test_kinds_rank_by_what_they_do() -> None:
    """Turns, sizes and hints whose chains are continued more often stand higher, whatever
    the order in which they come."""
    chances = [0.9, 0.45, 0.2, 0.02]
    for axis in (
        [Kind(turn, 4, Hint.NONE) for turn in (5, 1, 3, 7)],
        [Kind(1, fresh, Hint.NONE) for fresh in (100, 1, 3, 700)],
        [Kind(1, 4, hint) for hint in (Hint.TOOL, Hint.NONE, Hint.CLOSED, Hint.ALIVE)],
    ):
        kinds = dict(zip(axis, chances, strict=True))
        model = _traffic(lambda rng, kinds=kinds: _drawn(rng, kinds))
        levels = [model.level(kind) for kind in axis]
        assert levels == sorted(levels, reverse=True)
        assert levels[0] > levels[1] > levels[3]
        for age in range(12):
            worths = [model.scores[level][age] for level in levels]
            assert worths == sorted(worths, reverse=True)


def test_what_is_not_yet_used_again_is_not_dead() -> None:
    """Two kinds of the same hazard, one of which has only just begun to come: none of its
    chains was continued, and it stands hardly lower. Had its chains been silent as long as
    the others, it would stand far lower."""
    rng = random.Random(3)
    known, silent = Kind(1, 4, Hint.NONE), Kind(2, 4, Hint.NONE)
    levels = []
    for age_s in (1.0, 2000.0):
        observed = Observed()
        end_s = 10_000.0
        for _ in range(2000):
            at_s = rng.uniform(0.0, 8000.0)
            observed.reused(observed.observe(known, at_s), at_s + rng.expovariate(1 / 100))
        for _ in range(200):
            observed.observe(silent, end_s - age_s)
        observed.observe(NO_ONE, end_s)
        observed.model._fit(end_s)
        levels.append(observed.model.level(silent) - observed.model.level(known))
    assert levels[0] >= -4
    assert levels[1] <= levels[0] - 8


@pytest.mark.parametrize(("right", "apart"), [(0.9, True), (0.5, False)])
def test_a_hint_is_trusted_as_far_as_it_is_right(right: float, *, apart: bool) -> None:
    """One that is right nine times in ten moves chains by the odds that it gives; one that is
    right half of the time moves none."""

    def drawn(rng: random.Random) -> tuple[Kind, bool]:
        alive = rng.random() < 0.4
        said = alive if rng.random() < right else not alive
        return Kind(1, 4, Hint.ALIVE if said else Hint.CLOSED), alive

    model = _traffic(drawn)
    alive, closed = (model.level(Kind(1, 4, hint)) for hint in (Hint.ALIVE, Hint.CLOSED))
    if apart:
        worth = [model.scores[level][0] for level in (alive, closed)]
        assert alive >= closed + 6
        assert worth[0] > 4 * worth[1]
    else:
        assert abs(alive - closed) <= 1


@pytest.mark.usefixtures("small_window")
def test_what_is_out_of_the_window_is_forgotten() -> None:
    """An observation that others have taken the place of counts no more, and its late reuse is
    no event of the one in its place."""
    model = ReuseModel()
    first = [model.observe(NO_ONE, float(number)) for number in range(WINDOW)]
    assert not any(map(model.forgotten, first))
    for number in first:
        model.reused(number, 99.0)
    later = [model.observe(Kind(2, 1, Hint.NONE), 100.0) for _ in range(WINDOW // 2)]
    assert [number for number in first if model.forgotten(number)] == first[: WINDOW // 2]
    for number in [*first, later[0]]:
        model.reused(number, 200.0)
    events, _ = model._tally(200.0)
    assert events.sum() == WINDOW // 2 + 1
    assert events[NO_ONE.cell].sum() == WINDOW // 2


def test_every_kind_has_a_place_of_its_own() -> None:
    """Up to the last turn and the last size, which stand for all above."""
    kinds = [
        Kind(turn, 2**size - 1, hint) for turn in range(8) for size in range(10) for hint in HINTS
    ]
    assert sorted(kind.cell for kind in kinds) == list(range(math.prod(reuse._SHAPE)))
    assert Kind(99, 10**6, Hint.NONE).cell == Kind(7, 512, Hint.NONE).cell


def test_before_anything_is_learned_the_younger_is_worth_more() -> None:
    """And every kind as much as another."""
    model = ReuseModel()
    assert {model.level(Kind(1, 1, hint)) for hint in HINTS} == {NEUTRAL}
    ages = model.scores[NEUTRAL]
    assert ages == sorted(ages, reverse=True)
    assert len(set(ages)) == BINS
    assert model.scores[WORTHLESS] == [0.0] * BINS


def _place(kind: Kind) -> tuple[int, int, int]:
    turn, size, hint = np.unravel_index(kind.cell, reuse._SHAPE)
    return int(turn), int(size), int(hint)


def _drawn(rng: random.Random, chances: dict[Kind, float]) -> tuple[Kind, bool]:
    kind = rng.choice(list(chances))
    return kind, rng.random() < chances[kind]


def _traffic(drawn: Callable[[random.Random], tuple[Kind, bool]]) -> ReuseModel:
    """A model after fifty minutes of chains, of which those that live are continued within
    some minutes."""
    rng = random.Random(8)
    model = ReuseModel()
    due: list[tuple[float, int]] = []
    for second in range(3000):
        for at_s, number in [entry for entry in due if entry[0] <= second]:
            model.reused(number, at_s)
        due = [entry for entry in due if entry[0] > second]
        kind, alive = drawn(rng)
        number = model.observe(kind, float(second))
        if alive:
            due.append((second + rng.expovariate(1 / 60), number))
    return model
