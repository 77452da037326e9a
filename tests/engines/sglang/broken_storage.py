"""A storage of SGLang that serves wrong bytes on purpose: what `pagoda verify` has to notice.

    {"module_path": "broken_storage", "class_name": "BrokenStorage", …as for PagodaStorage…}

It is sound until there is a file at the path in BROKEN_STORAGE, which says in what way it is
wrong: "bits" (the lowest bit of every second byte of a restored page is turned over) or "another"
(a page comes back with the content of one that was stored under another name). Both are done
after the seal was checked: nothing but the answers can tell.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import numpy as np

from pagoda.connect.sglang import PagodaStorage

_KEPT = 64  # pages of other prompts


class BrokenStorage(PagodaStorage):
    """PagodaStorage, but for what it restores."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._fault = Path(os.environ["BROKEN_STORAGE"])
        self._kept: dict[str, list[Any]] = {}

    def _set(self, pool: str, keys: Any, indices: Any) -> list[bool]:
        for key, page in zip(keys, self._pages(indices, len(keys)), strict=True):
            if len(self._kept) < _KEPT:
                self._kept[key] = [part.copy() for part in page]
        return super()._set(pool, keys, indices)

    def _get(self, pool: str, keys: Any, indices: Any) -> list[bool]:
        good = super()._get(pool, keys, indices)
        fault = self._fault.read_text() if self._fault.exists() else ""
        others = [page for key, page in self._kept.items() if key not in keys]
        for number, page in enumerate(self._pages(indices, len(keys))):
            for part, wrong in zip(page, others[number % len(others)], strict=True):
                if good[number] and fault == "bits":
                    part[1::2] ^= 1
                if good[number] and fault == "another":
                    part[:] = wrong
        return good

    def _pages(self, indices: Any, count: int) -> list[list[Any]]:
        """The bytes of pages in host memory, in the parts in which they lie there."""
        pointers, sizes = self.mem_pool_host.get_page_buffer_meta(indices)
        parts = [
            np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(pointer))
            for pointer, size in zip(pointers, sizes, strict=True)
        ]
        each = len(parts) // count
        return [parts[first : first + each] for first in range(0, len(parts), each)]
