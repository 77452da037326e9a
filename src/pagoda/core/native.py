"""The compiled tables of `pagoda._native`, where they were built."""

from __future__ import annotations

import importlib
from types import ModuleType


def _tables() -> ModuleType | None:
    try:
        module = importlib.import_module("pagoda._native")
    except ImportError:
        return None
    # Without the compiled file, the folder of C sources imports as an empty namespace.
    return module if hasattr(module, "read_payloads") else None


TABLES = _tables()
