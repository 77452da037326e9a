"""Uses move through the bins of age as time passes, each once through each."""

from __future__ import annotations

import math
import random
from itertools import accumulate

from heat_models import bin_of
from hypothesis import given
from hypothesis import strategies as st

from pagoda.core.policy.reuse import BINS, EDGES_S, NEUTRAL, ReuseModel
from pagoda.core.policy.uses import RankedUses, Use, Uses

_ULP = 2.0**-52
_PAUSES = st.one_of(
    st.sampled_from(EDGES_S),
    st.sampled_from([math.nextafter(edge, way) for edge in EDGES_S for way in (0.0, 1e9)]),
    st.floats(0.0, 2 * EDGES_S[-1]),
)


def test_an_age_that_rounds_down_to_its_bin() -> None:
    """A use is moved on when now less the edge has reached its start, and was put where now
    less its start says. Both round, and now and then the second said that it stays: it was taken
    out of its bin's queue and put in again for ever, and the engine stood still."""
    rng = random.Random(1)
    torn = 0
    for edge in [*range(1, BINS)] * 50:
        at_s = rng.uniform(0.0, 1e5)
        now_s = at_s + EDGES_S[edge]
        torn += at_s <= now_s - EDGES_S[edge] and now_s - at_s < EDGES_S[edge]
        uses = _uses(at_s)
        use = _leafy(uses)
        uses.age(now_s)
        assert use.bin in (edge - 1, edge)
        uses.age(now_s + 1e-6)
        assert use.bin == edge
    assert torn > 10, "no age here was rounded both ways"


@given(start_s=st.floats(0.0, 1e6), pauses=st.lists(_PAUSES, max_size=12))
def test_the_bin_is_that_of_the_age(start_s: float, pauses: list[float]) -> None:
    """At edges of bins, beside them and anywhere, as far as rounding lets it."""
    uses = _uses(start_s)
    begun = [_leafy(uses)]
    now_s = start_s
    for pause_s in pauses:
        now_s += pause_s
        uses.age(now_s)
        for use in begun:
            slack_s = 2 * now_s * _ULP
            age_s = now_s - use.at_s
            assert bin_of(age_s - slack_s) <= use.bin <= bin_of(age_s + slack_s)
        begun.append(_leafy(uses))


def test_leaps_keep_the_oldest_first() -> None:
    """Time leaps when nobody asks for a while. Young uses were moved before old ones: those that
    then shared a bin were out of order in it, and an old one waited there for a young one."""
    uses = _uses(0.0)
    begun = []
    for at_s in (0.0, 0.25, 3.0, 10.0, 11.0):
        uses.age(at_s)
        begun.append(_leafy(uses))
    leap_s = EDGES_S[20] + 20.0
    uses.age(leap_s)
    assert [use for _, bucket in uses.ascending() for _, use in bucket] == begun
    for edge in range(21, BINS):
        for use in begun:
            uses.age(use.at_s + EDGES_S[edge] + 1e-6)
            assert use.bin == edge


def test_time_never_runs_back() -> None:
    """What is told late changes no age."""
    uses = _uses(100.0)
    use = _leafy(uses)
    uses.age(200.0)
    before = use.bin
    uses.age(150.0)
    assert (uses.now_s, use.bin) == (200.0, before)
    assert uses.new(NEUTRAL, asked=True).at_s == 200.0


def test_a_use_without_blocks_is_let_go() -> None:
    """Unless its request is open: then blocks may come, and must not find it too young."""
    uses = _uses(0.0)
    opened, closed = uses.new(NEUTRAL, asked=True), uses.new(NEUTRAL, asked=True)
    closed.open = False
    uses.age(EDGES_S[1])
    uses.age(EDGES_S[7])
    assert (opened.bin, closed.bin) == (7, 0)
    assert [use for queue in uses._aging for use in queue] == [opened]


def test_uses_that_are_ranked_later_stand_where_they_would_have() -> None:
    """Those whose blocks had no order until then, and new ones come behind them."""
    rng = random.Random(4)
    plain, ranked = Uses(ReuseModel()), _uses(0.0)
    known = []
    for at_s in accumulate(rng.choice([0.0, 0.25, 1.0, 40.0]) for _ in range(200)):
        for uses in (plain, ranked):
            uses.age(at_s)
        known.append(plain.new(NEUTRAL, asked=True))
        _leafy(ranked)
    later = RankedUses.of(plain, rng.sample(known, len(known)))
    for use in known:
        later.add_leaf(use, 0)
    for uses in (later, ranked):
        _leafy(uses)
    for at_s in (0.0, 1.0, 500.0):
        for uses in (later, ranked):
            uses.age(ranked.now_s + at_s)
        assert _numbers(later) == _numbers(ranked)


def _numbers(uses: RankedUses) -> list[tuple[float, list[int]]]:
    """Of the ranked ones, with their scores."""
    return [(score, [number for number, _ in bucket]) for score, bucket in uses.ascending()]


def _uses(now_s: float) -> RankedUses:
    uses = RankedUses(ReuseModel())
    uses.age(now_s)
    return uses


def _leafy(uses: RankedUses) -> Use:
    """A new use that has one leaf."""
    use = uses.new(NEUTRAL, asked=True)
    use.slots = 1
    uses.add_leaf(use, 0)
    return use
