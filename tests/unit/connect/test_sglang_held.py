"""Pages set aside for those that a stuck thread may still touch, against a naive model."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from sglang_fakes import HostPool

from pagoda.connect.sglang.held import GuardedPool, aside_of

_TOKENS, _PAGES, _ASIDE = 4, 40, 6


class Io:
    """I/O on a page that ends when it is told to."""

    def __init__(self, page: int) -> None:
        self.page = page
        self.over = False

    def ended(self) -> bool:
        return self.over


class World:
    """A guarded pool beside one that nobody guards and that has as many pages fewer: SGLang, which
    decides by how many are free, must not be able to tell them apart."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.pool = HostPool([64], pages=_PAGES, tokens=_TOKENS)
        self.twin = HostPool([64], pages=_PAGES - _ASIDE, tokens=_TOKENS)
        self.guard = GuardedPool(self.pool, tokens=_TOKENS, aside=_ASIDE)
        self.owned: list[tuple[int, Any]] = []  # page, and the twin's indices for it
        self.flying: list[Io] = []

    def alloc(self) -> None:
        count = self.rng.randint(1, 6)
        taken, other = self.pool.alloc(count * _TOKENS), self.twin.alloc(count * _TOKENS)
        assert (taken is None) == (other is None)
        if taken is not None:
            pages = [int(index) // _TOKENS for index in taken[::_TOKENS]]
            assert not {io.page for io in self.flying} & set(pages), "a page that I/O touches"
            self.owned += zip(pages, other.split(_TOKENS), strict=True)

    def free(self) -> None:
        self.rng.shuffle(self.owned)
        count = self.rng.randint(0, len(self.owned))
        going, self.owned = self.owned[:count], self.owned[count:]
        if going:
            indices = [page * _TOKENS + i for page, _ in going for i in range(_TOKENS)]
            assert self.pool.free(torch.tensor(indices)) == len(indices)
            self.twin.free(torch.cat([indices for _, indices in going]))

    def move(self) -> None:
        """A call of a backend on some pages, of which some are still touched when it ends."""
        some = self.rng.sample(self.owned, min(len(self.owned), self.rng.randint(0, 4)))
        some = some[: self.guard.begin(len(some))]
        started = [Io(page) for page, _ in some]
        for io in started:
            io.over = self.rng.random() < 0.5
        self.flying += [io for io in started if not io.over]
        indices = [io.page * _TOKENS + i for io in started for i in range(_TOKENS)]
        self.guard.end(torch.tensor(indices, dtype=torch.int64), [io.ended for io in started])

    def land(self) -> None:
        for io in self.rng.sample(self.flying, self.rng.randint(0, len(self.flying))):
            io.over = True
        self.flying = [io for io in self.flying if not io.over]
        self.guard.settle()

    def clear(self) -> None:
        self.pool.clear()
        self.twin.clear()
        self.owned = []

    def check(self) -> None:
        assert self.pool.available_size() == self.twin.available_size()
        assert {io.page for io in self.flying} <= set(self.guard._held)
        assert len(self.guard) <= _ASIDE


@pytest.mark.parametrize("seed", range(30))
def test_no_page_that_io_touches_is_given_away_and_none_is_missing(seed: int) -> None:
    """Whatever SGLang and the drives do, as many pages are free as without holding any, and none
    of them is touched by I/O that began before."""
    world = World(seed)
    steps: list[Callable[[], None]] = [world.alloc] * 4 + [world.free] * 3
    steps += [world.move] * 4 + [world.land] * 3 + [world.clear]
    for _ in range(200):
        world.rng.choice(steps)()
        world.check()
    for io in world.flying:
        io.over = True
    world.guard.settle()
    assert len(world.guard) == 0
    assert world.guard.begin(_ASIDE) == _ASIDE // 2  # no more than one of two windows
    world.guard.end(torch.empty(0, dtype=torch.int64), [])


def test_a_page_that_two_reads_touch_is_held_until_both_have_ended() -> None:
    """Pools derived from another have its indices: the later of two ends the hold."""
    pool = HostPool([64], pages=_PAGES, tokens=_TOKENS)
    guard = GuardedPool(pool, tokens=_TOKENS, aside=_ASIDE)
    indices = pool.alloc(_TOKENS)
    first, second = Io(0), Io(0)
    for io in (first, second):
        assert guard.begin(1) == 1
        guard.end(indices, [io.ended])
    pool.free(indices)
    for io, left in ((first, 1), (second, 0)):
        io.over = True
        guard.settle()
        assert len(guard) == left
    assert guard.begin(3) == 3


def test_leaving_gives_back_what_was_set_aside() -> None:
    """Afterwards the pool is as it was before, but not while a page is held."""
    pool = HostPool([64], pages=_PAGES, tokens=_TOKENS)
    guard = GuardedPool(pool, tokens=_TOKENS, aside=_ASIDE)
    indices, io = pool.alloc(_TOKENS), Io(0)
    guard.begin(1)
    guard.end(indices, [io.ended])
    pool.free(indices)
    assert not guard.leave()
    io.over = True
    guard.settle()
    assert guard.leave()
    assert pool.available_size() == pool.size
    assert not {"free", "clear"} & set(vars(pool))
    assert guard.begin(1) == 0


def test_as_many_are_set_aside_as_two_windows_need() -> None:
    """But a sixteenth of a pool at most, and none where that is less than two."""
    assert aside_of(10_000, 1 << 20) == 128
    assert aside_of(64, 1 << 20) == 4
    assert aside_of(31, 1 << 20) == 0
