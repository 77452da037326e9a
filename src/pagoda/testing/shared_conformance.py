"""What every shared store must do. A third party's store runs it in five lines:

class TestMyStore(SharedTierConformance):
    @pytest.fixture
    def tier(self):
        yield MyStore("my://address")

The store may hold other things; the suite uses names below two namespaces of its own and
deletes them first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from pagoda.tiers.remote.port import SharedTier

LARGE_BYTES = 6 << 20
_SPACES = tuple(hashlib.sha256(text).hexdigest() for text in (b"conformance a", b"conformance b"))


def name_of(number: int, *, space: int = 0) -> str:
    """A name as blocks have them."""
    return f"{_SPACES[space]}/{hashlib.sha256(bytes([number])).hexdigest()}"


def value_of(seed: int, size: int = 1000) -> list[memoryview]:
    """A value in three pieces, one of them empty; it differs for each seed."""
    whole = (hashlib.sha256(bytes([seed])).digest() * (size // 32 + 1))[:size]
    return [memoryview(whole)[:300], memoryview(b""), memoryview(whole)[300:]]


def whole_of(seed: int, size: int = 1000) -> bytes:
    """The same value in one piece."""
    return b"".join(value_of(seed, size))


def read(tier: SharedTier, numbers: Sequence[int], limit: int = 1 << 20) -> list[bytes | None]:
    """Values by number."""
    found = tier.get([name_of(i) for i in numbers], limit)
    return [None if value is None else bytes(value) for value in found]


def put(tier: SharedTier, numbers: Sequence[int], *, space: int = 0) -> None:
    """Write values whose seeds are their numbers."""
    tier.put([name_of(i, space=space) for i in numbers], [value_of(i) for i in numbers])


def emptied(tier: SharedTier) -> SharedTier:
    """The store without the suite's names."""
    for space in _SPACES:
        tier.drop(list(tier.names(f"{space}/")))
    return tier


class SharedTierConformance:
    """Tests for pytest; a subclass gives a `tier` fixture."""

    def test_it_gives_back_what_it_was_given(self, tier: SharedTier) -> None:
        """A value is read back byte for byte, whatever pieces it came in."""
        put(emptied(tier), [1])
        assert read(tier, [1]) == [whole_of(1)]

    def test_batches_keep_values_apart(self, tier: SharedTier) -> None:
        """Many names in one call, in any order, with absent ones between."""
        put(emptied(tier), range(20))
        order = [7, 3, 200, 19, 0, 3]
        assert read(tier, order) == [None if i == 200 else whole_of(i) for i in order]

    def test_absent_names_are_no_error(self, tier: SharedTier) -> None:
        """Reading, asking for and deleting what is not there."""
        put(emptied(tier), [1])
        tier.drop([name_of(9), name_of(1), name_of(9)])
        assert read(tier, [9]) == [None]
        assert tier.has([name_of(9), name_of(1)]) == [False, False]

    def test_a_newer_value_replaces_an_older_one(self, tier: SharedTier) -> None:
        """Wholly, even where the older one was longer."""
        emptied(tier).put([name_of(1)], [value_of(1, 5000)])
        tier.put([name_of(1)], [value_of(2, 400)])
        assert read(tier, [1]) == [whole_of(2, 400)]

    def test_dropping_removes_these_and_no_others(self, tier: SharedTier) -> None:
        """Of many names, those that were named."""
        put(emptied(tier), range(6))
        tier.drop([name_of(i) for i in (0, 2, 4)])
        assert tier.has([name_of(i) for i in range(6)]) == [False, True] * 3

    def test_names_are_listed_by_namespace(self, tier: SharedTier) -> None:
        """All of one prefix, however many pages that takes, and none of another."""
        put(emptied(tier), range(50))
        put(tier, range(3), space=1)
        assert set(tier.names(f"{_SPACES[0]}/")) == {name_of(i) for i in range(50)}
        assert set(tier.names(f"{_SPACES[1]}/")) == {name_of(i, space=1) for i in range(3)}
        assert {name_of(0), name_of(0, space=1)} <= set(tier.names(""))

    def test_large_values_pass_whole(self, tier: SharedTier) -> None:
        """Several of several MiB in one call."""
        names = [name_of(i) for i in range(3)]
        values = [value_of(i, LARGE_BYTES + i) for i in range(3)]
        emptied(tier).put(names, values)
        assert read(tier, range(3), LARGE_BYTES + 16) == [b"".join(pieces) for pieces in values]
        tier.drop(names)

    def test_of_a_value_beyond_the_limit_only_the_front_comes(self, tier: SharedTier) -> None:
        """Whoever writes an enormous value does not fill a reader's memory."""
        emptied(tier).put([name_of(1)], [value_of(1, 5000)])
        assert read(tier, [1], 700) == [whole_of(1, 5000)[:700]]

    def test_a_value_outlives_its_buffers(self, tier: SharedTier) -> None:
        """What was written does not change with the caller's memory, nor what was read with
        the next write."""
        buffer = bytearray(b"first" * 100)
        emptied(tier).put([name_of(1)], [[memoryview(buffer)]])
        buffer[:] = b"other" * 100
        (found,) = tier.get([name_of(1)], 1 << 20)
        tier.put([name_of(1)], [value_of(2)])
        assert found is not None
        assert bytes(found) == b"first" * 100

    def test_several_threads_use_it_at_once(self, tier: SharedTier) -> None:
        """Each gets its own values."""
        emptied(tier)

        def work(number: int) -> bool:
            put(tier, [number])
            return read(tier, [number]) == [whole_of(number)]

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(work, range(32)))

    def test_empty_batches_do_nothing(self, tier: SharedTier) -> None:
        """No names, no effect."""
        put(emptied(tier), [1])
        tier.put([], [])
        tier.drop([])
        assert tier.get([], 100) == []
        assert tier.has([]) == []
        assert tier.has([name_of(1)]) == [True]
