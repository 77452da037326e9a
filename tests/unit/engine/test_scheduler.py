"""The scheduler: right answers whatever is cached, shared, preempted, late or corrupt."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from engine_harness import BLOCK_TOKENS, EngineHarness, expected_answer, prompt_of

from pagoda.core.events import Preempted
from pagoda.core.identity import NamespaceId
from pagoda.engine.scheduler import CHUNK_MULTIPLE, TAIL_TOKENS, Limits
from pagoda.engine.sequence import Phase


def test_one_request_is_answered() -> None:
    """Prefill in chunks, then decoding, gives what the model gives."""
    engine = EngineHarness()
    engine.ask("a", prompt_of(200), tokens=40)
    engine.run()
    assert engine.answers["a"] == expected_answer(prompt_of(200), 40)
    assert engine.runner.tokens_computed == 200 + 39


def test_chunks_end_on_multiples_of_64() -> None:
    """Kernels see the same tiles whatever was cached before a chunk."""
    engine = EngineHarness(blocks=40, limits=Limits(max_sequences=4, chunk_tokens=128))
    engine.ask("a", prompt_of(16 * 5), tokens=1)
    engine.run()
    engine.ask("b", prompt_of(16 * 5) + prompt_of(300, salt=1), tokens=1)
    engine.run()
    prefill = [s for s in engine.runner.segments if len(s.tokens) > 1]
    assert all(s.want_logits or s.end % CHUNK_MULTIPLE == 0 for s in prefill)
    assert any(s.start % CHUNK_MULTIPLE for s in prefill), "one started behind a cached prefix"


def test_a_second_request_shares_the_prefix() -> None:
    """Cached blocks are leased, not computed; at least a tail is left to compute."""
    engine = EngineHarness()
    first = engine.ask("a", prompt_of(160), tokens=2)
    engine.run()
    second = engine.ask("b", prompt_of(160), tokens=2)
    engine.run()
    assert engine.answers["b"] == engine.answers["a"]
    assert (first.cached_device, second.cached_device) == (0, 144)
    assert 160 - second.cached_device >= TAIL_TOKENS
    assert engine.runner.tokens_computed == 161 + 17


def test_running_requests_share_blocks_by_reference() -> None:
    """Two requests at a time with one prefix need little more room than one."""
    engine = EngineHarness(blocks=16)
    engine.ask("a", prompt_of(160), tokens=30)
    for _ in range(4):
        engine.turn()
    engine.ask("b", prompt_of(160), tokens=30)
    engine.turn()
    engine.turn()
    shared = set(engine.live["a"].blocks) & set(engine.live["b"].blocks)
    assert len(shared) == 9
    engine.run()
    assert engine.answers["a"] == engine.answers["b"] == expected_answer(prompt_of(160), 30)


def test_other_tenants_share_nothing() -> None:
    """Equal tokens in another namespace are computed anew."""
    engine = EngineHarness()
    engine.ask("a", prompt_of(160))
    engine.run()
    other = engine.ask("b", prompt_of(160), namespace=NamespaceId(bytes([7]) * 32))
    engine.run()
    assert other.cached_device == other.cached_restored == 0
    assert engine.answers["b"] == engine.answers["a"]


def test_a_prefix_is_restored_after_the_device_forgot_it() -> None:
    """What the lower tiers hold is read back, verified, and gives the same answer."""
    engine = EngineHarness()
    engine.ask("a", prompt_of(200), tokens=6)
    engine.run()
    assert engine.device.forget() == 12
    computed = engine.runner.tokens_computed
    again = engine.ask("b", prompt_of(200), tokens=6)
    engine.run()
    assert again.cached_restored == 176
    assert engine.runner.tokens_computed - computed == 200 - 176 + 5
    assert engine.answers["b"] == engine.answers["a"]


@pytest.mark.parametrize("bad", [0, 5, 10])
def test_a_corrupt_block_is_recomputed(bad: int) -> None:
    """The prefix before it is used; it and what follows are computed; the answer is the same."""
    engine = EngineHarness()
    sequence = engine.ask("a", prompt_of(200), tokens=6)
    engine.run()
    engine.device.forget()
    engine.io.upper.faults.flip_on_read.add(engine.io.slot("upper", sequence.keys[bad]))
    again = engine.ask("b", prompt_of(200), tokens=6)
    engine.run()
    assert again.cached_restored == bad * BLOCK_TOKENS
    assert engine.answers["b"] == engine.answers["a"]


def test_a_late_read_does_not_hold_the_request() -> None:
    """At the deadline the prompt is computed into other blocks; the late ones come back later."""
    engine = EngineHarness()
    engine.ask("a", prompt_of(200), tokens=6)
    engine.run()
    engine.device.forget()
    late = engine.ask("b", prompt_of(200), tokens=6)
    engine.turn(io_jobs=0)
    assert late.phase is Phase.RESTORING
    read = engine.io.upper.inner.read

    def hang(slots: Sequence[int], into: Sequence[memoryview]) -> list[int]:
        engine.io.clock.advance(3)
        while not engine.scheduler.idle:
            engine.turn(io_jobs=0)
        assert engine.answers["b"] == engine.answers["a"]
        assert engine.device.state.lease_count() > 0, "late blocks are still taken"
        return read(slots, into)

    engine.io.upper.inner.read = hang
    assert engine.io.executor.step(), "the read is taken up"
    engine.turn()
    engine.io.settle()
    engine.turn()
    assert engine.device.state.lease_count() == 0


def test_a_stuck_drive_does_not_eat_the_pool() -> None:
    """With every I/O thread stuck, each restore after them kept its blocks of the pool until
    no request could be admitted any more. Reads that wait behind a stuck drive give them back,
    and the answers are computed."""
    engine = EngineHarness(blocks=24)
    prompts = [prompt_of(200, salt=salt) for salt in range(4)]
    for salt, prompt in enumerate(prompts):
        engine.ask(f"first {salt}", prompt, tokens=6)
        engine.run()
    engine.device.forget()
    for salt, prompt in enumerate(prompts):
        name = f"again {salt}"
        engine.ask(name, prompt, tokens=6)
        engine.turn(io_jobs=0)
        engine.io.executor.hold()
        engine.io.clock.advance(100)  # the deadline, and whatever rest the tier was given
        for _ in range(200):
            engine.turn(io_jobs=0)
        assert engine.answers.get(name) == engine.answers[f"first {salt}"]
        engine.io.executor.hold()
        engine.device.forget()
    engine.io.executor.unhold()
    engine.run()


def test_cancelling_during_a_restore_returns_its_blocks() -> None:
    """The blocks come back when the I/O that may still write to them has ended, not before."""
    engine = EngineHarness()
    engine.ask("a", prompt_of(200), tokens=2)
    engine.run()
    engine.device.forget()
    engine.ask("b", prompt_of(200), tokens=2)
    engine.turn(io_jobs=0)
    taken = set(engine.live["b"].blocks[:11])
    engine.cancel("b")
    assert engine.device.reserve(24) is None, "late blocks are not free"
    engine.turn()
    engine.turn()
    spare = engine.device.reserve(24)
    assert spare is not None
    assert taken <= set(spare)
    engine.device.give_back(spare)


def test_preemption_spills_instead_of_recomputing() -> None:
    """When blocks run out the youngest waits; later it is restored, and no answer changes."""
    engine = EngineHarness(blocks=24, upper=128)
    prompts = {name: prompt_of(100, salt=i) for i, name in enumerate("abcd")}
    for name, prompt in prompts.items():
        engine.ask(name, prompt, tokens=60)
    engine.run()
    assert any(isinstance(event, Preempted) for event in engine.events)
    for name, prompt in prompts.items():
        assert engine.answers[name] == expected_answer(prompt, 60)
    assert "a" not in {e.request_id for e in engine.events if isinstance(e, Preempted)}, (
        "the oldest is never the one that waits"
    )
    without = sum(len(p) + 59 for p in prompts.values())
    preemptions = sum(isinstance(event, Preempted) for event in engine.events)
    assert engine.runner.tokens_computed - without <= preemptions * (TAIL_TOKENS + BLOCK_TOKENS)


def test_preemption_without_lower_tiers_recomputes() -> None:
    """With nowhere to spill to, the answers are still right."""
    engine = EngineHarness(blocks=20, upper=0, lower=0)
    prompts = {name: prompt_of(100, salt=i) for i, name in enumerate("abc")}
    for name, prompt in prompts.items():
        engine.ask(name, prompt, tokens=60)
    engine.run()
    for name, prompt in prompts.items():
        assert engine.answers[name] == expected_answer(prompt, 60)


def test_admission_is_first_come_first_served() -> None:
    """A big request at the head is not overtaken for ever by small ones behind it."""
    engine = EngineHarness(blocks=16)
    engine.ask("running", prompt_of(100), tokens=20)
    engine.turn()
    engine.ask("big", prompt_of(200, salt=1), tokens=2)
    engine.ask("small", prompt_of(20, salt=2), tokens=2)
    engine.turn()
    assert engine.live["small"].phase is Phase.WAITING
    engine.run()
    assert engine.answers["big"] == expected_answer(prompt_of(200, salt=1), 2)


def test_waiting_for_room_evicts_nothing() -> None:
    """A request that does not fit yet must not empty the cache while it waits, turn after turn."""
    engine = EngineHarness(blocks=16)
    engine.ask("cached", prompt_of(96, salt=9), tokens=1)
    engine.run()
    engine.ask("running", prompt_of(100), tokens=20)
    engine.turn()
    engine.ask("big", prompt_of(200, salt=1), tokens=2)
    engine.turn()
    engine.turn()
    assert engine.live["big"].phase is Phase.WAITING
    assert (
        len(engine.device.state.prefix(engine.ask("probe", prompt_of(96, salt=9)).keys_to(6))) == 6
    )
    engine.run()
    assert engine.answers["big"] == expected_answer(prompt_of(200, salt=1), 2)


def test_a_multi_turn_chat_finds_its_own_answer() -> None:
    """Blocks that hold generated tokens are cached, too."""
    engine = EngineHarness()
    prompt = prompt_of(90)
    engine.ask("one", prompt, tokens=40)
    engine.run()
    longer = prompt + engine.answers["one"] + prompt_of(20, salt=3)
    second = engine.ask("two", longer, tokens=3)
    engine.run()
    assert second.cached_device == (90 + 39) // 16 * 16
    assert engine.answers["two"] == expected_answer(longer, 3)


@pytest.mark.parametrize("seed", range(8))
def test_answers_are_right_under_random_load_and_faults(seed: int) -> None:
    """Random prompts with shared prefixes, cancellations, resets, clears, faults and stuck I/O:
    every answer that is given equals the model's."""
    rng = random.Random(seed)
    engine = EngineHarness(blocks=20, upper=12, lower=40, seed=seed)
    prompts: dict[str, list[int]] = {}
    for number in range(60):
        stem = prompt_of(rng.randint(1, 180), salt=rng.randint(0, 2))
        prompt = stem + prompt_of(rng.randint(0, 40), salt=number % 5)
        prompts[f"r{number}"] = prompt
        engine.ask(f"r{number}", prompt, tokens=rng.randint(1, 30))
        for _ in range(rng.randint(0, 12)):
            _disturb(engine, rng)
            engine.turn(io_jobs=rng.randint(0, 4))
    engine.io.upper.faults.clear()
    engine.io.lower.faults.clear()
    engine.io.executor.unhold()
    engine.run()
    restored = 0
    for name, answer in engine.answers.items():
        assert answer == expected_answer(prompts[name], len(answer)), name
        restored += len(answer)
    assert restored > 200


