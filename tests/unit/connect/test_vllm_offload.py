"""The store as a tier below vLLM's host memory, on real slabs, without vLLM."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pagoda.connect.counts import Counts
from pagoda.connect.opening import settings_of, store_of
from pagoda.connect.vllm.jobs import Finished
from pagoda.connect.vllm.offload import Offload
from pagoda.core.errors import DirectoryLocked, SettingsError
from pagoda.core.identity import NamespaceId
from pagoda.machine.buffers import aligned_buffer
from pagoda.store.store import Store
from pagoda.tiers.drive import DriveTier, slab

_CHUNK = 8192
_CHUNKS = 16
_SPACE = NamespaceId(bytes(range(32)))
_PATIENCE_S = 30.0


class Host:
    """An engine's host memory, and the tier below it."""

    def __init__(self, directory: Path, *, remote: str = "", **store: Any) -> None:
        self.memory = np.frombuffer(aligned_buffer(_CHUNK * _CHUNKS), np.uint8)
        self.rows = self.memory.reshape(_CHUNKS, _CHUNK)
        own = {"path": str(directory), "capacity": "8MiB", "free_floor": "1MiB"}
        patient = {"restore_deadline": "1m"} | store  # a busy machine makes no chunk late
        tree = {"drive": own, "store": patient, "remote": {"url": remote}}
        settings = settings_of(tree, None, whose="PagodaTier", environ={})
        self.counts = Counts("chunks")
        self.store: Store = store_of(
            settings, chunk_bytes=_CHUNK, chunks=_CHUNKS, observer=self.counts
        )
        self.tier = Offload(self.store, _SPACE, row=self._row, tokens=16)

    def _row(self, chunk: int) -> memoryview:
        return memoryview(self.rows[chunk]).cast("B")

    def fill(self, chunk: int, seed: int) -> bytes:
        """Random bytes in a chunk."""
        self.rows[chunk] = np.random.default_rng(seed).integers(0, 256, _CHUNK, np.uint8)
        return self.rows[chunk].tobytes()

    def finished(self, jobs: int = 1) -> list[Finished]:
        """Jobs that end within the test's patience."""
        found: list[Finished] = []
        until_s = time.monotonic() + _PATIENCE_S
        while len(found) < jobs and time.monotonic() < until_s:
            found += self.tier.finished()
            time.sleep(0.005)
        assert len(found) == jobs
        return found

    def drive(self) -> DriveTier:
        tier = self.store.levels()[0].sealed.tier
        assert isinstance(tier, DriveTier)
        return tier


