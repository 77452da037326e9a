"""Heat: whatever traffic comes, not far below LRU, sound, and of bounded size."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count

import naive_policies as naive
import pytest
from heat_models import chain, ending, request

from pagoda.core.identity import ROOT, Key
from pagoda.core.policy import Hint, Lru, Policy, Request, heat, reuse, sessions, shared
from pagoda.core.policy.belady import Belady
from pagoda.core.policy.density import DensityOrder
from pagoda.core.policy.heat import Heat, Race
from pagoda.core.residency import Residency
from pagoda.core.state import TierState
from pagoda.core.trace import TraceRequest
from pagoda.lab.replay.one_tier import OneTier, key_of

Prompt = tuple[int, ...]

CAPACITY = 40
MARGIN_PCT = 1.0  # below LRU, in points of all tokens, on traces of some thousand requests


def test_the_leader_is_told_by_decayed_hits() -> None:
    """Against sums over all requests so far, a request of a thousand later ones counting half:
    LRU leads until density is ahead by a hundredth of all blocks, and again when it is behind by
    two thousandths."""
    rng = random.Random(7)
    for _ in range(5):
        race, told, density_leads, changes = Race(), [], False, 0
        for number in range(400):
            swing = (10 + number // 10) * (1 if (number // 60) % 2 else -1)
            told.append((50 + rng.randint(0, 20) - swing, 50 + rng.randint(0, 20), 100))
            race.run(told[-1][0], told[-1][1], of=100)
            weights = [0.5 ** ((number - at) / 1000) for at in range(number + 1)]
            ahead = sum(w * (one[0] - one[1]) for w, one in zip(weights, told, strict=True))
            every = sum(w * one[2] for w, one in zip(weights, told, strict=True))
            before = density_leads
            if ahead > 0.01 * every or ahead < -0.002 * every:
                density_leads = ahead > 0
            changes += before != density_leads
            assert race.density_leads == density_leads
        assert changes > 3


def test_nothing_asked_changes_nothing() -> None:
    """Requests without blocks."""
    race = Race()
    race.run(0, 0, of=0)
    assert not race.density_leads


def _loop(blocks: int) -> Iterator[Prompt]:
    """Short prompts that come again and again, in turn: LRU has them all."""
    while True:
        yield from ((number,) for number in range(blocks))


def _scan() -> Iterator[Prompt]:
    """Prompts that never come again."""
    yield from ((number, number + 1, number + 2) for number in count(10_000, 3))


def _mixed(rng: random.Random, sources: Sequence[Iterator[Prompt]]) -> Iterator[Prompt]:
    while True:
        yield next(rng.choice(sources))


def _shifting(rng: random.Random) -> Iterator[Prompt]:
    """A working set that moves on: what was used most is never used again."""
    for number in count():
        yield (100 * (number // 400) + rng.randrange(CAPACITY - 5),)


def _sleepers(rng: random.Random) -> Iterator[Prompt]:
    """First turns are always continued for a while, and then never, in turns of 500."""
    for number in count():
        old = number - 15
        if (number // 500) % 2 == 0 and number % 2 and old > 0:
            yield (50_000 + old - old % 2, 1_000_000 + number)
        else:
            yield (50_000 + number, 60_000_000 + rng.randrange(3))


TRAFFIC: dict[str, Callable[[random.Random], Iterator[Prompt]]] = {
    "a loop": lambda _: _loop(CAPACITY - 2),
    "a loop too long": lambda _: _loop(CAPACITY + 2),
    "scans": lambda _: _scan(),
    "a loop between scans": lambda rng: _mixed(rng, [_loop(CAPACITY // 6), _scan()]),
    "a set that shifts": _shifting,
    "habits that change": _sleepers,
}


@pytest.mark.parametrize("name", TRAFFIC)
def test_it_is_never_far_below_lru(name: str) -> None:
    """On traffic that LRU likes, on traffic that teaches what is then no longer true, and on
    traffic without any reuse."""
    prompts = TRAFFIC[name](random.Random(2))
    traced = [_traced(next(prompts), float(second)) for second in range(2000)]
    ours, lru = _replayed(Heat(CAPACITY), traced), _replayed(Lru(CAPACITY), traced)
    assert ours.hits.token_hit_pct >= lru.hits.token_hit_pct - MARGIN_PCT


def test_a_model_that_is_always_wrong_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hit density that keeps what is oldest and of the least promise never takes the lead."""
    worst = [[float(level + age) for age in range(reuse.BINS)] for level in range(40, 0, -1)]
    monkeypatch.setattr(reuse, "_by_age_alone", lambda: worst)
    monkeypatch.setattr(reuse, "_densities", lambda base: worst)
    prompts = _shifting(random.Random(1))
    traced = [_traced(next(prompts), float(second)) for second in range(2000)]
    ours, lru = _replayed(Heat(CAPACITY), traced), _replayed(Lru(CAPACITY), traced)
    assert ours.hits.hit_tokens == lru.hits.hit_tokens


