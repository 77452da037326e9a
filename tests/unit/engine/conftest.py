"""What the engine's compute tests share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode adds no folder by itself

pytest.importorskip("torch")

from pagoda.engine.native import extension


@pytest.fixture
def native_kernels() -> None:
    """Skips where the C extension was not built."""
    if extension() is None:
        pytest.skip("no C extension: pagoda._native is not built")
