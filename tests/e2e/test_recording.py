"""A recording of a real server, replayed: the simulator hits what the server had cached."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from pagoda.core.policy import Lru
from pagoda.lab.replay.files import read_trace
from pagoda.lab.replay.one_tier import OneTier
from pagoda.lab.server_process import ServerProcess

pytestmark = pytest.mark.engine

STORY = "The keeper climbed the stairs every evening, lit the lamp and wrote a line of the wind. "
# Its end differs by more tokens than the engine computes anew whatever is cached.
QUESTION = "Tell me in a few words what the keeper of the lighthouse did every evening, and why."


def ask(url: str, messages: list[dict[str, str]], *, salt: str) -> tuple[str, int, int]:
    """The answer, its prompt's tokens, and how many of them were cached."""
    body = {"messages": messages, "max_tokens": 24, "temperature": 0, "cache_salt": salt}
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=120).json()
    usage = answer["usage"]
    return (
        answer["choices"][0]["message"]["content"],
        usage["prompt_tokens"],
        usage["prompt_tokens_details"]["cached_tokens"],
    )


def test_a_replay_hits_what_the_server_had_cached(demo_model: Path, tmp_path: Path) -> None:
    """Three conversations, two of them with one beginning, turn by turn: each request of the
    replay hits as many tokens as the server found, answers of earlier turns among them."""
    told: list[tuple[int, int]] = []
    recording = tmp_path / "day.jsonl"
    flags = ["--model", str(demo_model), "--record", str(recording), "--drive-path", "off"]
    with ServerProcess(flags, log=tmp_path / "log") as server:
        for salt, story in (("a", 2), ("a", 2), ("b", 2)):
            messages = [{"role": "system", "content": STORY * story}]
            for _turn in range(2):
                messages.append({"role": "user", "content": f"{len(told)}. {QUESTION}"})
                answer, prompt, cached = ask(server.url, messages, salt=salt)
                messages.append({"role": "assistant", "content": answer})
                told.append((prompt, cached))
    trace = read_trace(recording).trace
    tier = OneTier(Lru(4096), capacity=4096, block_tokens=trace.block_tokens)
    replayed = [(request.input_tokens, tier.replay(request)) for request in trace.requests]
    assert replayed == told
    assert [cached > 0 for _, cached in told] == [False, True, True, True, False, True]
    text = recording.read_text()
    assert "keeper" not in text
    assert str(demo_model) not in text
