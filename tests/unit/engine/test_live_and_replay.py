"""The live store and the simulator are one: a recorded run and its replay drop the same blocks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from engine_harness import BLOCK_TOKENS, EngineHarness, prompt_of

from pagoda.core.events import Ended, ignore
from pagoda.core.identity import Key
from pagoda.core.policy import REGISTRY, Hint
from pagoda.core.residency import Residency
from pagoda.core.trace import Trace
from pagoda.engine.api import FinishReason
from pagoda.lab.replay.files import read_trace
from pagoda.lab.replay.one_tier import OneTier, key_of
from pagoda.serve.record import Recorder

HOST_BLOCKS = 48
REQUESTS = 400
SESSIONS = 6  # that are open at a time


class Talks:
    """Conversations that begin with one of a few system prompts and go on turn by turn, between
    long prompts that nobody asks for again: `once` is their share."""

    def __init__(self, seed: int, *, once: float) -> None:
        self.rng = random.Random(seed)
        self._once = once
        self._systems = [prompt_of(16 * n, salt=n) for n in (2, 3, 5)]
        self._open: list[list[int]] = []

    def ask(self) -> list[int]:
        """The next prompt: something new, or what was said before and some more."""
        rng = self.rng
        if rng.random() < self._once:
            return self._words(rng.randint(150, 400))
        if len(self._open) < SESSIONS or rng.random() < 0.1:
            talk = list(rng.choice(self._systems))
        else:
            talk = self._open.pop(rng.randrange(len(self._open)))
        return talk + self._words(rng.randint(1, 60))

    def answered(self, talk: list[int]) -> None:
        """It may go on later."""
        if len(talk) < 250 and self._begun(talk):
            self._open.insert(0, talk)
            del self._open[SESSIONS:]

    def _begun(self, talk: list[int]) -> bool:
        return any(talk[: len(system)] == system for system in self._systems)

    def _words(self, count: int) -> list[int]:
        return [self.rng.randrange(50_000) for _ in range(count)]


class Dropped:
    """The blocks that a tier drops, in order."""

    def __init__(self, residency: Residency) -> None:
        self.keys: list[Key] = []
        retire, state = residency.retire, residency.state

        def watch(slots: Sequence[int]) -> list[int]:
            keys = [state.key_of(slot) for slot in slots]
            self.keys += [key for key in keys if key is not None]
            return retire(slots)

        residency.retire = watch  # type: ignore[method-assign]


def record(path: Path, *, seed: int, once: float) -> tuple[Dropped, list[Ended]]:
    """Run conversations through an engine whose device forgets after each request, and record
    them; the blocks that the host tier dropped, and what ended."""
    harness = EngineHarness(blocks=64, upper=HOST_BLOCKS, lower=0)
    (host,) = harness.io.store.levels()
    dropped = Dropped(host.residency)
    recorder = Recorder(path, clock=harness.io.clock)
    recorder.begin(BLOCK_TOKENS)
    observe = recorder.observing(ignore)
    talks, ended = Talks(seed, once=once), []
    for number in range(REQUESTS):
        prompt = talks.ask()
        hint = talks.rng.choice([Hint.NONE, Hint.NONE, Hint.ALIVE, Hint.CLOSED, Hint.TOOL])
        sequence = harness.ask(f"r{number}", prompt, tokens=talks.rng.randint(1, 40), hint=hint)
        harness.run()
        event = sequence.ended(FinishReason.LENGTH)
        observe(event)
        ended.append(event)
        talks.answered(sequence.tokens)
        harness.device.forget()
        harness.io.clock.advance(talks.rng.randint(1, 400) / 64)
    recorder.close()
    return dropped, ended


def replay(trace: Trace) -> Dropped:
    """The same in the simulator."""
    tier = OneTier(
        REGISTRY["heat"](HOST_BLOCKS), capacity=HOST_BLOCKS, block_tokens=trace.block_tokens
    )
    dropped = Dropped(tier.residency)
    for request in trace.requests:
        tier.replay(request)
    return dropped


@pytest.mark.parametrize(("seed", "once"), [(2, 0.2), (6, 0.6), (9, 0.9)])
def test_a_recorded_run_and_its_replay_drop_the_same_blocks(
    tmp_path: Path, seed: int, once: float
) -> None:
    """Hundreds of turns of conversations with shared beginnings pass through a live store that is
    too small for them; the recording's replay names the same victims in the same order."""
    live, ended = record(tmp_path / "day.jsonl", seed=seed, once=once)
    trace = read_trace(tmp_path / "day.jsonl").trace
    block_of: dict[Key, Key] = {}
    for event, request in zip(ended, trace.requests, strict=True):
        blocks = request.whole(trace.block_tokens)
        block_of.update(zip(event.keys, map(key_of, blocks), strict=True))
    assert [block_of[key] for key in live.keys] == replay(trace).keys
    assert len(live.keys) > REQUESTS
