"""What memory a host can carry, read from captured trees; pinning in chunks."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.cuda import FakeDriver

from pagoda.machine.buffers import address, aligned_buffer
from pagoda.machine.cuda import Cuda, CudaError
from pagoda.machine.registration import Registration, lock_bound, memory_bounds
from pagoda.machine.tree import HostTree

MIB = 1 << 20
PAGE = 4096


def tree(root: Path, **files: str) -> HostTree:
    """A captured host: paths with `__` for `/` and `_dot_` for a dot."""
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return HostTree(root)


def test_free_memory_is_a_bound(tmp_path: Path) -> None:
    """MemAvailable, in bytes."""
    (found,) = memory_bounds(tree(tmp_path, proc__meminfo="MemAvailable:    2048 kB\n"))
    assert found.name.startswith("available memory")
    assert found.free_bytes == 2 * MIB


@pytest.mark.parametrize(
    ("files", "path"),
    [
        (
            {
                "sys__fs__cgroup__memory_dot_max": "1000000",
                "sys__fs__cgroup__memory_dot_current": "700000",
                "sys__fs__cgroup__memory_dot_stat": "anon 500000\ninactive_file 100000\n",
            },
            "/sys/fs/cgroup/memory.max",
        ),
        (
            {
                "sys__fs__cgroup__memory__memory_dot_limit_in_bytes": "1000000",
                "sys__fs__cgroup__memory__memory_dot_usage_in_bytes": "700000",
                "sys__fs__cgroup__memory__memory_dot_stat": "inactive_file 1\n"
                "total_inactive_file 100000\n",
            },
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        ),
    ],
)
def test_a_control_group_bounds_what_it_does_not_use(
    tmp_path: Path, files: dict[str, str], path: str
) -> None:
    """Limit minus use, in both versions. Cold pages of files count as free: the kernel gives
    them back, and a group that has read a model is full of them."""
    (found,) = memory_bounds(tree(tmp_path, **files))
    assert path in found.name
    assert (found.limit_bytes, found.free_bytes) == (1_000_000, 400_000)


def test_an_unlimited_group_is_no_bound(tmp_path: Path) -> None:
    """ "max" limits nothing."""
    assert memory_bounds(tree(tmp_path, sys__fs__cgroup__memory_dot_max="max")) == []


def test_the_lock_limit_binds_those_without_the_capability(tmp_path: Path) -> None:
    """RLIMIT_MEMLOCK, unless it is unlimited or CAP_IPC_LOCK lifts it."""
    row = "Max locked memory         65536                65536                bytes\n"
    host = tree(tmp_path, proc__self__limits=row, proc__self__status="CapEff:\t0000000000000000\n")
    found = lock_bound(host)
    assert found is not None
    assert found.limit_bytes == 65_536
    assert "ulimit -l" in found.remedy
    lifted = tree(tmp_path, proc__self__status="CapEff:\t0000000000004000\n")
    assert lock_bound(lifted) is None


def test_every_page_is_pinned_once_and_unpinned() -> None:
    """Chunks lie behind each other, the last one shorter, and no unit is in two of them."""
    driver = FakeDriver()
    memory = memoryview(aligned_buffer(10 * 3 * PAGE))
    start = address(memory)
    unit, chunk = 3 * PAGE, 8 * PAGE  # two units a chunk
    found = Registration(Cuda(driver), memory, unit_bytes=unit, chunk_bytes=chunk)
    assert driver.pinned == {start + i * 2 * unit: 2 * unit for i in range(5)}
    assert found.chunks == 5
    found.release()
    found.release()
    assert driver.pinned == {}


def test_a_unit_larger_than_a_chunk_is_pinned_whole() -> None:
    """A device could not copy a block that lies in two registrations."""
    driver = FakeDriver()
    memory = memoryview(aligned_buffer(4 * PAGE))
    Registration(Cuda(driver), memory, unit_bytes=2 * PAGE, chunk_bytes=PAGE)
    assert sorted(driver.pinned.values()) == [2 * PAGE, 2 * PAGE]


def test_a_refused_chunk_leaves_nothing_pinned() -> None:
    """The driver gives up half-way: the first half is unpinned."""
    driver = FakeDriver(limit_bytes=3 * PAGE)
    memory = memoryview(aligned_buffer(8 * PAGE))
    with pytest.raises(CudaError, match="OUT_OF_MEMORY"):
        Registration(Cuda(driver), memory, unit_bytes=PAGE, chunk_bytes=2 * PAGE)
    assert driver.pinned == {}
