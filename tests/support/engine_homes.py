"""Where the virtual environments of real engines are (scripts/engine_*.sh)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def engine_python(engine: str, version: str) -> Path:
    """The interpreter of an engine such as "vLLM"; VLLM_HOME names another place. Skips a test
    when it is not there."""
    name = engine.lower()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    usual = cache / "pagoda" / "engines" / f"{name}-{version}"
    home = Path(os.environ.get(f"{name.upper()}_HOME") or usual)
    if not (home / ".complete").exists():
        pytest.skip(f"{engine}: not in {home}; scripts/engine_{name}.sh installs it")
    return home / "bin" / "python"
