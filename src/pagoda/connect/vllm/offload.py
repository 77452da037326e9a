"""The store as a tier below an engine's host memory: look-ups, jobs, and what became of them.

It knows vLLM's names and chunk numbers, and none of its classes. The engine's scheduler calls it
and is never kept waiting for I/O; between its steps a thread of our own takes in what has ended,
so that writing goes on while no request comes. A lock stands for the one thread that owns a
store: whoever holds it does what takes microseconds.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence

from pagoda.connect.announced import Announced
from pagoda.connect.names import NamesFile
from pagoda.connect.vllm.asked import Asked
from pagoda.connect.vllm.jobs import Finished, Job
from pagoda.connect.vllm.namespace import key_of
from pagoda.connect.withheld import ChosenRequests
from pagoda.core.identity import ROOT, Key, NamespaceId
from pagoda.store.block import Block
from pagoda.store.store import Store

_BUSY_S, _IDLE_S = 0.02, 0.5  # how often the thread looks, with and without work under way
_DRAIN_STEP_S = 0.01
_BREATH_S = 0.001  # between looks after announced chunks

Row = Callable[[int], memoryview]


class Offload:
    """One engine's chunks in a store. `row` gives the memory of a chunk by its number; `tokens`
    is how many tokens a chunk has; `names` keeps the names of announced chunks."""

    def __init__(
        self,
        store: Store,
        namespace: NamespaceId,
        *,
        row: Row,
        tokens: int,
        names: NamesFile | None = None,
    ) -> None:
        self._store = store
        self._clock = store.runtime.clock
        self._namespace = namespace
        self._row = row
        self._tokens = tokens
        self._lock = threading.Lock()
        self._jobs: list[Job] = []
        self._late: list[Job] = []  # told as over, while a thread may still write to their chunks
        self._asked: dict[str, Asked] = {}
        self._chosen = ChosenRequests(store.checks)
        self.announced = Announced(
            self._key, self._which, file=names, executor=store.runtime.executor
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._tend, name="pagoda-vllm", daemon=True)
        self._thread.start()

    # Looking up.

    def find(self, name: bytes, request: str) -> bool | None:
        """Whether a chunk could be loaded now; None: ask again once the shared store answered."""
        key = self._key(name)
        with self._lock:
            if self._store.match([key]):
                return not self._chosen.hides(request)
            if self._store.shared is None:
                return False
            return self._asked.setdefault(request, Asked()).answer(name)

    def ask(self) -> None:
        """A step is over: ask the shared store for what its look-ups did not find."""
        if self._store.shared is None:
            return
        with self._lock:
            for asked in self._asked.values():
                names = asked.take()
                if names:
                    keys = [self._key(name) for name in names]
                    asked.sent(names, self._store.probe(self._namespace, keys))

    def forget(self, request: str) -> None:
        """A request is over."""
        with self._lock:
            self._asked.pop(request, None)

    def touch(self, names: Iterable[bytes]) -> None:
        """Chunks were used."""
        keys = [self._key(name) for name in names]
        with self._lock:
            for level in self._store.levels():
                slots = [slot for key in keys if (slot := level.state.slot_of(key)) is not None]
                level.residency.touch(slots)

    # Moving.

    def load(self, number: int, names: Sequence[bytes], chunks: Sequence[int]) -> None:
        """Read chunks, each straight into its place in the engine's host memory."""
        job = self._job(number, names, chunks)
        # One prefix a chunk: one that is bad or gone costs no other.
        pairs = [
            ([self._key(name)], [self._row(chunk)])
            for name, chunk in zip(job.names, job.chunks, strict=True)
        ]
        with self._lock:
            job.restores = self._store.restore_all(pairs)
            self._jobs.append(job)

    def save(
        self, number: int, names: Sequence[bytes], chunks: Sequence[int], request: str = ""
    ) -> None:
        """Store chunks that a request has computed; first they are compared with what is there,
        if it was chosen. What exceeds the store's queue is skipped and counted."""
        job = self._job(number, names, chunks)
        job.waiting = len(job.names)
        blocks = [self._block(*pair) for pair in zip(job.names, job.chunks, strict=True)]

        def release(block: Block) -> None:
            del block
            job.waiting -= 1

        with self._lock:
            self._jobs.append(job)
            if self._chosen.chosen(request):
                job.waiting += len(blocks)
                self._store.checks.compare(blocks, release)
            self._store.save(blocks, release)

    def finished(self) -> list[Finished]:
        """Jobs that are over since the last call."""
        with self._lock:
            self._store.poll()
            over = [job for job in self._jobs if job.done]
            self._jobs = [job for job in self._jobs if not job.done]
            self._late += [job for job in over if not job.drained]
            return [self._told(job) for job in over]

    def still_held(self) -> set[int]:
        """Of the chunks that were told as held, those that still are."""
        with self._lock:
            self._late = [job for job in self._late if not job.drained]
            return set(itertools.chain.from_iterable(job.held() for job in self._late))

    def drain(self) -> None:
        """Wait until no I/O touches the engine's memory, for as long as that takes: memory that
        a stuck drive may write to must not be used for anything else."""
        while True:
            with self._lock:
                self._store.poll()
                if all(job.drained for job in (*self._jobs, *self._late)):
                    return
            self._store.runtime.executor.wait(_DRAIN_STEP_S)

    def stats(self) -> dict[str, float]:
        """What can be said at any time: chunks of each tier, how far scrubbing is, jobs under way,
        and chunks that routers were told of. Any thread."""
        with self._lock:
            counts, passes = self._store.counts(), self._store.scrub_progress()
            return {
                **{f"{name}_blocks_stored": float(count) for name, count in counts.items()},
                **{f"{name}_scrub_progress": share for name, share in passes.items()},
                "jobs_under_way": float(len(self._jobs) + len(self._late)),
                "chunks_announced": float(len(self.announced)),
            }

    def close(self, *, flush_s: float) -> bool:
        """Write what waits, within `flush_s`; False when I/O is stuck. Once is enough."""
        if self._stop.is_set():
            return True
        self._stop.set()
        self._thread.join()
        self.announced.close(flush_s)
        with self._lock:
            return self._store.close(flush_s=flush_s)

    def _key(self, name: bytes) -> Key:
        return key_of(self._namespace, name)

    def _job(self, number: int, names: Sequence[bytes], chunks: Sequence[int]) -> Job:
        return Job(
            number=number,
            names=tuple(bytes(name) for name in names),
            chunks=tuple(int(chunk) for chunk in chunks),
            began_s=self._clock(),
        )

    def _block(self, name: bytes, chunk: int) -> Block:
        return Block(
            namespace=self._namespace,
            key=self._key(name),
            parent=ROOT,  # vLLM's names do not tell
            depth=0,
            tokens=self._tokens,
            payload=self._row(chunk),
        )

    def _told(self, job: Job) -> Finished:
        loads = bool(job.restores)
        good = self._arrived(job) if loads else [self._there(self._key(n)) for n in job.names]
        return Finished(
            number=job.number,
            loads=loads,
            good=tuple(itertools.compress(job.names, good)),
            bad=tuple(name for name, well in zip(job.names, good, strict=True) if not well),
            size_bytes=sum(len(self._row(c)) for c in itertools.compress(job.chunks, good)),
            seconds=self._clock() - job.began_s,
            held=job.held(),
        )

    def _arrived(self, job: Job) -> list[bool]:
        """Which chunks a load has brought; none of a namespace that is not believed any more."""
        if self._store.quarantine.bars(self._namespace):
            return [False] * len(job.names)
        return job.arrived()

    def _there(self, key: Key) -> bool:
        if self._store.quarantine.bars(self._namespace):
            return False
        return any(level.state.slot_of(key) is not None for level in self._store.levels())

    def _which(self, keys: Sequence[Key]) -> list[bool]:
        """Which of these are there. Any thread."""
        with self._lock:
            return [self._there(key) for key in keys]

    def _tend(self) -> None:
        """Take in what ends while the scheduler does not step, and look after what was
        announced."""
        pause_s = _IDLE_S
        while not self._stop.wait(pause_s):
            self.announced.look(pause_s, lambda: self._stop.wait(_BREATH_S))
            with self._lock:
                self._store.poll()
                pause_s = _IDLE_S if self._store.idle else _BUSY_S