def _disturb(engine: EngineHarness, rng: random.Random) -> None:
    faults = rng.choice([engine.io.upper, engine.io.lower]).faults
    match rng.randrange(40):
        case 0:
            faults.flip_on_read.add(rng.randrange(12))
        case 1:
            faults.lose_write.add(rng.randrange(12))
        case 2:
            faults.short_read[rng.randrange(12)] = 100
        case 3:
            faults.clear()
        case 4:
            engine.device.forget()
        case 5:
            engine.io.store.clear()
        case 6:
            engine.io.executor.hold()
        case 7:
            engine.io.executor.unhold()
        case 8:
            engine.io.clock.advance(rng.choice([0.5, 3.0, 40.0]))
        case 9 if engine.live:
            engine.cancel(rng.choice(sorted(engine.live)))


def test_the_pretend_runner_notices_wrong_bytes() -> None:
    """The harness itself: a changed byte in a cached block changes the answer."""
    engine = EngineHarness()
    engine.ask("a", prompt_of(160), tokens=6)
    engine.run()
    block = engine.device.state.slot_of(engine.ask("probe", prompt_of(160), tokens=6).keys_to(9)[8])
    assert block is not None
    view = engine.runner.view(block)
    view[-1] ^= 1
    engine.run()
    assert engine.answers["probe"] != engine.answers["a"]


