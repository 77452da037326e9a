"""What is written to drives in a live store: nothing twice, and once full, what is worth it."""

from __future__ import annotations

import random

import pytest
from pool_harness import Pool
from store_harness import NAMESPACE, SIZE, Harness, blocks_of, keys_of, truth

from pagoda.core.admission import REGISTRY
from pagoda.core.errors import TierFault
from pagoda.core.events import Declined, Reason, Skipped, Stored
from pagoda.core.identity import Key, chain
from pagoda.core.outcome import Hit
from pagoda.core.policy import DEFAULT, DRIVE_DEFAULT
from pagoda.core.policy import REGISTRY as POLICIES
from pagoda.core.trace import TraceRequest
from pagoda.lab.replay.one_tier import key_of
from pagoda.lab.replay.two_tiers import Costs, Sizes, TwoTiers
from pagoda.lab.replay.writing import Through
from pagoda.testing.memory_shared import MemoryShared


def stored(harness: Harness, tier: str) -> int:
    """How many blocks were written to a tier."""
    return sum(event.blocks for event in harness.told(Stored) if event.tier == tier)


def drive_of(pool: Pool, keys: list[Key]) -> list[bool]:
    """Which keys a drive holds."""
    return [bool(drives) for drives in pool.where(keys)]


def request(pool: Pool, keys: list[Key]) -> None:
    """A request computes what no tier has, stores it, and ends."""
    begun = pool.begin(keys)
    matched = pool.store.match(keys)
    if matched:
        outcomes, _ = pool.read(keys[:matched])
        assert all(isinstance(outcome, Hit) for outcome in outcomes)
    pool.store.save(blocks_of(keys)[matched:], lambda block: None, begun)
    pool.settle()
    pool.end(keys, request=begun)
    pool.settle()


def full(pool: Pool) -> None:
    """Fill the drives with blocks that nobody asks for again."""
    slots = sum(level.state.slots for level in pool.store.levels() if not level.memory)
    for salt in range(1000, 1000 + slots):
        pool.save_all(keys_of(1, salt=salt))
    assert sum(pool.blocks()) == slots


def test_a_clean_copy_is_not_written_again() -> None:
    """However often a block is used, saved and offered, it is written to a drive once, also when
    memory has lost it meanwhile."""
    pool = Pool(drives=2, upper=4)
    keys = keys_of(6)
    for _ in range(3):
        request(pool, keys)
        pool.forget_memory()
    assert sum(stored(pool, f"drive{i}") for i in range(2)) == len(keys)


def test_a_write_that_was_skipped_is_made_up_for_at_the_next_use() -> None:
    """A drive that rested while a block came to memory is offered it again while memory holds it:
    before, it was not."""
    pool = Pool(drives=1)
    keys = keys_of(4)
    pool.drives[0].tier.faults.write_error = TierFault("no", tier="drive0")
    pool.save_all(keys)
    assert {event.reason for event in pool.told(Skipped)} == {Reason.IO_ERROR}
    assert drive_of(pool, keys) == [False] * 4
    pool.drives[0].tier.faults.clear()
    pool.pass_time(100)
    request(pool, keys)
    assert drive_of(pool, keys) == [True] * 4
    assert stored(pool, "upper") == 4


def test_what_was_read_from_a_drive_comes_up_again() -> None:
    """A block that a request restored goes to memory when the request ends, from the device's
    copy, as old as it is; nothing is written to the drive."""
    pool = Pool(drives=1)
    keys = keys_of(5)
    pool.save_all(keys)
    pool.forget_memory()
    pool.clock.advance(500)
    born_s = pool.store.created_s(keys[0])
    written = stored(pool, "drive0")
    assert pool.slot("drive0", keys[0]) is not None
    restore, _ = pool.start(keys)
    pool.settle()
    assert restore.usable_blocks == 5
    pool.end(keys, created_ms=born_s * 1000)
    pool.settle()
    upper = pool.store.levels()[0]
    assert [int(upper.sealed.seals.created_s[pool.slot("upper", key)]) for key in keys] == (
        [born_s] * 5
    )
    assert stored(pool, "drive0") == written
    assert pool.released[keys[0]] == 2


