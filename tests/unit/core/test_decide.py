"""Plans: what to read, in which runs, and how much of a prompt may be reused."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pagoda.core.decide import plan_fetches, resident_prefix, reusable_blocks
from pagoda.core.identity import Key
from pagoda.core.state import TierState


def key(number: int) -> Key:
    """A key for tests."""
    return Key(number.to_bytes(32, "big"))


def tier_with(name: str, numbers: set[int]) -> TierState:
    """A tier that holds these keys."""
    state = TierState(name, 32)
    slots = state.reserve(len(numbers))
    state.publish(slots, [key(n) for n in sorted(numbers)])
    return state


members = st.sets(st.integers(0, 15))


@given(members, members, st.integers(1, 5), st.integers(1, 5))
def test_a_plan_reads_the_longest_prefix_once(
    host: set[int], drive: set[int], host_run: int, drive_run: int
) -> None:
    """Fetches cover the resident prefix without gap or overlap, fastest tier first."""
    tiers = [tier_with("host", host), tier_with("drive", drive)]
    keys = [key(n) for n in range(16)]
    expected = next((n for n in range(16) if n not in host | drive), 16)
    fetches = plan_fetches(tiers, keys, run_blocks=[host_run, drive_run])
    assert resident_prefix(tiers, keys) == expected
    position = 0
    for fetch in fetches:
        assert fetch.first == position
        assert 1 <= len(fetch.slots) <= (host_run, drive_run)[fetch.tier]
        for slot in fetch.slots:
            assert tiers[fetch.tier].key_of(slot) == keys[position]
            assert fetch.tier == (0 if position in host else 1), "the fastest tier that has it"
            position += 1
    assert position == expected


@given(members, members)
def test_planning_changes_nothing(host: set[int], drive: set[int]) -> None:
    """A look-up is a query: no lease, no order, no generation moves."""
    tiers = [tier_with("host", host), tier_with("drive", drive)]
    before = [(t.lease_count(), dict(t.published()), t.free_count()) for t in tiers]
    plan_fetches(tiers, [key(n) for n in range(16)], run_blocks=[4, 4])
    assert before == [(t.lease_count(), dict(t.published()), t.free_count()) for t in tiers]


@given(st.integers(1, 500), st.integers(1, 32), st.integers(1, 64))
def test_reuse_leaves_a_tail_and_wastes_no_block(prompt: int, block: int, tail: int) -> None:
    """As many whole blocks as leave at least `tail` tokens to compute."""
    blocks = reusable_blocks(prompt, block_tokens=block, tail_tokens=tail)
    assert blocks == 0 or prompt - blocks * block >= tail
    assert prompt - (blocks + 1) * block < tail
