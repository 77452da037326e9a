"""Real engines in processes of their own. `make test-engines` runs these; other runs skip them."""

from __future__ import annotations

from pathlib import Path

import pytest
from sglang_fixtures import sglang, sglang_python, tiny_deepseek, tiny_llama
from vllm_fixtures import start, vllm_python

__all__ = ["sglang", "sglang_python", "start", "tiny_deepseek", "tiny_llama", "vllm_python"]

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave engines alone unless they are asked for by their marker."""
    if "engines" in (config.option.markexpr or ""):
        return
    for item in items:
        if _HERE in item.path.parents:
            engine = "SGLang" if "sglang" in item.path.name else "vLLM"
            item.add_marker(pytest.mark.skip(reason=f"{engine}: `make test-engines` runs this"))