def test_it_beats_lru_where_there_is_something_to_learn() -> None:
    """Chats that go on beside requests of the same size that nobody continues, told apart by
    their turns: density takes the lead, and hits more."""
    traced = list(_chats_and_strangers(random.Random(3), 3000))
    policy = Heat(CAPACITY)
    ours, lru = _replayed(policy, traced), _replayed(Lru(CAPACITY), traced)
    assert policy.leader == "density"
    assert ours.hits.token_hit_pct > lru.hits.token_hit_pct + 2


def test_the_leader_changes_and_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    """As what is learned turns bad and good again. Requests are open across each change, and
    the tier, the order and its shadow stay sound."""
    monkeypatch.setattr(heat, "_DECAY", 0.5 ** (1 / 200))
    good = reuse._densities
    bad = [[0.0] * reuse.BINS, *[[float(age) for age in range(reuse.BINS)]] * 39]
    tier = Overlapping(Heat(CAPACITY))
    leaders = []
    for phase, densities in enumerate([good, lambda base: bad, good]):
        monkeypatch.setattr(reuse, "_densities", densities)
        for traced in _chats_and_strangers(random.Random(phase), 1500, first=phase * 10**6):
            tier.request(traced)
            if not leaders or leaders[-1] != tier.policy.leader:
                leaders.append(tier.policy.leader)
                assert len(leaders) == 1 or len(tier.opened) > 3
                tier.check()
        tier.check()
    assert leaders == ["lru", "density", "lru", "density"]