def test_an_offer_from_memory_keeps_the_age() -> None:
    """A copy that is made later is as old as the block."""
    pool = Pool(drives=1)
    keys = keys_of(2)
    pool.drives[0].tier.faults.write_error = TierFault("no", tier="drive0")
    pool.save_all(keys)
    born_s = pool.store.created_s(keys[0])
    pool.drives[0].tier.faults.clear()
    pool.pass_time(300)
    pool.end(keys)
    pool.settle()
    drive = pool.level(0)
    assert int(drive.sealed.seals.created_s[pool.slot("drive0", keys[0])]) == born_s


@pytest.mark.parametrize("upper", [0, 32])
def test_a_full_drive_takes_only_what_is_worth_it(upper: int) -> None:
    """Seen once, a chain is declined once its request has ended; seen twice, it is written. With
    memory above or without."""
    pool = Pool(drives=1, slots=8, upper=upper, admission="twice")
    full(pool)
    keys = keys_of(3)
    pool.save_all(keys)
    assert not pool.told(Declined), "before a request ends nothing is known of its blocks"
    pool.end(keys)
    pool.settle()
    assert drive_of(pool, keys) == [False] * 3
    declined = pool.told(Declined)
    assert sum(event.blocks for event in declined) == 3
    assert sum(event.size_bytes for event in declined) == 3 * SIZE
    assert {event.tier for event in declined} == {"drive0"}
    pool.end(keys)
    pool.settle()
    assert drive_of(pool, keys) == [True] * 3


def test_memory_takes_what_drives_decline() -> None:
    """What wears is spared, and nothing else."""
    pool = Pool(drives=1, slots=4, upper=32, admission="twice")
    full(pool)
    request(pool, keys_of(3))
    assert stored(pool, "upper") == 4 + 3


def test_pinned_blocks_are_written_whatever_they_are_worth() -> None:
    """Who pins a block has said what it is worth."""
    pool = Pool(drives=1, slots=8, upper=32, admission="twice")
    full(pool)
    keys = keys_of(2)
    pool.level(0).residency.pinned.replace(keys)
    request(pool, keys)
    assert drive_of(pool, keys) == [True] * 2


def test_what_a_drive_declines_is_shared_all_the_same() -> None:
    """A shared store does not wear by our account."""
    shared = MemoryShared()
    pool = Pool(drives=1, slots=4, upper=32, admission="twice", shared=shared)
    full(pool)
    keys = keys_of(2)
    request(pool, keys)
    assert drive_of(pool, keys) == [False] * 2
    pool.settle()
    probe = pool.store.shared
    assert probe is not None
    assert probe.known_prefix(keys) == 2


@pytest.mark.parametrize("admission", sorted(REGISTRY))
def test_the_live_store_writes_what_the_simulator_says(admission: str) -> None:
    """Over random requests of one block each, memory and drive hold the same blocks after every
    request in a replay and in a live store."""
    rng = random.Random(5)
    pool = Pool(drives=1, slots=24, upper=8, admission=admission)
    replay = TwoTiers(
        POLICIES[DEFAULT](8),
        POLICIES[DRIVE_DEFAULT](24),
        lambda drive, size: Through(drive, REGISTRY[admission](24), block_bytes=size),
        sizes=Sizes(host=8, drive=24, block_tokens=16),
        costs=Costs(token_bytes=SIZE // 16),
    )
    names: dict[Key, Key] = {}
    for _ in range(600):
        number = min(int(rng.paretovariate(0.6)), 300)
        keys = chain(NAMESPACE, [number] * 16, block_tokens=16)
        names[key_of(number)] = keys[0]
        replay.replay(
            TraceRequest(at_s=pool.clock(), input_tokens=16, output_tokens=16, prompt=(number,))
        )
        request(pool, keys)
        for live, tier in zip(pool.store.levels(), (replay.host, replay.drive), strict=True):
            held = {names[key] for key, _ in tier.state.published()}
            assert {key for key, _ in live.state.published()} == held
    assert stored(pool, "drive0") == replay.writing.written


def test_truth_is_what_is_read_back() -> None:
    """After all the declining, what is found is right."""
    pool = Pool(drives=2, slots=8, upper=4, admission="reuse")
    rng = random.Random(3)
    for _ in range(100):
        request(pool, keys_of(rng.randint(1, 5), salt=rng.randint(0, 9)))
    for salt in range(10):
        keys = keys_of(5, salt=salt)
        matched = pool.store.match(keys)
        _, buffers = pool.read(keys[:matched])
        for key, buffer in zip(keys, buffers, strict=False):
            assert buffer == truth(key)