Open = Callable[..., Host]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Opens the tier of a directory; all are closed at the end."""
    hosts: list[Host] = []

    def begin(directory: Path | None = None, **more: Any) -> Host:
        hosts.append(Host(directory or tmp_path / "kv", **more))
        return hosts[-1]

    yield begin
    for host in hosts:
        host.tier.close(flush_s=5.0)


def _saved(host: Host, names: Sequence[bytes]) -> list[bytes]:
    """Store a chunk of random bytes under each name."""
    contents = [host.fill(chunk, seed=chunk) for chunk in range(len(names))]
    host.tier.save(1, names, range(len(names)))
    [job] = host.finished()
    assert job.good == tuple(names)
    return contents


def test_what_was_saved_is_loaded_by_the_next_process_without_a_copy(opened: Open) -> None:
    """Bytes come back into other chunks, read straight into them."""
    names = [b"one", b"two", b"three"]
    first = opened()
    contents = _saved(first, names)
    first.tier.close(flush_s=5.0)
    second = opened()
    assert [second.tier.find(name, "r") for name in [*names, b"four"]] == [True] * 3 + [False]
    second.tier.load(7, names, [9, 4, 12])
    [job] = second.finished()
    assert (job.number, job.loads, job.good, job.bad) == (7, True, tuple(names), ())
    assert job.size_bytes == 3 * _CHUNK
    assert [second.rows[chunk].tobytes() for chunk in (9, 4, 12)] == contents
    assert second.drive().bounced == 0
    assert second.counts.take()["pagoda_restored_bytes", ("drive",)] == 3 * _CHUNK


def test_a_bad_chunk_is_forgotten_before_the_next_look_up_and_costs_no_other(opened: Open) -> None:
    """One flipped bit in the slab: that name fails, its neighbours arrive, and it is not found."""
    host = opened()
    names = [b"one", b"two", b"three"]
    contents = _saved(host, names)
    layout = slab.read_layout(host.drive().path)
    slot = host.store.levels()[0].state.slot_of(host.tier._key(b"two"))
    assert slot is not None
    with host.drive().path.open("r+b") as file:
        file.seek(layout.payload_at(slot) + 100)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
    host.tier.load(2, names, [5, 6, 7])
    [job] = host.finished()
    assert (job.good, job.bad) == ((b"one", b"three"), (b"two",))
    assert host.rows[5].tobytes() == contents[0]
    assert not host.rows[6].any()
    assert host.rows[7].tobytes() == contents[2]
    assert [host.tier.find(name, "r") for name in names] == [True, False, True]


def test_a_stuck_read_ends_at_its_deadline_and_its_chunk_is_held(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is told as failed while a thread hangs; until it comes out, its chunk is held."""
    host = opened(restore_deadline="1s")
    _saved(host, [b"one", b"two"])
    free, read = threading.Event(), DriveTier.read

    def hang(self: DriveTier, slots: Any, into: Any) -> list[int]:
        free.wait(_PATIENCE_S)
        return read(self, slots, into)

    monkeypatch.setattr(DriveTier, "read", hang)
    host.tier.load(3, [b"one", b"two"], [8, 9])
    [job] = host.finished()
    assert (job.good, job.bad) == ((), (b"one", b"two"))
    assert job.held
    assert host.tier.still_held() == set(job.held)
    assert host.tier.find(b"one", "r") is False
    free.set()
    host.tier.drain()
    assert host.tier.still_held() == set()


