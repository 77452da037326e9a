"""A simulated tier keeps account of what its faults did, whenever the process ends."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from pagoda.core.errors import TierFault
from pagoda.lab.sim.drive import Drive, Label
from pagoda.lab.sim.failure import Check, Failure, Killed
from pagoda.lab.sim.restart import Restart
from pagoda.lab.sim.tier import Flight, SimTier
from pagoda.lab.sim.world import BLOCK_BYTES, World
from pagoda.testing.clock import FakeClock
from pagoda.tiers.sealed import SealedTier


class Host:
    """Interrupts commits; the second interrupt of one does something to it."""

    def __init__(self) -> None:
        self.flights: list[Flight] = []
        self.committing = False
        self.then: Callable[[], None] = lambda: None
        self._interrupts = 0

    def due(self) -> bool:
        return self.committing

    def strike(self) -> None:
        self._interrupts += 1
        if self._interrupts == 2:
            self.then()

    def committed(self, tier: SimTier, labels: Sequence[Label]) -> None:
        raise AssertionError("no commit of these tests comes to its end")


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "failed"])
def test_a_lost_write_is_known_of_when_half_a_commit_is_done(killed: bool) -> None:
    """The header stands over bytes that never arrived: the fault's doing, not the store's."""
    world, host = World(random.Random(0)), Host()
    drive = Drive("drive0", 2, clock=FakeClock(), rng=random.Random(0))
    tier = SimTier(drive, host)
    tier.faults.lose_write.add(0)

    def struck() -> None:
        if killed:
            raise Killed
        tier.faults.commit_error = TierFault("no more", tier="drive0", errno=5)

    host.then = struck
    _store(tier, host, world)
    assert [label.slot for label in drive.labels()] == [0], "one header of two was written"
    assert drive.suspects == {drive.labels()[0].key}
    Restart([drive], world)
    drive.damaged.clear()
    with pytest.raises(Failure) as found:
        Restart([drive], world)
    assert found.value.check is Check.RESTART


def _store(tier: SimTier, host: Host, world: World) -> None:
    """Store two blocks, of which the second does not get its header."""
    prompt = next(p for n in range(9) if len((p := world.prompt(0, n)).keys) > 1)
    payloads = [memoryview(bytearray(truth)) for truth in prompt.truths[:2]]
    assert all(len(payload) == BLOCK_BYTES for payload in payloads)
    blocks = [prompt.block(at, payload).born(1) for at, payload in enumerate(payloads)]
    sealed = SealedTier(tier)
    commit = tier.commit

    def interrupted(slots: Sequence[int], headers: Sequence[bytes]) -> None:
        host.committing = True
        commit(slots, headers)

    tier.commit = interrupted  # type: ignore[method-assign]
    with pytest.raises((Killed, TierFault)):
        sealed.store([0, 1], [block.seal(generation=1) for block in blocks], payloads)
