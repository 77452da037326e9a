"""The host tier's own promises: its region, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.cuda import FakeDriver

from pagoda.core.errors import CapacityError
from pagoda.machine.cuda import Cuda
from pagoda.machine.tree import HostTree
from pagoda.seal.digest import Digesting, digest
from pagoda.tiers.host import HostTier

PAGE = 4096
MIB = 1 << 20


@pytest.fixture
def host(tmp_path: Path) -> HostTree:
    """A captured machine: 1 GiB of free memory, a lock limit of 64 KiB, no capabilities."""
    files = {
        "meminfo": "MemAvailable: 1048576 kB\n",
        "self/limits": "Max locked memory    65536    65536    bytes\n",
        "self/status": "CapEff:\t0000000000000000\n",
    }
    for name, text in files.items():
        path = tmp_path / "proc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return HostTree(tmp_path)


def limit_group(host: HostTree, *, limit_bytes: int, used_bytes: int) -> None:
    """Put a captured machine's processes under a control group's limit."""
    group = host.root / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.max").write_text(str(limit_bytes))
    (group / "memory.current").write_text(str(used_bytes))


@pytest.mark.parametrize("slots", [1 << 42, 1 << 60])
def test_more_memory_than_the_machine_has_is_refused_with_a_remedy(
    slots: int, tmp_path: Path
) -> None:
    """host.capacity = "100TiB", meant as GiB, ended the start with «unexpected OSError … this is
    a bug in Pagoda». Refused whether or not the machine tells how much it has."""
    for tree in (None, HostTree(tmp_path)):
        with pytest.raises(CapacityError, match="host tier") as caught:
            HostTier(slots=slots, slot_bytes=PAGE, tree=tree)
        assert "host.capacity" in caught.value.remedy


def test_free_memory_that_is_too_little_is_named(host: HostTree) -> None:
    """Which limit, its value, and what can be done."""
    with pytest.raises(CapacityError, match="MemAvailable") as caught:
        HostTier(slots=2049, slot_bytes=MIB // 2, tree=host)
    assert caught.value.asked_bytes == 2049 * MIB // 2
    assert caught.value.limit_bytes == 1 << 30
    assert "host.capacity" in caught.value.remedy
    HostTier(slots=2048, slot_bytes=MIB // 2, tree=host).close()


def test_a_control_group_that_is_too_small_is_named(host: HostTree) -> None:
    """What it uses counts: a limit of 8 MiB with 6 MiB in use has no room for 3."""
    limit_group(host, limit_bytes=8 * MIB, used_bytes=6 * MIB)
    with pytest.raises(CapacityError, match=r"control group.*memory\.max") as caught:
        HostTier(slots=3, slot_bytes=MIB, tree=host)
    assert caught.value.limit_bytes == 2 * MIB
    HostTier(slots=2, slot_bytes=MIB, tree=host).close()


def test_the_region_is_pinned_until_the_tier_is_closed(host: HostTree) -> None:
    """Every page of all slots, once; slots of odd sizes are padded to pages."""
    driver = FakeDriver()
    tier = HostTier(slots=5, slot_bytes=PAGE + 1, cuda=Cuda(driver), tree=host)
    assert tier.pinned
    assert sum(driver.pinned.values()) == 5 * 2 * PAGE
    tier.close()
    assert driver.pinned == {}


def test_memory_is_ordinary_without_cuda(host: HostTree) -> None:
    """No driver, nothing pinned."""
    tier = HostTier(slots=1, slot_bytes=PAGE, tree=host)
    assert not tier.pinned


def test_a_refused_pinning_names_the_lock_limit(host: HostTree) -> None:
    """The driver refuses, and the lock limit is below what was asked for: it is what to raise."""
    driver = FakeDriver(limit_bytes=65_536)
    with pytest.raises(CapacityError, match=r"RLIMIT_MEMLOCK.*OUT_OF_MEMORY") as caught:
        HostTier(slots=32, slot_bytes=PAGE, cuda=Cuda(driver), tree=host)
    assert caught.value.limit_bytes == 65_536
    assert "ulimit -l" in caught.value.remedy
    assert driver.pinned == {}


def test_a_refused_pinning_below_the_lock_limit_names_the_driver(host: HostTree) -> None:
    """Nothing that Pagoda knows of is in the way: the driver's word, and how to do without."""
    driver = FakeDriver(limit_bytes=0)
    with pytest.raises(CapacityError, match=r"cannot be pinned.*OUT_OF_MEMORY") as caught:
        HostTier(slots=4, slot_bytes=PAGE, cuda=Cuda(driver), tree=host)
    assert "host.pinned" in caught.value.remedy


@pytest.mark.parametrize("size", [1, 100_000, 128 << 10, (256 << 10) + 7])
def test_what_passes_through_is_seen_whole_and_in_order(size: int, host: HostTree) -> None:
    """The digest taken on the way is that of all bytes, whichever way they travel."""
    tier = HostTier(slots=2, slot_bytes=300_000, tree=host)
    payload = memoryview(bytes(i * 7 % 251 for i in range(size)))
    down, up, back = Digesting(), Digesting(), memoryview(bytearray(size))
    tier.write_through(1, payload, down.see)
    assert tier.read_through(1, back, up.see) == size
    assert back == payload
    assert down.digest() == up.digest() == digest(payload)
