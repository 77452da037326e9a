"""The sampled check in an engine: requests that compute again what is cached."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from engine_harness import BLOCK_TOKENS, EngineHarness, expected_answer, prompt_of
from store_harness import NAMESPACE, blocks_of, check_plan

from pagoda.core.checking import Verdict
from pagoda.core.events import Barred, Checked
from pagoda.core.identity import Key, NamespaceId, chain
from pagoda.engine.scheduler import Limits
from pagoda.store.checks import CheckPlan

PROMPT = prompt_of(90)
OTHERS = NamespaceId(b"o" * 32)


def engine(plan: CheckPlan | None = None, **more: object) -> EngineHarness:
    """An engine that checks every request, or as planned."""
    return EngineHarness(check=plan or check_plan(), **more)


def ask(
    harness: EngineHarness, name: str, prompt: Sequence[int] = PROMPT, **more: object
) -> list[int]:
    """A request's answer."""
    harness.ask(name, prompt, **more)
    harness.run()
    return harness.answers[name]


def told(harness: EngineHarness, kind: type) -> list[object]:
    return [event for event in harness.io.events if isinstance(event, kind)]


def verdicts(harness: EngineHarness) -> list[tuple[str, Verdict]]:
    return [(one.tier, one.verdict) for one in told(harness, Checked)]


def keys_of_prompt(prompt: Sequence[int] = PROMPT) -> list[Key]:
    return chain(NAMESPACE, list(prompt), block_tokens=BLOCK_TOKENS)


def poison(harness: EngineHarness, position: int, prompt: Sequence[int] = PROMPT) -> None:
    """Put another block's bytes, soundly sealed, where a block of the prompt should be: in every
    tier, and nothing of the prompt on the device."""
    keys = keys_of_prompt(prompt)[: (len(prompt) - 16) // BLOCK_TOKENS]
    ask(harness, f"before-{len(harness.answers)}", prompt)
    harness.device.forget()
    for level in harness.io.store.levels():
        harness.io.store.discard(level, [level.state.slot_of(keys[position])])
    harness.io.settle()
    wrong = replace(blocks_of(keys)[position], payload=blocks_of([keys[position]])[0].payload)
    harness.io.store.save([wrong], lambda block: None)
    harness.io.settle()
    assert harness.io.store.match(keys) == len(keys)


def test_without_a_check_a_wrong_block_is_served() -> None:
    """The twin of the tests below: sound bytes under a wrong name change the answer, unseen."""
    harness = EngineHarness()
    poison(harness, 3)
    assert ask(harness, "later") != expected_answer(PROMPT, 5)
    assert told(harness, Barred) == []


@pytest.mark.parametrize("position", range(4))
def test_a_wrong_block_is_found_and_nobody_is_given_it_again(position: int) -> None:
    """The request that finds it has the right answer, and so have all after it."""
    harness = engine()
    poison(harness, position)
    assert ask(harness, "first") == expected_answer(PROMPT, 5)
    assert len(told(harness, Barred)) == 1
    assert ("lower", Verdict.WRONG) in verdicts(harness)
    for name in ("second", "third"):
        sequence = harness.ask(name, PROMPT)
        harness.run()
        assert harness.answers[name] == expected_answer(PROMPT, 5)
        assert sequence.cached_restored == 0


def test_a_checked_tail_condemns_a_wrong_beginning() -> None:
    """Only the last block is computed again; those before it are used as they are. What is
    computed behind a wrong block is not what was stored behind the right one."""
    harness = engine(check_plan(most_blocks=1))
    poison(harness, 2)
    ask(harness, "first")
    assert len(told(harness, Barred)) == 1
    assert ask(harness, "second") == expected_answer(PROMPT, 5)


def test_a_copy_that_the_device_spoiled_is_found() -> None:
    """The tiers' copies are right, the device's is not: it is compared as well, and dropped."""
    harness = engine()
    ask(harness, "before")
    block = harness.device.state.slot_of(keys_of_prompt()[1])
    assert block is not None
    harness.runner.view(block)[7] ^= 0xFF
    assert ask(harness, "checked") == expected_answer(PROMPT, 5)
    assert ("device", Verdict.WRONG) in verdicts(harness)
    assert ask(harness, "after") == expected_answer(PROMPT, 5)


def test_requests_under_way_compute_anew_what_they_had() -> None:
    """One runs on wrong blocks when another finds them: it starts over, and what it says from
    then on is right; a request of another namespace goes on undisturbed."""
    harness = EngineHarness()
    poison(harness, 3)
    running = harness.ask("running", PROMPT, tokens=40)
    aside = harness.ask("aside", prompt_of(50, salt=8), tokens=40, namespace=OTHERS)
    while len(harness.answers.get("running", [])) < 3:
        harness.turn()
    assert running.cached_restored > 0
    assert harness.answers["running"][:3] != expected_answer(PROMPT, 3)
    harness.io.store.checks.start(check_plan(), most_bytes=1 << 20, deadline_s=30.0)
    harness.ask("checker", PROMPT, tokens=1)
    while not told(harness, Barred):
        assert harness.turn()
    said = list(harness.answers["running"])
    assert 3 <= len(said) < 40
    before = aside.admissions
    harness.run()
    state = expected_answer([*PROMPT, *said], 40 - len(said))
    assert harness.answers["running"] == said + state
    assert running.admissions == 2
    assert aside.admissions == before == 1
    assert harness.answers["aside"] == expected_answer(prompt_of(50, salt=8), 40)


@pytest.mark.parametrize("seed", range(15))
def test_honest_blocks_are_never_accused(seed: int) -> None:
    """Many requests that share prefixes, with little memory, preemption and eviction, each
    checked with some probability: every answer is right, and no block is called wrong."""
    rng = random.Random(seed)
    limits = Limits(max_sequences=4, chunk_tokens=64)
    harness = engine(
        check_plan(rate=0.5, most_blocks=rng.choice([1, 3, 100])),
        blocks=rng.choice([14, 24]),
        upper=rng.choice([6, 40]),
        lower=rng.choice([20, 64]),
        limits=limits,
        seed=seed,
    )
    expected: dict[str, list[int]] = {}
    for number in range(40):
        prompt = prompt_of(rng.randrange(20, 120), salt=rng.randrange(3))
        if rng.random() < 0.5:
            prompt = prompt[: rng.randrange(17, len(prompt) + 1)] + prompt_of(9, salt=number)
        name, tokens = f"r{number}", rng.randrange(1, 12)
        harness.ask(name, prompt, tokens=tokens)
        expected[name] = expected_answer(prompt, tokens)
        for _ in range(rng.randrange(6)):
            harness.turn(io_jobs=rng.randrange(4))
        if rng.random() < 0.2:
            harness.device.forget()
    harness.run()
    assert harness.answers == expected
    found = {verdict for _, verdict in verdicts(harness)}
    assert Verdict.EQUAL in found
    assert Verdict.WRONG not in found
    assert told(harness, Barred) == []