def test_a_request_does_not_wait_for_ever_for_blocks_that_a_stuck_write_holds() -> None:
    """A drive hung in a write, and with it the device blocks of that write. A request that
    needed nearly the whole pool waited for them without end, and every small one behind it."""
    engine = EngineHarness(blocks=24, limits=Limits(max_sequences=8, patience_s=60.0))
    engine.ask("a", prompt_of(200), tokens=2)
    while not engine.scheduler.idle:
        engine.turn(io_jobs=0)
    engine.io.executor.hold()
    big = engine.ask("big", prompt_of(350, salt=1), tokens=2)
    engine.ask("small", prompt_of(20, salt=2), tokens=2)
    engine.turn(io_jobs=0)
    engine.io.clock.advance(59)
    engine.turn(io_jobs=0)
    assert engine.scheduler.starved(engine.io.clock()) is None, "the drive may come back"
    engine.io.clock.advance(2)
    engine.turn(io_jobs=0)
    assert engine.scheduler.starved(engine.io.clock()) is big
    engine.cancel("big")
    for _ in range(4):
        engine.turn(io_jobs=0)
        assert engine.scheduler.starved(engine.io.clock()) is None
    assert engine.answers["small"] == expected_answer(prompt_of(20, salt=2), 2)
    engine.io.executor.unhold()
    engine.run()


def test_a_request_that_waits_for_running_ones_is_not_starved() -> None:
    """A long answer may hold the pool for minutes; who waits behind it waits in order."""
    engine = EngineHarness(blocks=24, limits=Limits(max_sequences=8, patience_s=60.0))
    engine.ask("long", prompt_of(200), tokens=100)
    engine.ask("big", prompt_of(300, salt=1), tokens=2)
    for _ in range(50):
        engine.turn()
        engine.io.clock.advance(20)
        assert engine.scheduler.starved(engine.io.clock()) is None
    engine.run()
    assert engine.answers["big"] == expected_answer(prompt_of(300, salt=1), 2)