@pytest.mark.parametrize("capacity", [3, 10, 30])
def test_it_hits_no_more_than_the_bound(capacity: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever leads."""
    for leads in (False, True):
        monkeypatch.setattr(Race, "run", lambda race, *_, of, to=leads: _set(race, to))
        for seed in range(4):
            traced = naive.requests(seed, 300)
            prompts = [[key_of(block) for block in one.prompt] for one in traced]
            ours = _replayed(Heat(capacity), traced, capacity)
            bound = _replayed(Belady(capacity, prompts), traced, capacity)
            ours.residency.check_invariants()
            assert ours.hits.hit_tokens <= bound.hits.hit_tokens


def test_new_blocks_pass_by_what_is_worth_more() -> None:
    """When density leads, a tier full of chats refuses strangers; blocks that no request asked
    for, such as those that come up from a drive, always find a place."""
    policy = Heat(4)
    model = policy._sessions.model
    model.scores = [[float(level)] * reuse.BINS for level in range(40)]
    policy._race.density_leads = True
    policy.insert([0, 1, 2, 3], chain(1, 2, 3, 4), [ROOT, *chain(1, 2, 3)])
    policy._blocks.begin(chain(1, 2, 3, 4), 30, 0.0)
    for level, admitted in ((1, 0), (30, 0), (31, 3)):
        policy._blocks.begin(chain(5, 6, 7), level, 0.0)
        assert len(policy.admits(chain(5, 6, 7), [ROOT, *chain(5, 6)], 0)) == admitted
        assert len(policy.admits(chain(5, 6, 7), [ROOT, *chain(5, 6)], 2)) == max(2, admitted)
    assert len(policy.admits(chain(8, 9), [ROOT, *chain(8)], 0)) == 2
    policy._race.density_leads = False
    assert len(policy.admits(chain(5, 6, 7), [ROOT, *chain(5, 6)], 0)) == 3


def test_a_request_does_not_displace_what_it_goes_on_from() -> None:
    """Shared blocks that are rarely used are worth what the request that uses them promises.
    Its new blocks are worth no more, and so do not count them among what may go: once they did,
    and took the place of something better."""
    policy = Heat(3)
    policy._sessions.model.scores = [[float(level)] * reuse.BINS for level in range(40)]
    policy._race.density_leads = True
    policy._sessions.shared.used(chain(1), 0.0, own=0)
    policy.insert([0, 1, 2], [*chain(1), *chain(5, 6)], [ROOT, ROOT, *chain(5)])
    policy._blocks.begin(chain(5, 6), 30, 0.0)
    for level in range(1, 30):
        policy._blocks.begin(chain(1, 2, 3), level, 10_000.0 + level)
        assert len(policy.admits(chain(1, 2, 3)[1:], chain(1, 2), 0)) == 0


def test_an_end_without_a_beginning_is_refused() -> None:
    """So is a second one; nothing has changed by then."""
    policy = Heat(4)
    asked = request(chain(1, 2))
    policy.begin(asked)
    policy.end(asked, ending(chain(1, 2)))
    observed = policy._sessions.model._observed
    for stranger in (asked, request(chain(1, 2))):
        with pytest.raises(KeyError):
            policy.end(stranger, ending(chain(1, 2)))
    assert policy._sessions.model._observed == observed


def test_a_long_run_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """After very many requests of which some end early or find no room, nothing is kept but
    what is here, what is open, and as much history as is remembered. Once, a block that a
    request had waited for and never got was waited for ever."""
    monkeypatch.setattr(reuse, "_WINDOW", 100)
    for module in (sessions, shared):
        monkeypatch.setattr(module, "_REMEMBERED", 300)
    rng = random.Random(9)
    tier = Overlapping(Heat(CAPACITY), cut_short=rng)
    for traced in _chats_and_strangers(rng, 4000, pause_s=3.0):
        tier.request(traced)
    tier.finish()
    tier.check()
    policy = tier.policy
    assert policy._open == {}
    assert len(policy._sessions._marks) <= 100
    assert len(policy._sessions._seen) <= 300
    assert len(policy._lru._order) <= CAPACITY
    for blocks in (policy._blocks, *tier.shadows()):
        here = len(blocks.tracked())
        assert blocks._awaited == {}
        assert len(blocks.heat) <= here
        if isinstance(blocks, DensityOrder):
            assert sum(map(len, blocks.uses._aging)) <= 2 * here + 9
            assert len(blocks.children) <= here
            assert len(blocks.warm) <= len(blocks.heat)


class Overlapping:
    """A tier whose requests stay open while others come."""

    def __init__(self, policy: Heat, *, cut_short: random.Random | None = None) -> None:
        self.policy = policy
        self.residency = Residency(TierState("tier", CAPACITY), policy)
        self.opened: list[tuple[Request, list[Key]]] = []
        self._rng = random.Random(6)
        self._cut_short = cut_short

    def request(self, traced: TraceRequest) -> None:
        """One begins, uses what is there, and adds the rest as far as it is admitted; others
        end."""
        keys = [key_of(block) for block in traced.prompt]
        asked = Request(keys=keys, at_s=traced.at_s, tokens=traced.input_tokens, hint=traced.hint)
        self.residency.begin(asked)
        held = self.residency.lease_prefix(keys)
        if self._cut_short and self._cut_short.random() < 0.3:
            self.opened.append((asked, keys[: self._cut_short.randint(0, len(held))]))
        else:
            self._insert(keys[len(held) :], [ROOT, *keys][len(held) : len(keys)])
            self.opened.append((asked, keys))
        self.residency.state.release(held)
        while len(self.opened) > 4 + self._rng.randrange(5):
            self._end(self._rng.randrange(len(self.opened)), traced.at_s)

    def finish(self) -> None:
        while self.opened:
            self._end(0, 0.0)

    def check(self) -> None:
        """Every block has its parent beside it, and all tables add up."""
        self.residency.check_invariants()
        assert (self.policy._shadow is None) == (self.policy.leader == "density")
        for opened in self.policy._open.values():
            for shadow in self.shadows():
                assert opened.shadow in set().union(*shadow.uses._aging)
        for blocks in (self.policy._blocks, *self.shadows()):
            assert sum(use.slots for use in set(blocks.use.values())) == len(blocks.tracked())
            if isinstance(blocks, DensityOrder):
                assert set(blocks.children) == set(blocks.parent.values()) - {ROOT}

    def shadows(self) -> Iterable[DensityOrder]:
        return [self.policy._shadow.order] if self.policy._shadow else []

    def _insert(self, keys: Sequence[Key], parents: Sequence[Key]) -> None:
        state = self.residency.state
        missing = [at for at, wanted in enumerate(keys) if state.slot_of(wanted) is None]
        keys, parents = [keys[at] for at in missing], [parents[at] for at in missing]
        admitted = self.residency.admits(keys, parents)
        slots = self.residency.reserve(len(admitted))
        new = admitted[: len(slots)]
        self.residency.publish(slots, [keys[at] for at in new], [parents[at] for at in new])
        state.release(slots)

    def _end(self, number: int, at_s: float) -> None:
        asked, keys = self.opened.pop(number)
        self.residency.end(asked, ending(keys, at_s))


def _chats_and_strangers(
    rng: random.Random, requests: int, *, first: int = 0, pause_s: float = 1.0
) -> Iterator[TraceRequest]:
    """Nine in ten are strangers, of four blocks; the others are turns of a few chats."""
    fresh = count(first + 1)
    chats = [[next(fresh)] for _ in range(6)]
    for number in range(requests):
        if rng.random() < 0.1:
            chat = rng.choice(chats)
            chat.append(next(fresh))
            prompt = tuple(chat)
            if len(chat) > 5:
                chat[:] = [next(fresh)]
        else:
            prompt = tuple(next(fresh) for _ in range(4))
        yield _traced(prompt, first + number * pause_s)


def _traced(prompt: tuple[int, ...], at_s: float) -> TraceRequest:
    tokens = len(prompt) * naive.BLOCK_TOKENS
    return TraceRequest(
        at_s=at_s, input_tokens=tokens, output_tokens=0, prompt=prompt, hint=Hint.NONE
    )


def _replayed(policy: Policy, traced: Sequence[TraceRequest], capacity: int = CAPACITY) -> OneTier:
    tier = OneTier(policy, capacity=capacity, block_tokens=naive.BLOCK_TOKENS)
    for one in traced:
        tier.replay(one)
    return tier


def _set(race: Race, to: bool) -> None:
    race.density_leads = to
