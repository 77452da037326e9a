"""The real vLLM for tests: `start` starts an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_homes import engine_python
from vllm_harness import Child, launch


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    """The interpreter that has vLLM."""
    return engine_python("vLLM", "0.32.0")


@pytest.fixture
def start(vllm_python: Path, demo_model: Path, tmp_path: Path) -> Iterator[Callable[..., Child]]:
    """Starts an engine: start(tier, …, wrong=True). All are stopped at the end of the test."""
    children: list[Child] = []

    def begin(*tiers: Any, **more: Any) -> Child:
        directory = tmp_path / f"engine-{len(children)}"
        children.append(launch(vllm_python, demo_model, directory, *tiers, **more))
        return children[-1]

    yield begin
    for child in children:
        child.close()
