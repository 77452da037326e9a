"""Chunks that a stuck thread may write to are nobody's until it comes out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pagoda.connect.vllm.held import HeldChunks


class Primary:
    """vLLM's manager of host memory, as far as chunks go: fresh ones first, then the last freed."""

    def __init__(self, chunks: int) -> None:
        self.fresh = list(range(chunks))
        self.freed: list[int] = []
        self.taken: dict[bytes, int] = {}

    def prepare_store(self, keys: Any, req_context: Any) -> Any:
        [key] = keys
        chunk = self.fresh.pop(0) if self.fresh else self.freed.pop()
        self.taken[key] = chunk
        return SimpleNamespace(evicted_keys=[], store_spec=SimpleNamespace(block_ids=[chunk]))

    def complete_store(self, keys: Any, req_context: Any, success: bool = True) -> None:
        assert not success
        self.freed += [self.taken.pop(key) for key in keys]


def test_held_chunks_and_no_others_are_taken_until_they_are_free() -> None:
    """Whatever the order of the free list, just the stuck ones are taken, and given back."""
    for fresh in (0, 3):
        primary = Primary(8)
        for number in range(8 - fresh):
            primary.prepare_store([b"%d" % number], None)
        primary.complete_store([b"0", b"1", b"2", b"3"], None, success=False)
        held = HeldChunks(primary, lambda: None)
        held.hold([1, 3])
        ours = {chunk for key, chunk in primary.taken.items() if key.startswith(b"pagoda")}
        assert ours == {1, 3}
        assert len(held) == 2
        held.keep_only({3})
        assert {c for k, c in primary.taken.items() if k.startswith(b"pagoda")} == {3}
        held.keep_only(set())
        assert len(held) == 0
        assert not [key for key in primary.taken if key.startswith(b"pagoda")]


def test_names_of_held_chunks_have_the_form_of_vllms() -> None:
    """32 bytes of hash and 4 of a group, all different."""
    primary = Primary(4)
    HeldChunks(primary, lambda: None).hold([0, 1, 2])
    assert {len(key) for key in primary.taken} == {36}
    assert len(primary.taken) == 3
