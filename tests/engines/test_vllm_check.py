"""The sampled check on the real vLLM: sound chunks under wrong names, which no seal can tell.

The payloads of two prompts are exchanged and sealed anew by the store's own writer. vLLM's bits
depend on what else it computes, so that chunks are held against each other within a tolerance.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from vllm_harness import Child, launch, pagoda_tier, story, total

from pagoda.engine.codec import load_codec
from pagoda.machine.buffers import aligned_buffer
from pagoda.store.block import Block
from pagoda.store.executor import Runtime, ThreadExecutor
from pagoda.store.inspect import DriveInspector
from pagoda.store.open import StorePlan, open_store
from pagoda.store.store import Store, StoreConfig
from pagoda.tiers.drive import DriveConfig

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1500)]

_TOKENS, _CHUNKS = 700, 5  # chunks of 128 tokens
_CHUNK_BYTES = 128 * 23_040
_FLUSH_S = 60.0
ONE, OTHER = story(1), story(2)

Answer = dict[str, Any]
Start = Callable[..., Child]
Filled = tuple[Path, Answer, Answer]


def _same(one: Answer, other: Answer) -> bool:
    return bool(one["tokens"] == other["tokens"] and one["logprobs"] == other["logprobs"])


def _checking(drive: Path) -> dict[str, Any]:
    return pagoda_tier(drive, {"check": {"rate": 1.0}})


@pytest.fixture(scope="module")
def filled(vllm_python: Path, demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Filled:
    """A directory with the chunks of two prompts, and the cold answers to them."""
    directory = tmp_path_factory.mktemp("filled")
    child = launch(vllm_python, demo_model, directory, pagoda_tier(directory / "kv"))
    try:
        answers = [child.ask(text, length=_TOKENS) for text in (ONE, OTHER)]
    finally:
        child.close()
    assert [answer["cached"] for answer in answers] == [0, 0]
    return directory / "kv", answers[0], answers[1]


@pytest.fixture
def exchanged(filled: Filled, tmp_path: Path) -> Filled:
    """A copy of it, in which the payloads of the two prompts have changed places."""
    shutil.copytree(filled[0], tmp_path / "kv")
    _exchange(tmp_path / "kv")
    return tmp_path / "kv", filled[1], filled[2]


def _exchange(directory: Path) -> None:
    entries, _ = DriveInspector(directory).entries()
    seals = sorted((one.seal for one in entries), key=lambda seal: seal.created_ms)
    assert len(seals) == 2 * _CHUNKS
    order = [*range(_CHUNKS, 2 * _CHUNKS), *range(_CHUNKS)]
    store = _store(directory)
    [level] = store.levels()
    memory = memoryview(aligned_buffer(len(seals) * _CHUNK_BYTES))
    views = [memory[at * _CHUNK_BYTES : (at + 1) * _CHUNK_BYTES] for at in range(len(seals))]
    restores = store.restore_all(
        [([seal.key], [view]) for seal, view in zip(seals, views, strict=True)]
    )
    while not all(restore.done for restore in restores):
        store.runtime.executor.wait(0.01)
        store.poll()
    assert all(restore.usable_blocks == 1 for restore in restores)
    store.discard(level, level.state.published_slots())
    assert store.flush(_FLUSH_S)
    blocks = [
        Block(
            namespace=seal.namespace,
            key=seal.key,
            parent=seal.parent,
            depth=seal.depth,
            tokens=seal.tokens,
            payload=views[order[at]],
        )
        for at, seal in enumerate(seals)
    ]
    store.save(blocks, lambda block: None)
    assert store.flush(_FLUSH_S)
    assert level.state.published_count() == len(seals)
    store.close(flush_s=_FLUSH_S)


def _store(directory: Path) -> Store:
    """The drive's store, with nobody's engine."""
    runtime = Runtime(executor=ThreadExecutor(load_threads=1, store_threads=1))
    drive = DriveConfig(
        directory=directory,
        capacity_bytes=500 << 20,
        slot_bytes=_CHUNK_BYTES,
        free_floor_bytes=1 << 20,
    )
    plan = StorePlan(
        block_bytes=_CHUNK_BYTES, host_bytes=0, drives=(drive,), config=StoreConfig(admission="all")
    )
    return open_store(plan, runtime)


def test_without_the_check_a_wrong_chunk_is_served(start: Start, exchanged: Filled) -> None:
    """The twin of the test below: seals are right, the answer is not, and nobody is told."""
    drive, cold, _ = exchanged
    child = start(pagoda_tier(drive))
    wrong = child.ask(ONE, length=_TOKENS)
    assert wrong["cached"] == _CHUNKS * 128
    assert not _same(wrong, cold)
    assert total(child, "pagoda_restored_bytes_total") == _CHUNKS * _CHUNK_BYTES
    assert total(child, "pagoda_quarantines_total") == 0


def test_a_wrong_chunk_is_found_told_and_served_to_nobody(start: Start, exchanged: Filled) -> None:
    """The request that was chosen computes all of it, and its answer is right. From then on
    nothing of the namespace is loaded, also not after a restart that checks nothing."""
    drive, cold, cold_other = exchanged
    child = start(_checking(drive))
    first = child.ask(ONE, length=_TOKENS)
    assert (first["cached"], _same(first, cold)) == (0, True)
    child.ask(story(3), length=_TOKENS)  # steps, in which what was found is taken in
    assert total(child, "pagoda_checked_chunks_total", verdict="wrong") == _CHUNKS
    assert total(child, "pagoda_quarantines_total") == 1
    other = child.ask(OTHER, length=_TOKENS)
    assert (other["cached"], _same(other, cold_other)) == (0, True)
    child.close()
    plain = start(pagoda_tier(drive))
    for text, right in ((ONE, cold), (OTHER, cold_other)):
        answer = plain.ask(text, length=_TOKENS)
        assert (answer["cached"], _same(answer, right)) == (0, True)
    assert total(plain, "pagoda_restored_bytes_total") == 0
    assert total(plain, "pagoda_quarantines_total") == 1


def test_chunks_computed_beside_others_accuse_nobody(
    start: Start, filled: Filled, demo_model: Path, tmp_path: Path
) -> None:
    """Every request is checked, several at once and in other pieces than those that stored the
    chunks: none is called wrong, and they are served as before."""
    shutil.copytree(filled[0], tmp_path / "kv")
    child = start(_checking(tmp_path / "kv"), llm={"max_num_batched_tokens": 512})
    encode = load_codec(demo_model).encode
    tokens = [encode(text)[:_TOKENS] for text in (ONE, OTHER)]
    extra = [encode(story(seed))[:400] for seed in (4, 5)]
    for prompts in ([*tokens, *extra], [*extra, *reversed(tokens)]):
        child.do("many", prompts=prompts, tokens=4)
        child.do("reset")
    child.ask(story(3), length=_TOKENS)
    found = {
        verdict: total(child, "pagoda_checked_chunks_total", verdict=verdict)
        for verdict in ("equal", "close", "wrong", "unread")
    }
    assert found["equal"] + found["close"] >= 2 * _CHUNKS
    assert found["wrong"] == 0
    assert total(child, "pagoda_quarantines_total") == 0
    child.close()
    plain = start(pagoda_tier(tmp_path / "kv"))
    assert plain.ask(ONE, length=_TOKENS)["cached"] == _CHUNKS * 128
