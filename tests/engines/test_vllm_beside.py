"""PagodaTier beside vLLM's own connector for handing prompts from one engine to another: both
work under a MultiConnector, each with what the other has not.

vLLM's ExampleConnector stands for those that need a network between GPUs (NIXL, Mooncake): it has
the same place in vLLM, and hands over through a directory.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from vllm_harness import Child, pagoda_tier, story, total

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]

_PROMPT_TOKENS, _CACHED_TOKENS = 700, 640
_HANDED, _KEPT = story(1), story(2)

Start = Callable[..., Child]


@pytest.fixture
def begin(start: Start, tmp_path: Path) -> Callable[[], Child]:
    """Starts an engine with both connectors, over the same directories each time."""
    (tmp_path / "handed").mkdir()
    extra = {"shared_storage_path": str(tmp_path / "handed")}
    beside = {"kv_connector": "ExampleConnector", "kv_connector_extra_config": extra}

    def both() -> Child:
        child = start(pagoda_tier(tmp_path / "kv"), beside=beside)
        assert "ready" in child.began, child.began
        return child

    return both


def _ask(child: Child, text: str) -> dict[str, Any]:
    return child.ask(text, length=_PROMPT_TOKENS)


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return bool(one["tokens"] == other["tokens"] and one["logprobs"] == other["logprobs"])


def test_both_connectors_bring_back_what_the_other_has_not(
    begin: Callable[[], Child], tmp_path: Path
) -> None:
    """After a restart one prompt is handed over, and one that was not is restored from the drive;
    both answers are the local hits'. That the first came from the other connector is seen when
    its files are changed: then the answer is."""
    first = begin()
    local, folders = {}, {}
    for text in (_HANDED, _KEPT):
        before = set((tmp_path / "handed").iterdir())
        assert _ask(first, text)["cached"] == 0
        [folders[text]] = set((tmp_path / "handed").iterdir()) - before
        local[text] = _ask(first, text)
        assert local[text]["cached"] == _CACHED_TOKENS
    first.close()
    shutil.rmtree(folders[_KEPT])

    second = begin()
    for text in (_HANDED, _KEPT):
        answer = _ask(second, text)
        assert answer["cached"] == _CACHED_TOKENS
        assert _same(answer, local[text])
    assert total(second, "pagoda_restored_bytes_total") > 0
    second.do("reset")
    for file in folders[_HANDED].glob("*.safetensors"):
        _change(file)
    assert not _same(_ask(second, _HANDED), local[_HANDED])


def _change(file: Path) -> None:
    """Turn a bit of every second byte of a tensor over; the file's head says where they begin."""
    content = bytearray(file.read_bytes())
    start = 8 + int.from_bytes(content[:8], "little")
    content[start + 1 :: 2] = bytes(byte ^ 1 for byte in content[start + 1 :: 2])
    file.write_bytes(content)
