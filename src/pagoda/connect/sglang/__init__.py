"""Pagoda below SGLang's host memory: a dynamic backend of its hierarchical cache, with
`"module_path": "pagoda.connect.sglang", "class_name": "PagodaStorage"`.

SGLang is imported with `PagodaStorage` and not before, so that the rest can be used without it.
"""

from __future__ import annotations

from typing import Any

__all__ = ["PagodaStorage"]


def __getattr__(name: str) -> Any:
    if name != "PagodaStorage":
        raise AttributeError(name)
    from pagoda.connect.guard import examine  # noqa: PLC0415 - see above
    from pagoda.connect.surface_sglang import SGLANG  # noqa: PLC0415
    from pagoda.connect.surfaces import require  # noqa: PLC0415

    require(examine(SGLANG))  # before a class is derived from what may have changed
    from pagoda.connect.sglang.storage import PagodaStorage  # noqa: PLC0415

    return PagodaStorage
