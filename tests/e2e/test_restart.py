"""The whole engine on the demonstration model: restarts, damage, cancellation, preemption."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pagoda.core.errors import EngineClosed
from pagoda.core.events import Event, Preempted
from pagoda.engine.api import CacheScope, FinishReason, Request, Sampling, Update, Usage
from pagoda.engine.llm import LlmEngine
from pagoda.serve.compose import open_engine
from pagoda.settings.tree import Settings
from pagoda.store.inspect import DriveInspector
from pagoda.tiers import sealed

pytestmark = pytest.mark.engine

Opener = Callable[..., LlmEngine]
STORY = (
    "The keeper of the lighthouse climbed the stairs every evening, lit the lamp, and wrote one "
    "line into the book: the wind, the ships, and the names of the birds that had come by. "
)


@pytest.fixture
def events() -> list[Event]:
    """Everything that the engines of a test tell."""
    return []


@pytest.fixture
def engine_of(demo_model: Path, tmp_path: Path, events: list[Event]) -> Iterator[Opener]:
    """Opens engines over one drive directory; closes what a test leaves open."""
    opened: list[LlmEngine] = []

    def open_one(*, kv: str = "64MiB", host: str = "64MiB", dtype: str = "bf16") -> LlmEngine:
        settings = Settings.model_validate(
            {
                "model": {"path": str(demo_model), "dtype": dtype},
                "engine": {"kv_memory": kv},
                "host": {"capacity": host},
                "drive": {"path": str(tmp_path), "capacity": "128MiB", "free_floor": "64MiB"},
                "store": {"restore_deadline": "1m"},  # a busy machine makes no block late
            }
        )
        opened.append(open_engine(settings, observer=events.append))
        return opened[-1]

    yield open_one
    for engine in opened:
        engine.close()


def prompt(engine: LlmEngine, repeats: int = 12, salt: str = "") -> tuple[int, ...]:
    """A chat about a story of some 500 tokens."""
    question = f"{STORY * repeats}{salt} What did the keeper write into the book?"
    return tuple(engine.codec.render_chat([{"role": "user", "content": question}]))


def ask(
    engine: LlmEngine, tokens: tuple[int, ...], *, name: str = "r", count: int = 24
) -> tuple[list[int], Usage]:
    """The answer's tokens, and the usage at its end."""
    updates: queue.Queue[Update] = queue.Queue()
    sampling = Sampling(temperature=0.0, max_tokens=count, ignore_eos=True)
    engine.submit(Request(id=name, prompt=tokens, sampling=sampling), updates.put)
    return collect(updates)


def collect(updates: queue.Queue[Update]) -> tuple[list[int], Usage]:
    """Wait for the end of an answer."""
    answer: list[int] = []
    while True:
        update = updates.get(timeout=120)
        answer += update.token_ids
        if update.finish is not None:
            assert update.finish is not FinishReason.ERROR, update.error
            return answer, update.usage


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_an_answer_survives_a_restart(engine_of: Opener, dtype: str) -> None:
    """Restored from the drive by a new engine, the answer is the same, token for token."""
    first = engine_of(dtype=dtype)
    tokens = prompt(first)
    computed, usage = ask(first, tokens)
    assert usage.cached_tokens == 0
    first.check_invariants()
    first.close()
    second = engine_of(dtype=dtype)
    restored, usage = ask(second, tokens)
    assert restored == computed
    assert usage.cached_restored == (len(tokens) - 16) // 16 * 16
    second.check_invariants()


def test_a_zeroed_slab_is_recomputed(engine_of: Opener, tmp_path: Path) -> None:
    """Sealed blocks whose bytes are gone are noticed; the answer is computed, and the same."""
    first = engine_of()
    tokens = prompt(first)
    computed, _ = ask(first, tokens)
    first.close()
    zero_payloads(tmp_path)
    second = engine_of()
    again, usage = ask(second, tokens)
    assert again == computed
    assert usage.cached_restored == 0


