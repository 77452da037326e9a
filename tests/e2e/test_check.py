"""The sampled check in the whole engine, on the demonstration model: sound bytes, wrong names.

The wrong blocks are written by the store's own writer, with valid seals, so that no seal can
tell; only computing again does.
"""

from __future__ import annotations

import logging
import queue
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pagoda.core.checking import Verdict
from pagoda.core.events import Barred, Checked, Event
from pagoda.core.holdings import Scope
from pagoda.core.identity import ROOT, Key, NamespaceId
from pagoda.engine.api import CacheScope, Request, Sampling, Update, Usage
from pagoda.engine.llm import LlmEngine
from pagoda.machine.buffers import aligned_buffer
from pagoda.serve.compose import open_engine
from pagoda.settings.tree import Settings
from pagoda.store.block import Block
from pagoda.store.executor import Runtime, ThreadExecutor
from pagoda.store.offline import stored_in
from pagoda.store.open import StorePlan, open_store
from pagoda.store.quarantine import Entry, Quarantine
from pagoda.store.store import Store, StoreConfig
from pagoda.tiers.drive import DriveConfig

pytestmark = pytest.mark.engine

STORY = (
    "The keeper of the lighthouse climbed the stairs every evening, lit the lamp, and wrote one "
    "line into the book: the wind, the ships, and the names of the birds that had come by. "
)
OTHER = (
    "Nobody in the town knew who had built the bridge; the oldest map showed it, and the river "
    "below it had another name. Children counted its stones and never came to the same sum. "
)
WAIT_S = 120.0


@dataclass
class Bench:
    """Opens engines over one drive, one at a time, and keeps what they tell."""

    model: Path
    drive: Path
    events: list[Event]
    engine: LlmEngine | None = None

    def open(self, *, rate: float, dtype: str = "bf16", **check: Any) -> LlmEngine:
        """Without a tier in memory, so that the drive's copy is the one that is read."""
        self.close()
        settings = Settings.model_validate(
            {
                "model": {"path": str(self.model), "dtype": dtype},
                "engine": {"kv_memory": "64MiB", "threads": 1},
                "host": {"capacity": "0"},
                "drive": {"path": str(self.drive), "capacity": "128MiB", "free_floor": "64MiB"},
                "store": {"restore_deadline": "1m"},  # a busy machine makes no block late
                "check": {"rate": rate, **check},
            }
        )
        self.engine = open_engine(settings, observer=self.events.append)
        return self.engine

    def close(self) -> None:
        if self.engine is not None:
            self.engine.close()
            self.engine = None

    def verdicts(self) -> set[Verdict]:
        return {event.verdict for event in self.events if isinstance(event, Checked)}


