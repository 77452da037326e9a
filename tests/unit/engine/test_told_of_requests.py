"""Every tier's policy hears of each request once: that it begins, and that it is over."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest
from engine_harness import BLOCK_TOKENS, EngineHarness, prompt_of

from pagoda.core.identity import Key
from pagoda.core.policy import DEFAULT, REGISTRY, Ending, Hint, Lru, Request
from pagoda.engine.scheduler import Limits


class Told(Lru):
    """Least recently used, and what it was told of requests."""

    def __init__(self, slots: int) -> None:
        super().__init__(slots)
        self.begun: list[Request] = []
        self.over: dict[Request, Ending] = {}

    def begin(self, request: Request) -> None:
        """Once each."""
        assert request not in self.begun, "a request begins twice"
        self.begun.append(request)

    def end(self, request: Request, ending: Ending) -> None:
        """Once each, after its beginning."""
        assert request in self.begun, "what never began ends"
        assert request not in self.over, "a request ends twice"
        self.over[request] = ending


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Told]]:
    """The policies of the tiers and of the device, which is made last."""
    made: list[Told] = []

    def make(slots: int) -> Told:
        made.append(Told(slots))
        return made[-1]

    monkeypatch.setitem(REGISTRY, DEFAULT, make)
    return made


def blocks_of(harness: EngineHarness, tier: int, keys: Sequence[Key]) -> list[int | None]:
    """Where a level holds blocks."""
    state = harness.io.store.levels()[tier].state
    return [state.slot_of(key) for key in keys]


def test_a_request_is_told_with_its_blocks(told: list[Told]) -> None:
    """When it comes, the whole blocks of its prompt; at its end those of its answer as well."""
    harness = EngineHarness()
    prompt = prompt_of(40)
    harness.io.clock.advance(3.0)
    sequence = harness.ask("a", prompt, tokens=30, hint=Hint.TOOL)
    harness.io.clock.advance(2.0)
    harness.run()
    assert len(told) == 3
    for policy in told:
        (request,) = policy.begun
        assert list(request.keys) == sequence.keys_to(40 // BLOCK_TOKENS)
        assert (request.at_s, request.tokens, request.hint) == (1003.0, 40, Hint.TOOL)
        ending = policy.over[request]
        assert list(ending.keys) == sequence.keys_to((40 + 30 - 1) // BLOCK_TOKENS)
        assert (ending.at_s, ending.output_tokens, ending.hint) == (1005.0, 30, Hint.TOOL)


def test_what_ended_is_dropped_from_its_tail(told: list[Told]) -> None:
    """In every tier the last block of the chain is the first to go, whatever came before."""
    harness = EngineHarness()
    for name in ("a", "b"):
        harness.ask(name, prompt_of(100, salt=ord(name)), tokens=20)
        harness.run()
    for policy, state in zip(
        told, [*(v.state for v in harness.io.store.levels()), harness.device.state], strict=True
    ):
        order = [state.key_of(slot) for slot in policy.victims(100, state.leases)]
        chains = [list(policy.over[request].keys) for request in policy.begun]
        assert order == [key for chain in chains for key in reversed(chain)]


@pytest.mark.parametrize("seed", range(6))
def test_every_beginning_has_one_end(told: list[Told], seed: int) -> None:
    """Also of requests that are preempted, restored late, cancelled while they wait, restore or
    run, and those that come back: in every tier, each once. The sums are checked every turn."""
    rng = random.Random(seed)
    harness = EngineHarness(
        blocks=14, upper=24, lower=40, limits=Limits(max_sequences=4, chunk_tokens=64), seed=seed
    )
    asked = 0
    for _ in range(250):
        if rng.random() < 0.3 and len(harness.live) < 7:
            shared = rng.randint(0, 3)
            prompt = prompt_of(rng.randint(1, 100), salt=shared)
            harness.ask(f"r{asked}", prompt, tokens=rng.randint(1, 60))
            asked += 1
        if harness.live and rng.random() < 0.08:
            harness.cancel(rng.choice(sorted(harness.live)))
        if rng.random() < 0.05:
            harness.io.clock.advance(3.0)  # what is being restored is late
        harness.turn(io_jobs=rng.randint(0, 6))
    harness.run()
    for policy in told:
        assert set(policy.over) == set(policy.begun)
        assert policy.begun == told[0].begun
    assert 0 < len(told[0].begun) <= asked


def test_a_request_that_never_ran_was_never_told(told: list[Told]) -> None:
    """One that is cancelled before the scheduler looks at it asked for no block."""
    harness = EngineHarness()
    harness.ask("a", prompt_of(40))
    harness.cancel("a")
    harness.run()
    assert not any(policy.begun for policy in told)


def test_an_end_that_is_forgotten_is_noticed() -> None:
    """Once nothing runs any more, a request that is still open is an error."""
    harness = EngineHarness()
    sequence = harness.ask("a", prompt_of(40))
    harness.turn()
    sequence.visit = None  # whoever loses it cannot end it
    with pytest.raises(AssertionError, match="open"):
        harness.run()


def test_blocks_of_a_running_request_stay_in_memory() -> None:
    """While it runs, other requests push out each other's blocks, not those that its next ones
    will follow; when it has ended it is one of many again."""
    harness = EngineHarness(blocks=64, upper=8, lower=0)
    long = harness.ask("long", prompt_of(64), tokens=100)
    for _ in range(5):
        harness.turn()
    mine = long.keys_to(4)
    for number in range(6):
        harness.ask(f"r{number}", prompt_of(60, salt=number + 1), tokens=2)
        for _ in range(6):
            harness.turn()
        assert None not in blocks_of(harness, 0, mine)
    harness.run()
    for number in range(6, 20):
        harness.ask(f"r{number}", prompt_of(60, salt=number + 1), tokens=2)
        harness.run()
    assert None in blocks_of(harness, 0, mine)
