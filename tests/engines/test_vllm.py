"""The connector in the real vLLM 0.32.0 on a CPU: what is restored equals what was computed.

Restored answers are compared with vLLM's own local prefix hit, which computes the same tokens in
the same steps: tokens and log-probabilities are equal to the last bit. Each test looks at
Pagoda's counters as well, so that none passes because nothing was restored.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from slab_damage import change_payloads
from vllm_harness import Child, launch, pagoda_tier, story, total

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]

_PROMPT_TOKENS = 700
_CACHED_TOKENS = 640  # five blocks of 128
_CHUNK_BYTES = 128 * 23_040

Answer = dict[str, Any]
Start = Callable[..., Child]


STORY = story(1)
_TELLING = {"enable_kv_events": True}


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return bool(one["tokens"] == other["tokens"] and one["logprobs"] == other["logprobs"])


@pytest.fixture(scope="module")
def answered(
    vllm_python: Path, demo_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Answer, Answer]:
    """A directory that an engine has filled and left, its cold answer, and its local hit's."""
    directory = tmp_path_factory.mktemp("filled")
    tier = {**pagoda_tier(directory / "kv"), **_TELLING}
    child = launch(vllm_python, demo_model, directory, tier, events=True)
    try:
        cold = child.ask(STORY, length=_PROMPT_TOKENS)
        local = child.ask(STORY, length=_PROMPT_TOKENS)
    finally:
        child.close()
    assert cold["cached"] == 0
    assert local["cached"] == _CACHED_TOKENS
    return directory / "kv", cold, local


@pytest.fixture
def filled(answered: tuple[Path, Answer, Answer], tmp_path: Path) -> Path:
    """A copy of that directory."""
    shutil.copytree(answered[0], tmp_path / "kv")
    return tmp_path / "kv"


def test_an_answer_restored_after_a_restart_is_the_local_hits_to_the_bit(
    start: Start, answered: tuple[Path, Answer, Answer], filled: Path
) -> None:
    """Another process restores what the first one computed, and a third is refused meanwhile."""
    child = start(pagoda_tier(filled))
    restored = child.ask(STORY, length=_PROMPT_TOKENS)
    assert _same(restored, answered[2])
    assert restored["cached"] == _CACHED_TOKENS
    assert total(child, "pagoda_restored_bytes_total") == 5 * _CHUNK_BYTES
    assert total(child, "pagoda_bounced_copies_total") == 0
    refused = start(pagoda_tier(filled))
    assert "DirectoryLocked" in refused.began["failed"]
    assert str(filled) in refused.began["failed"]


def _announced(child: Child) -> list[list[str]]:
    """Chunks that routers were told PagodaTier has, in the order in which they were."""
    events = child.do("events")["events"]
    own = [one for one in events if one["ownership"] == "PagodaTier"]
    assert {(one["kind"], one["medium"]) for one in own} <= {("BlockStored", "STORAGE")}
    return [one["hashes"] for one in own]


def test_what_a_drive_holds_is_announced_after_a_restart(start: Start, filled: Path) -> None:
    """Five chunks that another process stored, before any of them is asked for, and once."""
    child = start({**pagoda_tier(filled), **_TELLING}, events=True)
    child.ask("Good morning.", length=3)
    announced = _announced(child)
    assert len(announced) == len(set(map(tuple, announced))) == _CACHED_TOKENS // 128
    child.ask(STORY, length=_PROMPT_TOKENS)
    assert _announced(child) == []


def test_changed_bytes_change_the_answer_when_nobody_looks(
    start: Start, answered: tuple[Path, Answer, Answer], filled: Path
) -> None:
    """The twin of the test above: with the seal's check off, changed bytes are served, and seen.
    Else equality would prove nothing."""
    assert change_payloads(filled) == _CACHED_TOKENS // 128
    child = start(pagoda_tier(filled), wrong=True)
    restored = child.ask(STORY, length=_PROMPT_TOKENS)
    assert restored["cached"] == _CACHED_TOKENS
    assert total(child, "pagoda_restored_bytes_total") == 5 * _CHUNK_BYTES
    assert not _same(restored, answered[2])


def test_changed_bytes_are_refused_and_computed_anew(
    start: Start, answered: tuple[Path, Answer, Answer], filled: Path
) -> None:
    """With the check on, none of them is served: the answer is the cold one."""
    assert change_payloads(filled) == _CACHED_TOKENS // 128
    # Scrubbing would take them out of service before anybody asks.
    child = start(pagoda_tier(filled, {"store": {"scrub_rate": "0"}}))
    computed = child.ask(STORY, length=_PROMPT_TOKENS)
    assert computed["cached"] == 0
    assert _same(computed, answered[1])
    assert total(child, "pagoda_refused_chunks_total") > 0
    assert total(child, "pagoda_restored_bytes_total") == 0


def test_a_stuck_drive_costs_the_deadline_and_no_more(
    start: Start, answered: tuple[Path, Answer, Answer], filled: Path
) -> None:
    """A drive that does not come back: the request is computed, and memory that the drive may
    still write to is used by nobody until it has come back."""
    child = start(pagoda_tier(filled, {"store": {"restore_deadline": "1s"}}))
    child.do("stick")
    computed = child.ask(STORY, length=_PROMPT_TOKENS)
    assert computed["cached"] == 0
    assert _same(computed, answered[1])
    assert total(child, "pagoda_held_chunks") > 0
    child.do("unstick")
    again = child.ask(story(2), length=_PROMPT_TOKENS)
    assert again["cached"] == 0
    assert total(child, "pagoda_held_chunks") == 0