@pytest.fixture
def bench(demo_model: Path, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(demo_model, tmp_path, [])
    yield made
    made.close()


def prompt(engine: LlmEngine, text: str = STORY, repeats: int = 5) -> tuple[int, ...]:
    """A chat about a story of some 200 tokens."""
    question = f"{text * repeats} What is it about?"
    return tuple(engine.codec.render_chat([{"role": "user", "content": question}]))


def ask(
    engine: LlmEngine, tokens: Sequence[int], name: str = "r", salt: str = ""
) -> tuple[list[int], Usage]:
    """The answer's tokens, and the usage at its end."""
    updates: queue.Queue[Update] = queue.Queue()
    sampling = Sampling(temperature=0.0, max_tokens=8, ignore_eos=True)
    engine.submit(Request(id=name, prompt=tuple(tokens), sampling=sampling, salt=salt), updates.put)
    answer: list[int] = []
    while True:
        update = updates.get(timeout=WAIT_S)
        answer += update.token_ids
        if update.finish is not None:
            assert update.error is None
            return answer, update.usage


def plain_store(bench: Bench, block_bytes: int) -> Store:
    """The drive's store, with nobody's engine."""
    runtime = Runtime(executor=ThreadExecutor(load_threads=1, store_threads=1))
    drive = DriveConfig(
        directory=bench.drive,
        capacity_bytes=128 << 20,
        slot_bytes=block_bytes,
        free_floor_bytes=64 << 20,
    )
    plan = StorePlan(
        block_bytes=block_bytes, host_bytes=0, drives=(drive,), config=StoreConfig(admission="all")
    )
    return open_store(plan, runtime)


def exchange(bench: Bench, one: Sequence[Key], other: Sequence[Key], block_bytes: int) -> None:
    """Give each block of one prompt the bytes of the other's at its place, sealed anew."""
    store = plain_store(bench, block_bytes)
    try:
        count = min(len(one), len(other), store.match(one), store.match(other))
        assert count > 10
        memory = memoryview(aligned_buffer(count * block_bytes))
        views = [memory[at * block_bytes : (at + 1) * block_bytes] for at in range(count)]
        restore = store.restore(other[:count], views)
        wait(store, lambda: restore.done)
        assert restore.usable_blocks == count
        [level] = store.levels()
        slots = [level.state.slot_of(key) for key in one[:count]]
        namespace = level.sealed.seals.namespace(slots[0])
        store.discard(level, slots)
        assert store.flush(WAIT_S)
        blocks = [
            Block(
                namespace=namespace,
                key=one[at],
                parent=one[at - 1] if at else ROOT,
                depth=at,
                tokens=16,
                payload=views[at],
            )
            for at in range(count)
        ]
        store.save(blocks, lambda block: None)
        assert store.flush(WAIT_S)
        assert store.match(one) >= count
    finally:
        store.close(flush_s=WAIT_S)


def wait(store: Store, done: Callable[[], bool]) -> None:
    while not done():
        store.runtime.executor.wait(0.01)
        store.poll()


@dataclass(frozen=True)
class Poisoned:
    """Two prompts and the right answers to them, and a drive on which the first one's blocks are
    the other's."""

    drive: Path
    tokens: tuple[int, ...]
    other: tuple[int, ...]
    right: list[int]
    right_other: list[int]


@pytest.fixture(scope="module")
def made(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Poisoned:
    """Two prompts computed and stored; then the first one's blocks are exchanged."""
    bench = Bench(demo_model, tmp_path_factory.mktemp("made"), [])
    engine = bench.open(rate=0.0)
    tokens, other = prompt(engine), prompt(engine, OTHER)
    right, _ = ask(engine, tokens)
    right_other, _ = ask(engine, other)
    served = engine._served  # the names of its blocks
    keys, other_keys = served.keys(tokens, ""), served.keys(other, "")
    bench.close()
    exchange(bench, keys, other_keys, served.block_bytes)
    return Poisoned(bench.drive, tokens, other, right, right_other)


@pytest.fixture
def poisoned(bench: Bench, made: Poisoned) -> Poisoned:
    """A copy of that drive, for the bench."""
    shutil.copytree(made.drive, bench.drive, dirs_exist_ok=True)
    return made


def test_without_the_check_a_wrong_block_is_served(bench: Bench, poisoned: Poisoned) -> None:
    """The twin of the test below: seals are right, the answer is not, and nobody is told."""
    engine = bench.open(rate=0.0)
    wrong, usage = ask(engine, poisoned.tokens)
    assert usage.cached_restored > 0
    assert wrong != poisoned.right
    assert bench.verdicts() == set()
    assert engine.cache.quarantined() == []


def test_a_wrong_block_is_found_told_and_served_to_nobody(
    bench: Bench, poisoned: Poisoned, caplog: pytest.LogCaptureFixture
) -> None:
    """The request that finds it has the right answer. Then nothing of the namespace is served,
    not after a restart either, until it is cleared."""
    engine = bench.open(rate=1.0)
    with caplog.at_level(logging.ERROR, logger="pagoda.store"):
        answer, usage = ask(engine, poisoned.tokens)
        assert (answer, usage.cached_tokens) == (poisoned.right, 0)
        assert ask(engine, poisoned.other, "o")[0] == poisoned.right_other
    assert Verdict.WRONG in bench.verdicts()
    [barred] = [event for event in bench.events if isinstance(event, Barred)]
    assert "is in quarantine" in caplog.text
    assert "lighthouse" not in caplog.text
    assert [one.namespace for one in engine.cache.quarantined()] == [barred.namespace]

    engine = bench.open(rate=0.0)
    pairs = ((poisoned.tokens, poisoned.right), (poisoned.other, poisoned.right_other))
    for tokens, right in pairs:
        answer, usage = ask(engine, tokens)
        assert (answer, usage.cached_restored) == (right, 0)
    assert [one.namespace for one in engine.cache.quarantined()] == [barred.namespace]
    cleared = engine.cache.clear(Scope(namespace=barred.namespace)).result(timeout=WAIT_S)
    assert cleared.verified
    assert engine.cache.quarantined() == []
    ask(engine, poisoned.tokens)
    engine.reset_cache(CacheScope.DEVICE)
    answer, usage = ask(engine, poisoned.tokens)
    assert answer == poisoned.right
    assert usage.cached_restored > 0


def test_lifting_trusts_what_is_there(bench: Bench, poisoned: Poisoned) -> None:
    """It is the operator's word against the check's: the wrong blocks are served again."""
    [held] = stored_in(bench.drive)
    kept = Quarantine([bench.drive])
    kept.add(NamespaceId(bytes.fromhex(held.namespace)), Entry(7, "because"))
    kept.close()
    engine = bench.open(rate=0.0)
    assert ask(engine, poisoned.tokens)[0] == poisoned.right
    assert engine.cache.lift(held.namespace[:12]).detail == "because"
    engine.reset_cache(CacheScope.DEVICE)
    wrong, usage = ask(engine, poisoned.tokens, "again")
    assert usage.cached_restored > 0
    assert wrong != poisoned.right


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_honest_blocks_are_equal_to_the_bit(bench: Bench, dtype: str) -> None:
    """Many requests that share beginnings, restored from the drive and cached on the device, some
    of them computed in part: each block that is computed again is the stored one, to the bit."""
    engine = bench.open(rate=1.0, dtype=dtype, tokens=96)
    whole = prompt(engine)
    prompts = [whole[: len(whole) - cut] for cut in (0, 3, 90)]
    answers = [ask(engine, tokens, f"a{at}")[0] for at, tokens in enumerate(prompts)]
    bench.close()
    engine = bench.open(rate=1.0, dtype=dtype, tokens=96)
    for turn in range(2):
        for at, tokens in enumerate(prompts):
            assert ask(engine, tokens, f"b{turn}{at}")[0] == answers[at]
        engine.reset_cache(CacheScope.DEVICE)
    engine.check_invariants()
    bench.close()
    found = [event for event in bench.events if isinstance(event, Checked)]
    assert {event.tier for event in found} == {"device", "drive"}
    assert {(event.verdict, event.difference) for event in found} == {(Verdict.EQUAL, 0.0)}
    assert len(found) > 30
