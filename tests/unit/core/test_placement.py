"""Which member of a rank takes the next run of writes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pagoda.core.placement import Candidate, place

BLOCK = 4096

candidates = st.lists(
    st.builds(
        Candidate,
        ready=st.booleans(),
        budget_bytes=st.sampled_from([0, BLOCK - 1, BLOCK, 1 << 40]),
        load_s=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
        free_blocks=st.integers(0, 2),
    ),
    max_size=6,
)


def idle(count: int) -> list[Candidate]:
    """Members with nothing to tell them apart."""
    return [Candidate(ready=True, budget_bytes=1 << 40, load_s=0.0, free_blocks=9)] * count


@given(candidates, st.integers(-1, 5))
def test_the_chosen_member_is_able_and_none_is_better(members: list[Candidate], after: int) -> None:
    """It takes writes and has budget; no able one has room where it has none, or, that being
    equal, less to do. None only when nobody is able."""
    chosen = place(members, block_bytes=BLOCK, after=after)
    able = [m for m in members if m.ready and m.budget_bytes >= BLOCK]
    if chosen is None:
        assert not able
        return
    best = members[chosen]
    assert best in able
    for other in able:
        if other.free_blocks and not best.free_blocks:
            raise AssertionError("an eviction although there is room")
        if bool(other.free_blocks) == bool(best.free_blocks):
            assert best.load_s <= other.load_s


@given(st.integers(1, 8), st.integers(-1, 7))
def test_equals_take_turns(count: int, first: int) -> None:
    """Any `count` runs in a row lie on `count` different members."""
    last, seen = first % count, []
    for _ in range(3 * count):
        chosen = place(idle(count), block_bytes=BLOCK, after=last)
        assert chosen is not None
        last = chosen
        seen.append(chosen)
    for start in range(2 * count):
        assert len(set(seen[start : start + count])) == count


@given(candidates, st.integers(-1, 5))
def test_the_choice_depends_on_nothing_else(members: list[Candidate], after: int) -> None:
    """Equal facts, equal choice: a simulation can be run again."""
    one = place(members, block_bytes=BLOCK, after=after)
    assert one == place(list(members), block_bytes=BLOCK, after=after)