def test_zeroed_bytes_would_change_the_answer(
    engine_of: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin of the test above, with the seal's check switched off: it must differ, or
    equality proves nothing."""
    first = engine_of()
    tokens = prompt(first)
    computed, _ = ask(first, tokens)
    first.close()
    zero_payloads(tmp_path)
    trusted = DriveInspector(tmp_path).entries()[0][0].seal.payload_digest
    by_any = type("Any", (bytes,), {"__ne__": lambda self, other: False})
    monkeypatch.setattr(sealed, "digest", lambda payload: by_any(trusted))
    monkeypatch.setattr(sealed, "digests", lambda payloads: [by_any(trusted)] * len(payloads))
    second = engine_of()
    again, usage = ask(second, tokens)
    assert usage.cached_restored > 0
    assert again != computed


def zero_payloads(directory: Path) -> None:
    """Overwrite every committed payload."""
    inspector = DriveInspector(directory)
    entries, _ = inspector.entries()
    assert entries, "nothing was stored"
    with inspector.path.open("r+b") as file:
        for entry in entries:
            file.seek(entry.offset)
            file.write(bytes(entry.seal.stored_bytes))


def test_resetting_the_device_keeps_the_tiers(engine_of: Opener) -> None:
    """After a device reset the prefix is restored; after a full one it is computed."""
    engine = engine_of()
    tokens = prompt(engine)
    first, _ = ask(engine, tokens)
    assert engine.reset_cache(CacheScope.DEVICE) > 0
    second, usage = ask(engine, tokens)
    assert usage.cached_device == 0
    assert usage.cached_restored > 0
    engine.reset_cache(CacheScope.ALL)
    third, usage = ask(engine, tokens)
    assert usage.cached_tokens == 0
    assert first == second == third


def test_tenants_do_not_share(engine_of: Opener) -> None:
    """Another salt finds nothing of the same prompt."""
    engine = engine_of()
    tokens = prompt(engine)
    ask(engine, tokens)
    updates: queue.Queue[Update] = queue.Queue()
    sampling = Sampling(temperature=0.0, max_tokens=4)
    engine.submit(Request(id="s", prompt=tokens, sampling=sampling, salt="b"), updates.put)
    _, usage = collect(updates)
    assert usage.cached_tokens == 0


def test_cancelled_requests_return_their_blocks(engine_of: Opener) -> None:
    """Thirty requests cancelled at all stages leave no lease behind."""
    engine = engine_of()
    ends: queue.Queue[Update] = queue.Queue()
    for number in range(30):
        tokens = prompt(engine, repeats=4 + number % 5, salt=str(number % 7))
        engine.submit(
            Request(id=f"c{number}", prompt=tokens, sampling=Sampling(max_tokens=50)),
            lambda update: ends.put(update) if update.finish else None,
        )
    for number in range(30):
        engine.cancel(f"c{number}")
        engine.cancel("nobody")
    finishes = [ends.get(timeout=60).finish for _ in range(30)]
    assert FinishReason.CANCELLED in finishes
    ask(engine, prompt(engine, repeats=2))
    engine.check_invariants()


def test_preempted_answers_are_the_same(engine_of: Opener, events: list[Event]) -> None:
    """With too little room for all, some wait and are restored; no answer changes."""
    roomy = engine_of(kv="96MiB")
    prompts = [prompt(roomy, repeats=3, salt=str(n)) for n in range(6)]
    expected = [ask(roomy, tokens, count=60)[0] for tokens in prompts]
    roomy.reset_cache(CacheScope.ALL)
    roomy.close()
    tight = engine_of(kv="18MiB")
    waits: list[queue.Queue[Update]] = [queue.Queue() for _ in prompts]
    for number, tokens in enumerate(prompts):
        sampling = Sampling(temperature=0.0, max_tokens=60, ignore_eos=True)
        request = Request(id=f"p{number}", prompt=tokens, sampling=sampling)
        tight.submit(request, waits[number].put)
    answers = [collect(updates)[0] for updates in waits]
    assert any(isinstance(event, Preempted) for event in events)
    assert answers == expected
    tight.check_invariants()


def test_every_client_hears_of_a_failed_engine(
    engine_of: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine failed halfway through moving a request; taking that request out failed, too,
    and none of the clients ever heard of it: all of their connections hung."""
    engine = engine_of()
    scheduler = engine._scheduler
    plan = scheduler.plan

    def fail() -> list[object]:
        if len(scheduler.active) < 3:
            return plan()
        scheduler.active.pop(0)  # in neither list, as between two steps of a move
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(scheduler, "plan", fail)
    updates: queue.Queue[Update] = queue.Queue()
    for name in "abc":
        sampling = Sampling(temperature=0.0, max_tokens=400, ignore_eos=True)
        engine.submit(Request(id=name, prompt=(7,) * 20, sampling=sampling), updates.put)
    failed: set[str] = set()
    while len(failed) < 3:
        update = updates.get(timeout=20)
        if update.finish is not None:
            assert update.finish is FinishReason.ERROR
            failed.add(update.request_id)
    assert not engine.healthy()
    with pytest.raises(EngineClosed):
        engine.submit(Request(id="d", prompt=(7,)), updates.put)
