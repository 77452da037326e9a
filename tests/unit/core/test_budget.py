"""Write budgets: what may be written, over time and over restarts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.core.budget import (
    DAY_S,
    UNLIMITED_BYTES,
    Account,
    Endurance,
    WriteBudget,
    divided,
    new_account,
    unknown_account,
)

GIB = 1 << 30
DAY_MS = int(DAY_S * 1000)


class Life:
    """A drive's budget over several processes: what was spent, and what is durable."""

    def __init__(self, endurance: Endurance) -> None:
        self.endurance = endurance
        self.now_s = 0.0
        self.durable = new_account(endurance, now_ms=0)
        self.spent = 0
        self.start()

    def start(self) -> None:
        self.budget = WriteBudget(
            self.endurance, self.durable, now_s=self.now_s, now_ms=int(self.now_s * 1000)
        )

    def write(self, size_bytes: int) -> None:
        """As much of it as the budget allows, with grants made durable as a store does."""
        while size_bytes:
            if self.budget.wants(self.now_s):
                self.durable = self.budget.grant(self.now_s, int(self.now_s * 1000))
                self.budget.confirm()
            piece = min(size_bytes, self.budget.usable_bytes)
            if not piece:
                return
            self.budget.spend(piece)
            self.spent += piece
            size_bytes -= piece

    def close(self) -> None:
        self.durable = self.budget.settle(self.now_s, int(self.now_s * 1000))


steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from([1, 4096, GIB // 16, GIB, 8 * GIB])),
        st.tuples(st.just("wait"), st.sampled_from([0.0, 1.0, 3600.0, DAY_S / 2, DAY_S])),
        st.tuples(st.just("crash"), st.just(0)),
        st.tuples(st.just("close"), st.just(0)),
        st.tuples(st.just("fail"), st.just(0)),
    ),
    max_size=30,
)


@given(steps)
def test_no_run_of_writes_and_restarts_exceeds_the_budget(run: list[tuple[str, float]]) -> None:
    """Over any time: at most one day's bytes at once and the rate after it; in all, the total.
    Crashing, closing or a ledger that cannot be written never gives bytes back."""
    life = Life(Endurance(day_bytes=2 * GIB, total_bytes=5 * GIB))
    for action, amount in run:
        if action == "write":
            life.write(int(amount))
        elif action == "wait":
            life.now_s += amount
        elif action == "fail" and life.budget.wants(life.now_s):
            life.budget.grant(life.now_s, int(life.now_s * 1000))
            life.budget.revoke()
        elif action in ("crash", "close"):
            if action == "close":
                life.close()
            life.start()
        assert life.spent <= 2 * GIB * (1 + life.now_s / DAY_S) + 1
        assert life.spent <= 5 * GIB
        assert life.budget.written_bytes >= life.spent


def test_a_day_of_patience_gives_a_day_of_bytes() -> None:
    """The budget is not only kept, it can be used up."""
    life = Life(Endurance(day_bytes=2 * GIB))
    life.write(100 * GIB)
    assert life.spent == 2 * GIB
    life.now_s += DAY_S
    life.write(100 * GIB)
    assert life.spent == pytest.approx(4 * GIB, abs=2)
    life.now_s += 50 * DAY_S
    life.write(100 * GIB)
    assert life.spent == pytest.approx(6 * GIB, abs=4), "what was not used is not saved up"


def test_a_clean_end_gives_back_what_was_granted_and_not_spent() -> None:
    """Restarting a hundred times a day costs nothing."""
    life = Life(Endurance(day_bytes=2 * GIB, total_bytes=4 * GIB))
    for _ in range(100):
        life.write(1)
        life.close()
        life.start()
    life.write(100 * GIB)
    assert life.spent == 2 * GIB


def test_a_crash_loses_one_grant_at_most() -> None:
    """And that grant is a small part of a day."""
    life = Life(Endurance(day_bytes=96 * GIB))
    life.write(1)
    life.start()
    assert life.budget.left_bytes(0.0) >= 96 * GIB - 2 * GIB


@pytest.mark.parametrize("now_ms", [-DAY_MS, 0, DAY_MS * 10_000])
def test_a_wall_clock_that_jumps_gives_no_more_than_a_day(now_ms: int) -> None:
    """A battery ran empty, or someone set the year: at most the bucket fills."""
    account = Account(left_bytes=GIB, written_bytes=0, at_ms=0)
    budget = WriteBudget(Endurance(day_bytes=2 * GIB), account, now_s=0.0, now_ms=now_ms)
    assert budget.left_bytes(0.0) == (2 * GIB if now_ms > 0 else GIB)


