"""Pins beside a naive model, whatever happens."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from admin_harness import SERVED, AdminHarness
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from pagoda.core.errors import PinRefused
from pagoda.core.events import Overruled
from pagoda.core.holdings import Scope
from pagoda.core.pins import PinLimits, PinWish


class PinsMachine(RuleBasedStateMachine):
    """Pins, requests, ends, clearings and restarts beside plain dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = TemporaryDirectory()
        self.admin = AdminHarness(
            Path(self.directory.name), upper=16, lower=32, limits=PinLimits(automatic=0.125)
        )
        self.ends: dict[str, tuple[int, str]] = {}  # until_ms and salt, by pin

    def teardown(self) -> None:
        self.directory.cleanup()

    @rule(
        first=st.integers(0, 5),
        blocks=st.integers(1, 5),
        owner=st.sampled_from("ab"),
        salt=st.sampled_from(["", "s"]),
        seconds=st.integers(1, 40),
    )
    def pin(self, first: int, blocks: int, owner: str, salt: str, seconds: int) -> None:
        wish = PinWish(owner=owner, expires_s=seconds)
        try:
            id = self.admin.admin.pin(
                self.admin.tokens(first, blocks), salt, wish, lambda survives: None
            )
        except PinRefused:
            return
        self.ends[id] = (self.admin.clock.wall_ms() + seconds * 1000, salt)

    @rule(first=st.integers(0, 30), blocks=st.integers(1, 6), salt=st.sampled_from(["", "s"]))
    def use(self, first: int, blocks: int, salt: str) -> None:
        admin = self.admin
        keys = SERVED.keys(admin.tokens(first, blocks), salt)
        admin.admin.pins.used(SERVED.namespace_of(salt), keys)
        pinned = [
            (level, set(level.residency.pinned.keys), set(dict(level.state.published())))
            for level in admin.store.levels()
        ]
        overruled = len(admin.told(Overruled))
        admin.put(admin.tokens(first, blocks), salt=salt)
        admin.settle()
        if len(admin.told(Overruled)) == overruled:
            for level, names, before in pinned:
                still = set(level.residency.pinned.keys) & names & before
                lost = {key for key in still if level.state.slot_of(key) is None}
                assert not lost, f"{level.name}: a pinned block went, and it was not counted"

    @rule(seconds=st.integers(1, 20))
    def wait(self, seconds: int) -> None:
        self.admin.clock.advance(seconds)
        self.admin.settle()

    @rule(owner=st.sampled_from("ab"))
    def unpin(self, owner: str) -> None:
        ids = {one.id for one in self.admin.admin.pins.all() if one.owner == owner}
        assert self.admin.admin.pins.remove(None, owner=owner) == len(ids)
        self.ends = {id: end for id, end in self.ends.items() if id not in ids}

    @rule(salt=st.sampled_from([None, "s"]))
    def clear(self, salt: str | None) -> None:
        self.admin.clear(Scope(salt=salt) if salt else Scope())
        self.ends = {id: e for id, e in self.ends.items() if salt and e[1] != salt}

    @rule(crash=st.booleans())
    def restart(self, crash: bool) -> None:
        self.admin.settle()
        if crash:
            self.admin.open()
        else:
            self.admin.restart()

    @invariant()
    def adds_up(self) -> None:
        now_ms = self.admin.clock.wall_ms()
        expected = {id: end for id, (end, _) in self.ends.items() if end > now_ms}
        found = {one.id: round(one.until_s * 1000) for one in self.admin.admin.pins.all()}
        assert found == expected, "pins that are over, or gone before their time"
        self.admin.admin.pins.check_invariants()
        self.admin.store.check_invariants()


def test_pins_add_up_whatever_happens() -> None:
    """Random walks: ends are kept, budgets hold, restarts lose nothing that was settled."""
    run_state_machine_as_test(
        PinsMachine, settings=settings(max_examples=60, stateful_step_count=25, deadline=None)
    )
