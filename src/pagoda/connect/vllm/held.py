"""Chunks of vLLM's host memory that nobody may use: a thread stuck in a drive may write to them.

vLLM frees a chunk as soon as its load is told as failed, and the request goes on without it. The
thread cannot be called back, so the chunk is taken again at once, under a name of its own, and
given back when the thread has come out of the drive.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from pagoda.core.identity import DIGEST_BYTES

_GROUP = bytes(4)  # where vLLM has a chunk's group


class HeldChunks:
    """`primary` is vLLM's manager of its host memory, `context` makes what it wants to know of a
    request. Scheduler's thread, within one call of it: nobody allocates in between."""

    def __init__(self, primary: Any, context: Callable[[], Any]) -> None:
        self._primary = primary
        self._context = context
        self._numbers = itertools.count()
        self._names: dict[int, bytes] = {}  # by chunk

    def __len__(self) -> int:
        return len(self._names)

    def hold(self, chunks: Sequence[int]) -> None:
        """Take chunks that were freed just now."""
        wanted = set(chunks)
        others: list[bytes] = []
        while wanted:
            name, chunk = self._allocate()
            if chunk in wanted:
                wanted.remove(chunk)
                self._names[chunk] = name
            else:
                others.append(name)
        self._free(others)

    def keep_only(self, chunks: set[int]) -> None:
        """Give back all but these."""
        over = [chunk for chunk in self._names if chunk not in chunks]
        self._free([self._names.pop(chunk) for chunk in over])

    def _allocate(self) -> tuple[bytes, int]:
        number = next(self._numbers)
        name = b"pagoda-held".ljust(DIGEST_BYTES - 8, b"\0") + number.to_bytes(8, "big") + _GROUP
        output = self._primary.prepare_store([name], self._context())
        assert output is not None, "a chunk that was freed just now is free"
        assert not output.evicted_keys, "a chunk that was freed just now needs no other's place"
        return name, int(output.store_spec.block_ids[0])

    def _free(self, names: Sequence[bytes]) -> None:
        if names:
            self._primary.complete_store(names, self._context(), success=False)