def test_drain_waits_for_what_is_under_way(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a write reads the engine's memory, drain does not return."""
    host = opened()
    free, write = threading.Event(), DriveTier.write

    def hang(self: DriveTier, slots: Any, payloads: Any) -> None:
        free.wait(_PATIENCE_S)
        write(self, slots, payloads)

    monkeypatch.setattr(DriveTier, "write", hang)
    host.fill(0, seed=1)
    host.tier.save(1, [b"one"], [0])
    drained = threading.Thread(target=host.tier.drain)
    drained.start()
    drained.join(timeout=0.2)
    assert drained.is_alive()
    free.set()
    drained.join(timeout=_PATIENCE_S)
    assert not drained.is_alive()
    assert host.finished()[0].good == (b"one",)


def test_writing_goes_on_while_the_scheduler_does_not_step(opened: Open) -> None:
    """Nobody asks for finished jobs, and all chunks reach the drive nevertheless."""
    host = opened()
    names = [b"%d" % number for number in range(_CHUNKS // 2)]
    for chunk, name in enumerate(names):  # one run each: the next begins once this one is taken in
        host.fill(chunk, seed=chunk)
        host.tier.save(chunk, [name], [chunk])
    until_s = time.monotonic() + _PATIENCE_S
    while not all(host.tier.find(name, "r") for name in names):
        assert time.monotonic() < until_s
        time.sleep(0.01)


def test_what_exceeds_the_queue_is_skipped_and_counted(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drive that hangs holds half of the host memory at most; the rest is dropped at once."""
    host = opened()
    free, write = threading.Event(), DriveTier.write

    def hang(self: DriveTier, slots: Any, payloads: Any) -> None:
        free.wait(_PATIENCE_S)
        write(self, slots, payloads)

    monkeypatch.setattr(DriveTier, "write", hang)
    for number in range(4):
        host.tier.save(number, [b"%d-%d" % (number, c) for c in range(_CHUNKS)], range(_CHUNKS))
    skipped = host.counts.take()["pagoda_skipped_chunks", ("drive", "busy")]
    assert 0 < skipped < 4 * _CHUNKS
    free.set()
    jobs = host.finished(4)
    assert sum(len(job.bad) for job in jobs) == skipped


def test_a_full_drive_takes_what_comes_and_drops_what_was_not_used(opened: Open) -> None:
    """By reuse, the admission of `pagoda serve`, it would take nothing more for ever: an engine
    does not tell which requests use a chunk. Asking for it is refused."""
    host = opened()
    names: list[bytes] = []
    at_once = _CHUNKS // 2  # as many as may wait
    for number in range(host.drive().geometry.slots // at_once + 2):
        names = [b"%d-%d" % (number, chunk) for chunk in range(at_once)]
        host.tier.save(number, names, range(at_once))
        [job] = host.finished()
        assert job.good == tuple(names)
    assert all(host.tier.find(name, "r") for name in names)
    assert not host.tier.find(b"0-0", "r")
    with pytest.raises(SettingsError, match=r"drive\.admission") as caught:
        settings_of({"drive": {"admission": "twice"}}, None, whose="PagodaTier", environ={})
    assert caught.value.key == "drive.admission"


def _gone(host: Host, count: int) -> list[bytes]:
    """Names that are told as gone within the test's patience."""
    found: list[bytes] = []
    until_s = time.monotonic() + _PATIENCE_S
    while len(found) < count and time.monotonic() < until_s:
        found += host.tier.announced.take_gone()
        time.sleep(0.005)
    return found


def test_chunks_that_left_are_told_once(opened: Open) -> None:
    """The tier's own thread looks after announced names, until none of the dropped ones is left."""
    host = opened()
    names = [b"one", b"two"]
    _saved(host, names)
    announced = host.tier.announced
    assert announced.add(names) == names
    assert announced.add(names) == []
    assert announced.take_gone() == []
    with host.tier._lock:
        host.store.clear()
    assert sorted(_gone(host, 2)) == sorted(names)
    assert host.tier.stats()["chunks_announced"] == 0


def test_engines_with_their_own_drives_share_through_the_remote_store(
    opened: Open, tmp_path: Path
) -> None:
    """A look-up that no drive answers is asked again until the store has said yes or no."""
    pytest.importorskip("obstore")
    (tmp_path / "shared").mkdir()
    url = f"file://{tmp_path / 'shared'}"
    first = opened(tmp_path / "a", remote=url)
    contents = _saved(first, [b"one", b"two"])
    assert first.tier.close(flush_s=_PATIENCE_S)
    second = opened(tmp_path / "b", remote=url)
    names = [b"one", b"two", b"three"]
    assert [second.tier.find(name, "r") for name in names] == [None] * 3
    second.tier.ask()
    until_s = time.monotonic() + _PATIENCE_S
    while None in (found := [second.tier.find(name, "r") for name in names]):
        assert time.monotonic() < until_s
        second.tier.finished()
    assert found == [True, True, False]
    second.tier.load(1, names[:2], [3, 4])
    assert second.finished()[0].good == (b"one", b"two")
    assert [second.rows[chunk].tobytes() for chunk in (3, 4)] == contents
    second.tier.forget("r")
    assert not second.tier._asked


def test_a_second_engine_on_the_directory_is_refused(opened: Open, tmp_path: Path) -> None:
    """The lock says who has it."""
    opened()
    with pytest.raises(DirectoryLocked, match=str(tmp_path / "kv")):
        opened()


def test_settings_need_a_place_and_leave_memory_to_vllm() -> None:
    """Neither drive nor shared store is an error; the tier in memory is vLLM's own."""
    with pytest.raises(SettingsError, match="neither a drive nor a shared store"):
        settings_of({"drive": {"path": "off"}}, None, whose="PagodaTier", environ={})
    assert (
        settings_of({"drive": {"path": "/x"}}, None, whose="PagodaTier", environ={}).host.capacity
        == 0
    )
