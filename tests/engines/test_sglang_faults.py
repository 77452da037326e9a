"""A thousand requests to the real SGLang 0.5.23 while drives fail and SGLang's own hooks make the
backend fail and wait: no token is wrong.

The model computes in float32: its tokens then do not depend on how much of a prompt came out of
a cache, nor on which requests shared a step. What was computed without a cache is right. Device
and host memory hold a few of the prompts, so that most requests are storage's to answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import Any

import pytest
from sglang_checks import REFUSED, RESTORED, SKIPPED, Prompt, prompt_of
from sglang_harness import Answer, Server, pagoda_entry
from slab_damage import change_payloads

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]

_SEED = 20_261_202
_REQUESTS, _BATCH, _AT_ONCE = 1_000, 25, 4
_PROMPTS, _PROMPT_TOKENS = 40, 200
_DEVICE_TOKENS = 1_024  # five prompts; host memory has twice as many
_ENVIRONMENT = {
    "SGLANG_TEST_HICACHE_BACKEND_RANDOM_FAILURE": "0.1",
    "SGLANG_TEST_HICACHE_BACKEND_RANDOM_DELAY": "0.02",
}
_SETTINGS = {
    "drive": {"capacity": "128MiB", "free_floor": "1MiB"},
    "store": {"restore_deadline": "400ms", "scrub_rate": "0"},
}
# What is wrong with drives during a batch (faults.py); "rest" is the share of what lies in the
# slab that is changed before it. After each comes a batch on good drives, which repairs.
_PLANS: tuple[dict[str, Any], ...] = (
    {"flip": 0.2},
    {},
    {"rest": 0.2},
    {},
    {"short": 0.2},
    {},
    {"error": 0.1},
    {},
    {"late": 0.1, "late_s": 1.0},
    {},
    {"full": 1.0},
    {},
    {"stuck": True},
    {},
    {"flip": 0.1, "short": 0.1, "error": 0.05, "late": 0.05, "late_s": 1.0},
    {},
)

_REASONS = ("corrupt", "truncated", "io_error", "timeout")

Right = dict[int, tuple[int, ...]]


@pytest.fixture(scope="module")
def drive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server keeps its pages."""
    return tmp_path_factory.mktemp("kv")


@pytest.fixture(scope="module")
def server(sglang: Any, tiny_llama: Path, drive: Path) -> Server:
    """A server with little memory, in float32, with SGLang's hooks on."""
    settings = {**_SETTINGS, "drive": {**_SETTINGS["drive"], "path": str(drive)}}
    tokens = ("--dtype", "float32", "--max-total-tokens", str(_DEVICE_TOKENS))
    started: Server = sglang(
        model=tiny_llama,
        entry=pagoda_entry(drive, settings),
        arguments=tokens,
        environment=_ENVIRONMENT,
    )
    return started


@pytest.fixture(scope="module")
def right(server: Server) -> Right:
    """The answer to each prompt as it is computed when no cache can have any of it."""
    answers: Right = {}
    for number in range(_PROMPTS):
        answer = server.ask(_prompt(number), salt=f"computed {number}")
        assert answer.cached == 0
        answers[number] = answer.tokens
    assert len(set(answers.values())) == _PROMPTS, "answers depend on their prompts"
    return answers


def _prompt(number: int) -> Prompt:
    return prompt_of(1_000 + number, _PROMPT_TOKENS)


def _ask(server: Server, numbers: list[int]) -> list[tuple[int, Answer]]:
    """Answers to prompts, a few at a time."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = list(pool.map(lambda number: server.ask(_prompt(number)), numbers))
    return list(zip(numbers, answers, strict=True))


def _batches(rng: Random) -> Iterator[list[int]]:
    for _ in range(_REQUESTS // _BATCH):
        yield [rng.randrange(_PROMPTS) for _ in range(_BATCH)]


def test_no_token_is_wrong_in_a_thousand_requests_under_faults(
    server: Server, drive: Path, right: Right
) -> None:
    """Bits flipped on the way and at rest, reads cut short, EIO, late and stuck reads, a full
    drive: every kind was met, much was restored, and every answer is the computed one."""
    rng = Random(_SEED)
    _ask(server, list(range(_PROMPTS)))  # stores all
    restored = server.total(RESTORED)
    asked, stored, wrong = 0, 0, []
    for number, (numbers, plan) in enumerate(
        zip(_batches(rng), islice(cycle(_PLANS), _REQUESTS), strict=False)
    ):
        if "rest" in plan:
            change_payloads(drive, share=plan["rest"], seed=number)
        server.break_drives(seed=number, **plan)
        for prompt, answer in _ask(server, numbers):
            asked += 1
            stored += answer.stored
            if answer.tokens != right[prompt]:
                wrong.append((number, prompt))
    server.break_drives()
    assert asked == _REQUESTS
    assert wrong == []
    print(f"{stored} of {asked * _PROMPT_TOKENS} tokens of prompts came out of storage")
    assert stored > 0
    server.wait_for(RESTORED, restored + 1)
    refused = {reason: server.total(REFUSED, reason=reason) for reason in _REASONS}
    print(refused)
    assert all(refused.values()), refused
    assert server.total(SKIPPED, reason="full") > 0


def test_the_same_with_the_seals_check_off_is_noticed(
    server: Server, drive: Path, right: Right
) -> None:
    """The twin: what is changed below a seal that nobody checks makes wrong tokens."""
    _ask(server, list(range(_PROMPTS)))
    change_payloads(drive)
    server.break_drives(unsealed=True)
    answers = _ask(server, list(range(_PROMPTS)))
    assert any(answer.tokens != right[number] for number, answer in answers)
