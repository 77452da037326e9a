"""Shared blocks are as hot as an average over all their uses makes them."""

from __future__ import annotations

import math

import pytest
from heat_models import chain, key
from hypothesis import given
from hypothesis import strategies as st

from pagoda.core.policy import shared
from pagoda.core.policy.shared import SharedBlocks, density_of, heat_of

HALF_LIFE_S = 300.0
PAUSES = st.lists(
    st.one_of(st.sampled_from([0.0, 0.0, 1.0, 300.0]), st.floats(0.0, 1e6)), max_size=20
)


@given(pauses=PAUSES, start_s=st.floats(0.0, 1e6))
def test_heat_is_the_sum_of_decayed_uses(pauses: list[float], start_s: float) -> None:
    """The second use counts for both that there are by then, all later ones in full, each
    halved in every half-life since; uses at one time add up, however many they are. Once they
    did not: whatever was used often counted as used twice."""
    blocks = SharedBlocks()
    blocks.used([key(1)], start_s, own=0)
    uses = [(start_s, math.sqrt(2))]
    for pause_s in pauses:
        at_s = uses[-1][0] + pause_s
        blocks.used([key(1)], at_s, own=0)
        uses.append((at_s, 1.0))
        total = sum(weight * 2 ** ((then_s - at_s) / HALF_LIFE_S) for then_s, weight in uses)
        heat = blocks.heat(key(1))
        assert heat is not None
        assert heat - at_s / HALF_LIFE_S == pytest.approx(math.log2(total), abs=1e-6)


def test_own_blocks_are_not_shared_until_another_session_uses_them() -> None:
    """Of a chain of which the first blocks are the session's own, the others are shared; from
    then on the first count, too, if they had been shared."""
    blocks = SharedBlocks()
    keys = chain(1, 2, 3)
    blocks.used(keys, 0.0, own=2)
    assert [blocks.heat(block) is None for block in keys] == [True, True, False]
    blocks.used(keys[:1], 0.0, own=0)
    before = [blocks.heat(block) for block in keys]
    blocks.used(keys, 0.0, own=3)
    assert blocks.heat(keys[0]) == pytest.approx(math.log2(2 ** before[0] + 1))
    assert blocks.heat(keys[1]) is None
    assert blocks.heat(keys[2]) == pytest.approx(math.log2(2 ** before[2] + 1))


@given(density=st.floats(1e-12, 1e9), at_s=st.floats(0.0, 1e6), later_s=st.floats(0.0, 1e4))
def test_heat_and_density_say_the_same(density: float, at_s: float, later_s: float) -> None:
    """There and back again; with time a density halves in every half-life, and the order of two
    is that of their heats."""
    heat = heat_of(density, at_s)
    assert density_of(heat, at_s) == pytest.approx(density, rel=1e-6)
    halved = density * 2 ** (-later_s / HALF_LIFE_S)
    assert density_of(heat, at_s + later_s) == pytest.approx(halved, rel=1e-6)
    assert heat_of(2 * density, at_s) > heat


def test_the_ends_of_the_scale() -> None:
    """What promises nothing is colder than all, and beyond all worth there is nothing hotter."""
    assert heat_of(0.0, 5.0) == -math.inf
    assert heat_of(math.inf, 5.0) == math.inf
    assert density_of(-math.inf, 5.0) == 0.0


def test_steady_use_is_worth_its_rate() -> None:
    """A block that is used once in so many seconds promises nearly that many hits a second,
    less what is taken off because the average is late."""
    for every_s in (2.0, 10.0, 60.0):
        blocks = SharedBlocks()
        at_s = 0.0
        while at_s < 20 * HALF_LIFE_S:
            blocks.used([key(1)], at_s, own=0)
            at_s += every_s
        heat = blocks.heat(key(1))
        assert heat is not None
        assert 0.7 / every_s < density_of(heat, at_s) < 1.0 / every_s


def test_the_longest_unused_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the number that is remembered."""
    monkeypatch.setattr(shared, "_REMEMBERED", 3)
    blocks = SharedBlocks()
    for number in (1, 2, 3, 1, 4):
        blocks.used([key(number)], 0.0, own=0)
    assert [number for number in range(1, 5) if blocks.heat(key(number)) is None] == [2]
