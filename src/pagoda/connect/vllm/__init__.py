"""Pagoda below vLLM's host memory: `{"type": "PagodaTier", "module_path": "pagoda.connect.vllm"}`
in the secondary tiers of an OffloadingConnector with a TieringOffloadingSpec; and inside it:
`"eviction_policy": "PagodaPolicy", "cache_policy_module_path": "pagoda.connect.vllm"` beside them.

vLLM is imported with one of these and not before, so that the rest can be used without it.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["PagodaPolicy", "PagodaTier"]

_MODULES = {"PagodaPolicy": "policy", "PagodaTier": "tier"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(name)
    from pagoda.connect.guard import examine  # noqa: PLC0415 - see above
    from pagoda.connect.surfaces import VLLM, require  # noqa: PLC0415
    from pagoda.connect.vllm.logs import log_as_vllm  # noqa: PLC0415

    log_as_vllm()
    require(examine(VLLM))  # before a class is derived from what may have changed
    return getattr(importlib.import_module(f"pagoda.connect.vllm.{_MODULES[name]}"), name)