def test_a_lost_account_means_an_empty_bucket_and_a_used_up_life() -> None:
    """Nothing can be written at once; with a total, nothing ever; without one, at the rate."""
    endurance = Endurance(day_bytes=2 * GIB, total_bytes=4 * GIB)
    budget = WriteBudget(endurance, unknown_account(endurance, now_ms=0), now_s=0.0, now_ms=0)
    assert budget.left_bytes(10 * DAY_S) == 0
    endurance = Endurance(day_bytes=2 * GIB)
    budget = WriteBudget(endurance, unknown_account(endurance, now_ms=0), now_s=0.0, now_ms=0)
    assert budget.left_bytes(0.0) == 0
    assert budget.left_bytes(DAY_S / 2) == GIB


def test_no_limit_needs_no_grant() -> None:
    """Memory does not wear; what is written is counted all the same."""
    endurance = Endurance()
    budget = WriteBudget(endurance, new_account(endurance, now_ms=0), now_s=0.0, now_ms=0)
    assert budget.unlimited
    assert not budget.wants(0.0)
    assert budget.usable_bytes == UNLIMITED_BYTES
    budget.spend(GIB)
    assert budget.written_bytes == GIB


def test_an_almost_empty_bucket_asks_for_no_crumbs() -> None:
    """Each grant is a write to the drive: one of a few bytes costs more than it gives."""
    life = Life(Endurance(day_bytes=2 * GIB))
    life.write(100 * GIB)
    life.now_s += 0.001
    assert not life.budget.wants(life.now_s)
    life.now_s += 3600
    assert life.budget.wants(life.now_s)


def test_directories_on_one_drive_share_its_budget() -> None:
    """Two slabs on one file system do not wear it twice as fast; a total is a directory's."""
    endurance = Endurance(day_bytes=2 * GIB, total_bytes=GIB)
    assert divided(endurance, 2) == Endurance(day_bytes=GIB, total_bytes=GIB)
    assert divided(Endurance(), 2) == Endurance()


@given(st.integers(1, 1000), st.floats(0, 5))
def test_the_pace_spends_what_the_bucket_holds_over_a_day(gib: int, days: float) -> None:
    """A full bucket allows two days' bytes in one, an empty one what fills it."""
    endurance = Endurance(day_bytes=gib * GIB)
    now_ms = int(days * DAY_MS)
    full = WriteBudget(endurance, new_account(endurance, now_ms=0), now_s=0.0, now_ms=now_ms)
    empty = WriteBudget(
        endurance, Account(left_bytes=0, written_bytes=0, at_ms=0), now_s=0.0, now_ms=0
    )
    assert full.pace(0.0) == pytest.approx(2 * gib * GIB / DAY_S)
    assert empty.pace(0.0) == pytest.approx(gib * GIB / DAY_S)
    assert empty.pace(days * DAY_S) == pytest.approx((1 + min(1, days)) * gib * GIB / DAY_S)


def test_the_pace_of_a_total_is_five_years() -> None:
    """A total is to last as long as drives are meant to; the lower of two paces counts."""
    endurance = Endurance(total_bytes=5 * 365 * GIB)
    budget = WriteBudget(endurance, new_account(endurance, now_ms=0), now_s=0.0, now_ms=0)
    assert budget.pace(0.0) == pytest.approx(GIB / DAY_S)
    both = Endurance(day_bytes=100 * GIB, total_bytes=5 * 365 * GIB)
    budget = WriteBudget(both, new_account(both, now_ms=0), now_s=0.0, now_ms=0)
    assert budget.pace(0.0) == pytest.approx(GIB / DAY_S)
    none = Endurance()
    assert WriteBudget(none, new_account(none, now_ms=0), now_s=0.0, now_ms=0).pace(0.0) is None


@given(st.floats(0.1, 0.9), st.integers(2, 48))
def test_life_is_what_is_left_at_the_pace_so_far(share: float, hours: int) -> None:
    """Writing a share of a day's bytes on each day, a drive that is meant for five years of full
    days lasts five years over the share, less what is gone; before an hour nobody can tell."""
    life = Life(Endurance(day_bytes=100 * GIB))
    for _ in range(hours):
        life.now_s += 3600
        life.write(int(share * 100 * GIB / 24))
    expected = (5 * 365 * 100 * GIB - life.spent) / (life.spent / life.now_s * DAY_S) / 365
    assert life.budget.life_years(life.now_s) == pytest.approx(expected, rel=1e-3)
    assert life.budget.life_years(1800.0) is None
