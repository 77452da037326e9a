"""What is looked at in a node from outside, whenever it stands still enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pagoda.core.identity import Key
from pagoda.core.outcome import Hit
from pagoda.lab.sim.failure import Check, Failure, ensure
from pagoda.lab.sim.world import BLOCK_BYTES
from pagoda.tiers.sealed import Order

if TYPE_CHECKING:
    import random

    from pagoda.lab.sim.node import Node


def idle(node: Node) -> None:
    """After `settle`: nobody holds anything."""
    ensure(not node.requests.limbo, Check.LIVENESS, "a late read never ended")
    left = len(node.requests.unreleased)
    ensure(left == 0, Check.RELEASE, f"{left} saved blocks were never given back")
    left = len(node.requests.sampling.open)
    ensure(left == 0, Check.RELEASE, f"{left} compared blocks were never given back")
    states = {name: level.state for name, level in node.levels.items()}
    for name, state in (states | {"device": node.memory.blocks.state}).items():
        leases = state.lease_count()
        ensure(leases == 0, Check.LEASES, f"{name}: idle, with {leases} leases")


def invariants(node: Node) -> None:
    """Every state adds up, by its own sums."""
    try:
        node.store.check_invariants()
        node.memory.blocks.residency.check_invariants()
    except AssertionError as error:
        raise Failure(Check.INVARIANTS, str(error)) from error


def cleared(node: Node) -> None:
    """Nothing that was cleared is found here, unless it was saved again since."""
    for key in node.requests.cleared:
        for name, level in node.levels.items():
            gone = level.state.slot_of(key) is None
            ensure(gone, Check.CLEARED, f"{name}: a cleared block is found")


def stale(node: Node, rng: random.Random) -> None:
    """Whoever asks a slot for another generation, or for another block, gets nothing."""
    for level in node.levels.values():
        slots = level.state.published_slots()
        if not slots:
            continue
        slot = rng.choice(slots)
        order = level.orders([slot], [key for key in [level.state.key_of(slot)] if key])[0]
        other = Key(bytes(8) + order.key[8:24] + bytes(8))
        for wrong in (
            Order(slot, order.generation - 1, order.key),
            Order(slot, order.generation + 1, order.key),
            Order(slot, order.generation, other),
        ):
            buffer = memoryview(bytearray(b"\xdd" * BLOCK_BYTES))
            outcome = level.sealed.load([wrong], [buffer])[0]
            refused = not isinstance(outcome, Hit) and bytes(buffer) == bytes(BLOCK_BYTES)
            ensure(refused, Check.STALE, f"{level.name}: slot {slot} answered {outcome}")
