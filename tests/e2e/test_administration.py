"""Administration of the real engine: look-ups, a verified clearing, a restart, a prefetch."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pagoda.core.errors import EngineClosed
from pagoda.core.holdings import PrefetchState, Scope, Ttl, tenant_id
from pagoda.engine.api import Request, Sampling, Update
from pagoda.engine.llm import LlmEngine
from pagoda.serve.compose import open_engine
from pagoda.settings.tree import Settings
from pagoda.store.offline import stored_in

pytestmark = pytest.mark.engine

BLOCK = 16
PROMPT = tuple(100 + at % 50 for at in range(8 * BLOCK + 1))  # eight whole blocks and a tail
WAIT_S = 60.0


@pytest.fixture
def engine_of(demo_model: Path, tmp_path: Path) -> Iterator[Callable[[], LlmEngine]]:
    """Opens engines over one drive; closes what a test leaves open."""
    opened: list[LlmEngine] = []

    def open_one() -> LlmEngine:
        settings = Settings.model_validate(
            {
                "model": {"path": str(demo_model)},
                "engine": {"kv_memory": "32MiB"},
                "host": {"capacity": "32MiB"},
                "drive": {"path": str(tmp_path), "capacity": "32MiB", "free_floor": "1MiB"},
                "store": {"restore_deadline": "1m"},  # a busy machine makes no block late
            }
        )
        opened.append(open_engine(settings))
        return opened[-1]

    yield open_one
    for engine in opened:
        engine.close()


def ask(engine: LlmEngine, salt: str, *, name: str) -> tuple[list[int], int]:
    """Two tokens of an answer, and how many of the prompt's were cached."""
    updates: queue.Queue[Update] = queue.Queue()
    sampling = Sampling(temperature=0.0, max_tokens=2, ignore_eos=True)
    engine.submit(Request(id=name, prompt=PROMPT, sampling=sampling, salt=salt), updates.put)
    tokens: list[int] = []
    while True:
        update = updates.get(timeout=WAIT_S)
        tokens += update.token_ids
        if update.finish is not None:
            return tokens, update.usage.cached_tokens


def eventually(holds: Callable[[], bool]) -> bool:
    """Whether a condition comes true while the engine works in the background."""
    until = time.monotonic() + WAIT_S
    while not holds() and time.monotonic() < until:
        time.sleep(0.02)
    return holds()


def blocks_in(engine: LlmEngine, tier: str) -> dict[str, int]:
    """Blocks of each tenant in a tier."""
    found = engine.cache.holdings(Scope())
    return {one.tenant: one.blocks for one in found if one.tier == tier}


def test_one_tenant_is_cleared_and_the_other_is_not(
    engine_of: Callable[[], LlmEngine], tmp_path: Path
) -> None:
    """On the device, in memory and on the drive; the drive's own headers say so, too. Cleared
    or cached, the answers are the same."""
    engine = engine_of()
    first = {salt: ask(engine, salt, name=f"first {salt}") for salt in ("a", "b")}
    assert eventually(lambda: set(blocks_in(engine, "drive").values()) == {8})
    assert eventually(lambda: len(blocks_in(engine, "drive")) == 2)
    looked = engine.cache.lookup(PROMPT, "a")
    assert looked.resident_tokens == 8 * BLOCK
    assert {place.tier: place.held for place in looked.places} == dict.fromkeys(
        ("device", "host", "drive"), 8 * BLOCK
    )
    cleared = engine.cache.clear(Scope(salt="a")).result(timeout=WAIT_S)
    assert cleared.verified
    assert cleared.dropped == {"device": 8, "host": 8, "drive": 8}
    assert [one.blocks for one in stored_in(tmp_path)] == [8]
    assert eventually(lambda: [o.tenant for o in stored_in(tmp_path)] == [tenant_id("b")])
    assert engine.cache.lookup(PROMPT, "a").resident_tokens == 0
    assert ask(engine, "a", name="again a") == (first["a"][0], 0)
    again, cached = ask(engine, "b", name="again b")
    assert (again, cached > 0) == (first["b"][0], True)
    engine.check_invariants()


def test_a_prefetch_after_a_restart_fills_memory(engine_of: Callable[[], LlmEngine]) -> None:
    """What the drive kept is brought up before anybody asks; times to live are still there."""
    engine = engine_of()
    answer, _ = ask(engine, "a", name="before")
    engine.cache.set_ttl(3600, tenant=None, salt="a")
    engine.close()
    with pytest.raises(EngineClosed):
        engine.cache.ttls()
    engine = engine_of()
    assert engine.cache.ttls() == [Ttl(tenant=tenant_id("a"), seconds=3600)]
    assert blocks_in(engine, "drive") == {tenant_id("a"): 8}
    assert blocks_in(engine, "host") == {}
    begun = engine.cache.prefetch(PROMPT, "a")
    assert (begun.blocks, begun.present) == (8, 0)
    assert eventually(lambda: engine.cache.prefetches()[0].state is not PrefetchState.RUNNING)
    assert engine.cache.prefetches()[0].done == 8
    assert blocks_in(engine, "host") == {tenant_id("a"): 8}
    again, cached = ask(engine, "a", name="after")
    assert (again, cached) == (answer, 7 * BLOCK)
    engine.check_invariants()
