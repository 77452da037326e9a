"""A tier of vLLM that serves wrong bytes on purpose: what `pagoda verify` has to notice.

    {"type": "BrokenTier", "module_path": "broken_tier", "fault": PATH, …as for PagodaTier…}

It is sound until there is a file at PATH, which says in what way it is wrong: "bits" (the lowest
bit of every second byte of a restored chunk is turned over) or "another" (a chunk comes back with
the content of one that another prompt has stored). Both are done after the seal was checked:
nothing but the answers can tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pagoda.connect.vllm.tier import PagodaTier

_KEPT = 64  # chunks of other prompts


class BrokenTier(PagodaTier):
    """PagodaTier, but for what it restores."""

    def __init__(self, *args: Any, fault: str, **more: Any) -> None:
        super().__init__(*args, **more)
        self._fault = Path(fault)
        self._loads: dict[int, list[tuple[bytes, int]]] = {}
        self._stored: dict[bytes, Any] = {}

    def submit_store(self, job_metadata: Any) -> None:
        for key, chunk in zip(job_metadata.keys, job_metadata.chunk_ids, strict=True):
            if len(self._stored) < _KEPT:
                self._stored[bytes(key)] = np.array(self._rows[chunk])
        super().submit_store(job_metadata)

    def submit_load(self, job_metadata: Any) -> None:
        self._loads[job_metadata.job_id] = [
            (bytes(key), int(chunk))
            for key, chunk in zip(job_metadata.keys, job_metadata.chunk_ids, strict=True)
        ]
        super().submit_load(job_metadata)

    def get_finished_jobs(self) -> Iterator[Any]:
        for result in super().get_finished_jobs():
            loaded = self._loads.pop(result.job_id, [])
            names = {name for name, _ in loaded}
            fault = self._fault.read_text() if self._fault.exists() else ""
            for _, chunk in loaded if result.success else []:
                self._spoil(self._rows[chunk], names, fault)
            yield result

    def _spoil(self, row: Any, names: set[bytes], fault: str) -> None:
        """Turn a chunk's bytes into others, in place."""
        if fault == "bits":
            row.view(np.uint8)[1::2] ^= 1
        if fault == "another":
            row[:] = next(stored for key, stored in self._stored.items() if key not in names)
