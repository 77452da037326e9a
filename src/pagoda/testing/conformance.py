"""What every tier must do. A third party's tier runs it in five lines:

class TestMyTier(TierConformance):
    @pytest.fixture
    def tier(self):
        yield MyTier(slots=8, slot_bytes=4096)
"""

from __future__ import annotations

from collections.abc import Callable

from pagoda.machine.buffers import aligned_buffer
from pagoda.seal.header import HEADER_BYTES
from pagoda.tiers.port import Tier


def payload_of(tier: Tier, seed: int) -> memoryview:
    """A page-aligned payload that fills a slot and differs for each seed."""
    size = tier.geometry.slot_bytes
    buffer = memoryview(aligned_buffer(size))[:size]
    buffer[:] = bytes((seed * 31 + i * 7) % 251 for i in range(size))
    return buffer


def buffer_for(tier: Tier) -> memoryview:
    """An empty page-aligned buffer for one slot."""
    return memoryview(aligned_buffer(tier.geometry.slot_bytes))[: tier.geometry.slot_bytes]


def header_of(seed: int) -> bytes:
    """Some header; a tier does not look into it."""
    return bytes([seed % 255 + 1]) * HEADER_BYTES


def put(tier: Tier, slots: list[int], seeds: list[int]) -> None:
    """Reserve, write and commit."""
    tier.reserve(slots)
    tier.write(slots, [payload_of(tier, seed) for seed in seeds])
    tier.commit(slots, [header_of(seed) for seed in seeds])


class TierConformance:
    """Tests for pytest; a subclass gives a `tier` fixture with at least 8 free slots."""

    def test_it_gives_back_what_it_was_given(self, tier: Tier) -> None:
        """A committed payload is read back byte for byte."""
        put(tier, [3], [1])
        buffer = buffer_for(tier)
        assert tier.read([3], [buffer]) == [len(buffer)]
        assert buffer == payload_of(tier, 1)

    def test_batches_keep_payloads_apart(self, tier: Tier) -> None:
        """Runs and gaps in one call, in any order, end up in their own slots."""
        slots, seeds = [5, 1, 2, 3, 7], [10, 11, 12, 13, 14]
        put(tier, slots, seeds)
        order = [2, 7, 5, 3, 1]
        buffers = [buffer_for(tier) for _ in order]
        tier.read(order, buffers)
        by_slot = dict(zip(slots, seeds, strict=True))
        for slot, buffer in zip(order, buffers, strict=True):
            assert buffer == payload_of(tier, by_slot[slot])

    def test_a_short_buffer_reads_the_front_of_a_slot(self, tier: Tier) -> None:
        """A payload shorter than its slot is read without the rest."""
        put(tier, [0], [5])
        size = tier.geometry.slot_bytes // 2
        buffer = buffer_for(tier)[:size]
        assert tier.read([0], [buffer]) == [size]
        assert buffer == payload_of(tier, 5)[:size]

    def test_buffers_of_any_alignment_work(self, tier: Tier) -> None:
        """An odd address and an odd length cost a copy, not a failure."""
        size = tier.geometry.slot_bytes
        odd = memoryview(bytearray(size + 64))[13 : 13 + size - 7]
        odd[:] = payload_of(tier, 8)[: len(odd)]
        tier.reserve([4])
        tier.write([4], [odd])
        tier.commit([4], [header_of(8)])
        back = memoryview(bytearray(size + 64))[29 : 29 + len(odd)]
        assert tier.read([4], [back]) == [len(odd)]
        assert back == odd

    def test_a_scan_finds_what_was_committed(self, tier: Tier) -> None:
        """Every committed header, at its slot, and no other."""
        put(tier, [6, 2], [3, 4])
        tier.reserve([1])
        tier.write([1], [payload_of(tier, 9)])  # never committed
        assert dict(tier.scan()) == {6: header_of(3), 2: header_of(4)}

    def test_reserving_and_freeing_erase_headers(self, tier: Tier) -> None:
        """A slot that is about to be overwritten, or was freed, is not found again."""
        put(tier, [0, 1, 2], [1, 2, 3])
        tier.free([0])
        tier.reserve([1])
        assert dict(tier.scan()) == {2: header_of(3)}

    def test_a_slot_can_be_reused(self, tier: Tier) -> None:
        """The newer payload and header replace the older ones."""
        put(tier, [2], [1])
        put(tier, [2], [2])
        buffer = buffer_for(tier)
        tier.read([2], [buffer])
        assert buffer == payload_of(tier, 2)
        assert dict(tier.scan()) == {2: header_of(2)}

    def test_empty_batches_do_nothing(self, tier: Tier) -> None:
        """No slots, no effect."""
        tier.reserve([])
        tier.write([], [])
        tier.commit([], [])
        tier.free([])
        assert tier.read([], []) == []
        assert list(tier.scan()) == []


class DurableTierConformance(TierConformance):
    """For tiers that survive a restart; a subclass also gives a `reopen` fixture: a function
    that closes the tier and returns it opened anew."""

    def test_a_restart_keeps_what_was_committed(
        self, tier: Tier, reopen: Callable[[], Tier]
    ) -> None:
        """Headers and payloads are there after closing and opening."""
        put(tier, [1, 4], [21, 22])
        again = reopen()
        assert dict(again.scan()) == {1: header_of(21), 4: header_of(22)}
        buffer = buffer_for(again)
        again.read([4], [buffer])
        assert buffer == payload_of(again, 22)
