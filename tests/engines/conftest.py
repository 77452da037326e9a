"""Real engines in processes of their own. `make test-engines` runs these; other runs skip them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from vllm_harness import Child, launch

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave engines alone unless they are asked for by their marker."""
    if "engines" in (config.option.markexpr or ""):
        return
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="vLLM: `make test-engines` runs this"))


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    """The interpreter that scripts/engine_vllm.sh has made; VLLM_HOME names another place."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = Path(os.environ.get("VLLM_HOME") or cache / "pagoda" / "engines" / "vllm-0.32.0")
    if not (home / ".complete").exists():
        pytest.skip(f"vLLM: not in {home}; scripts/engine_vllm.sh installs it")
    return home / "bin" / "python"


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
