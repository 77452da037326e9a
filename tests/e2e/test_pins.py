"""Pins in the real engine: through other prompts, over a restart, and by what requests use."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pagoda.core.pins import PinWish
from pagoda.engine.api import Request, Sampling, Update, Usage
from pagoda.engine.llm import LlmEngine
from pagoda.serve.compose import open_engine
from pagoda.settings.tree import Settings
from pagoda.store import pins_hot

pytestmark = pytest.mark.engine

BLOCK = 16
BLOCKS = 4
OTHERS = 5  # prompts, enough to fill the device
WAIT_S = 60.0


@pytest.fixture
def engine_of(demo_model: Path, tmp_path: Path) -> Iterator[Callable[..., LlmEngine]]:
    """Opens engines over one drive; closes what a test leaves open."""
    opened: list[LlmEngine] = []

    def open_one(**pins: float) -> LlmEngine:
        settings = Settings.model_validate(
            {
                "model": {"path": str(demo_model)},
                "engine": {"kv_memory": "6MiB"},
                "host": {"capacity": "6MiB"},
                "drive": {"path": str(tmp_path), "capacity": "64MiB", "free_floor": "1MiB"},
                "store": {"restore_deadline": "1m"},  # a busy machine makes no block late
                "pins": pins,
            }
        )
        opened.append(open_engine(settings))
        return opened[-1]

    yield open_one
    for engine in opened:
        engine.close()


def prompt(number: int) -> tuple[int, ...]:
    """Four whole blocks and a tail; no two begin alike."""
    return tuple(100 + (number * 7 + at) % 200 for at in range(BLOCKS * BLOCK + 1))


def ask(engine: LlmEngine, number: int) -> Usage:
    """Two tokens of an answer; how much was cached."""
    updates: queue.Queue[Update] = queue.Queue()
    sampling = Sampling(temperature=0.0, max_tokens=2, ignore_eos=True)
    engine.submit(Request(id="r", prompt=prompt(number), sampling=sampling), updates.put)
    while True:
        update = updates.get(timeout=WAIT_S)
        if update.finish is not None:
            return update.usage


def held(engine: LlmEngine, number: int) -> dict[str, int]:
    """Blocks of a prompt in each tier."""
    places = engine.cache.lookup(prompt(number), "").places
    return {place.tier: place.held // BLOCK for place in places}


def test_a_pinned_prompt_stays_on_the_device_and_over_a_restart(
    engine_of: Callable[..., LlmEngine],
) -> None:
    """Others come and go; it is found where it was, and after a restart on the drive."""
    engine = engine_of(owner=0.5)
    pinned = engine.cache.pin(prompt(0), "", PinWish(owner="a", expires_s=3600), wait_s=WAIT_S)
    assert pinned.durable
    assert all(place.granted for place in pinned.places)
    for number in range(OTHERS):
        ask(engine, number)
    assert held(engine, 0)["device"] == BLOCKS
    assert held(engine, 1)["device"] == 0, "the device was full"
    assert ask(engine, 0).cached_device == (BLOCKS - 1) * BLOCK, "a tail is always computed"
    engine.close()
    again = engine_of(owner=0.5)
    (found,) = again.cache.pins()
    assert (found.id, found.until_s) == (pinned.id, pinned.until_s)
    assert ask(again, 0).cached_restored == (BLOCKS - 1) * BLOCK
    again.check_invariants()


def test_what_requests_use_most_is_pinned(
    engine_of: Callable[..., LlmEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a budget for it, and judged at every turn here."""
    monkeypatch.setattr(pins_hot, "_REVIEW_S", 0.0)
    engine = engine_of(automatic=0.25)
    for _ in range(4):  # uses fade at once, if only a little
        ask(engine, 0)
    for number in range(1, OTHERS):
        ask(engine, number)
    assert held(engine, 0)["device"] == BLOCKS
    assert engine.cache.pins() == []
