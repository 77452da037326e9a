"""Pagoda below vLLM's host memory: `{"type": "PagodaTier", "module_path": "pagoda.connect.vllm"}`
in the secondary tiers of an OffloadingConnector with a TieringOffloadingSpec.

vLLM is imported with `PagodaTier` and not before, so that the rest can be used without it.
"""

from __future__ import annotations

from typing import Any

__all__ = ["PagodaTier"]


def __getattr__(name: str) -> Any:
    if name != "PagodaTier":
        raise AttributeError(name)
    from pagoda.connect.guard import examine  # noqa: PLC0415 - see above
    from pagoda.connect.surfaces import VLLM, require  # noqa: PLC0415

    require(examine(VLLM))  # before a class is derived from what may have changed
    from pagoda.connect.vllm.tier import PagodaTier  # noqa: PLC0415

    return PagodaTier
