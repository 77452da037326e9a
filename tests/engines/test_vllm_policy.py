"""PagodaPolicy inside a real vLLM: what it decides is what core/policy decides on its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from vllm_harness import Child, pagoda_tier, story
from vllm_policy_model import NaiveHost

from pagoda.core.policy import REGISTRY

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]

_HERE = Path(__file__).parent
_PROMPT_TOKENS, _CACHED_TOKENS = 700, 640  # five chunks of 128
_CHUNK_BYTES = 128 * 23_040
_CHUNKS = 20  # the pins of one owner may have five of them
_STORY = story(1)
_HOST = {"eviction_policy": "PagodaPolicy", "cache_policy_module_path": "pagoda.connect.vllm"}

Start = Callable[..., Child]


def _replay(calls: Path) -> NaiveHost:
    """Every call that vLLM made, decided again."""
    host = NaiveHost()
    for line in calls.read_text().splitlines():
        host.take(json.loads(line))
    return host


def _ask(child: Child, text: str, **more: Any) -> dict[str, Any]:
    return child.ask(text, length=_PROMPT_TOKENS, **more)


def test_vllms_manager_keeps_its_invariants_and_evicts_what_the_policy_names(
    vllm_python: Path, tmp_path: Path
) -> None:
    """No engine, and vLLM's own manager: under every policy, with one group of layers and with
    two, its counts hold after each call, and each eviction is decided again."""
    plan = {
        "policies": list(REGISTRY),
        "groups": [1, 2],
        "seeds": [1, 2],
        "chunks": 16,
        "steps": 1200,
        "directory": str(tmp_path),
    }
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    done = subprocess.run(
        ["nice", str(vllm_python), str(_HERE / "manager_child.py"), str(tmp_path / "plan.json")],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{_HERE.parents[1] / 'src'}:{_HERE}"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1])["refused"] > 0
    files = list(tmp_path.glob("*.jsonl"))
    assert len(files) == 4 * len(REGISTRY)
    for calls in files:
        host = _replay(calls)
        assert host.evictions > 50, calls.name
        assert host.pinned_evicted < len(host.evicted) / 5, "pinned chunks go last"


def test_a_pinned_prompt_stays_in_host_memory_and_every_eviction_is_the_policys(
    start: Start, tmp_path: Path
) -> None:
    """Under heat, more prompts come than host memory holds: the pinned one is restored from it,
    to the bit, and the one that nobody pinned is computed. Unpinned, it goes as well."""
    calls = tmp_path / "calls.jsonl"
    child = start(host_bytes=_CHUNKS * _CHUNK_BYTES, host=_HOST, recorded=str(calls))
    assert "ready" in child.began
    _ask(child, _STORY, params={"pagoda_pin": {"owner": "stories"}})
    local = _ask(child, _STORY)
    other = _ask(child, story(2))
    assert other["cached"] == 0
    _press(child, range(3, 9))
    child.do("reset-device")
    restored = _ask(child, _STORY)
    assert restored["cached"] == local["cached"] == _CACHED_TOKENS
    assert restored["tokens"] == local["tokens"]
    assert restored["logprobs"] == local["logprobs"]
    assert _ask(child, story(2), params={"pagoda_unpin": "stories"})["cached"] == 0
    _press(child, range(9, 15))
    child.do("reset-device")
    assert _ask(child, _STORY)["cached"] == 0
    host = _replay(calls)
    assert host.policy.__class__.__name__ == "Heat"
    assert len(host.evicted) >= 10 * 5
    assert host.pinned_evicted == 0


def test_promotions_from_pagodas_drives_are_decided_by_the_policy_of_its_settings(
    start: Start, tmp_path: Path
) -> None:
    """With PagodaTier below, its entry names the policy; what host memory drops is read back
    from the drive, to the bit, and each promotion makes room as that policy says."""
    calls = tmp_path / "calls.jsonl"
    tier = pagoda_tier(tmp_path / "kv", {"host": {"policy": "lru"}})
    child = start(tier, host_bytes=_CHUNKS * _CHUNK_BYTES, host=_HOST, recorded=str(calls))
    assert "ready" in child.began
    _ask(child, _STORY)
    local = _ask(child, _STORY)
    _press(child, range(2, 8))
    child.do("reset-device")
    restored = _ask(child, _STORY)
    assert restored["cached"] == local["cached"] == _CACHED_TOKENS
    assert restored["tokens"] == local["tokens"]
    assert restored["logprobs"] == local["logprobs"]
    host = _replay(calls)
    assert host.policy.__class__.__name__ == "Lru"
    assert len(host.evicted) >= 4 * 5


def _press(child: Child, seeds: range) -> None:
    """Prompts that come once."""
    for seed in seeds:
        assert _ask(child, story(seed), tokens=1)["cached"] == 0
