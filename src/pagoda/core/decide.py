"""Decisions: from residency state and a request to a plan. Pure; nothing here mutates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pagoda.core.identity import Key
from pagoda.core.keyindex import Leases
from pagoda.core.policy import Policy
from pagoda.core.state import TierState


@dataclass(frozen=True, slots=True)
class Fetch:
    """Read a run of consecutive blocks of a prefix from one tier in one order.

    `first` is the position of the run in the prefix asked for; `slots` hold its blocks.
    """

    tier: int
    first: int
    slots: tuple[int, ...]


def plan_fetches(
    tiers: Sequence[TierState], keys: Sequence[Key], *, run_blocks: Sequence[int]
) -> list[Fetch]:
    """How to read the longest prefix of `keys` that the tiers hold together.

    Each block comes from the first tier of `tiers` (fastest first) that holds it; runs of
    one tier are cut at `run_blocks[tier]` blocks, so that several threads can share them.
    """
    locations = _locations(tiers, keys)
    fetches: list[Fetch] = []
    first = 0
    while first < len(locations):
        tier = locations[first][0]
        end = first
        while end < len(locations) and locations[end][0] == tier and end - first < run_blocks[tier]:
            end += 1
        fetches.append(Fetch(tier, first, tuple(slot for _, slot in locations[first:end])))
        first = end
    return fetches


def resident_prefix(tiers: Sequence[TierState], keys: Sequence[Key]) -> int:
    """How many leading blocks the tiers hold together."""
    return len(_locations(tiers, keys))


def make_room(
    state: TierState, policy: Policy, count: int, *, pinned: Leases | None = None
) -> list[int]:
    """The victims whose eviction lets `count` slots be reserved, as far as leases allow; pinned
    ones go last."""
    missing = count - state.free_count()
    return choose(policy, missing, state.leases, pinned=pinned) if missing > 0 else []


def choose(
    policy: Policy, count: int, leases: Leases, *, pinned: Leases | None = None
) -> list[int]:
    """Up to `count` victims.

    `pinned` is not 0 for slots that go only when nothing else can: the policy is asked as if
    they were leased, and what it then lacks it names without them.
    """
    named = policy.victims(count, leases)
    if pinned is None or not pinned[named].any():
        return named
    spared = policy.victims(count, leases + pinned)
    chosen = set(spared)
    rest = [slot for slot in named if slot not in chosen]
    return spared + rest[: count - len(spared)]


def reusable_blocks(prompt_tokens: int, *, block_tokens: int, tail_tokens: int) -> int:
    """How many leading blocks of a prompt may come from a cache.

    At least `tail_tokens` are left to compute: the answer needs the last token's logits, and
    a tail of that size runs through the same kernels as a cold run.
    """
    return max(0, (prompt_tokens - tail_tokens) // block_tokens)


def _locations(tiers: Sequence[TierState], keys: Sequence[Key]) -> list[tuple[int, int]]:
    """(tier, slot) of each block of the longest resident prefix."""
    found: list[tuple[int, int]] = []
    for key in keys:
        for tier, state in enumerate(tiers):
            slot = state.slot_of(key)
            if slot is not None:
                found.append((tier, slot))
                break
        else:
            break
    return found
