"""Which blocks those who route requests believe to be here.

What is stored is announced when it is, what an earlier process stored when the tier is opened, and
what is gone within `_ROUND_S` of going. The scheduler adds and takes; the tier's own thread looks,
a few chunks at a time, so that no step of the engine pays for it.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from pagoda.connect.names import NamesFile
from pagoda.core.identity import Key
from pagoda.store.executor import Executor, Kind, Lane

_ROUND_S = 20.0  # in which every chunk is looked after once
_SLICE = 64  # looked after without a pause
_AT_ONCE = 256  # found at the opening, and told in one step
_OLD_NAMES = 4096  # names of chunks that are gone, before a file of names is written anew
_LANE = Lane("names", Kind.CHECK)

KeyOf = Callable[[bytes], Key]
There = Callable[[Sequence[Key]], list[bool]]


class Announced:
    """Names of announced chunks. `there` says which of some keys are held, from any thread;
    `file` keeps the names for the next process, written by `executor`."""

    def __init__(
        self, key_of: KeyOf, there: There, *, file: NamesFile | None, executor: Executor
    ) -> None:
        self._key_of, self._there = key_of, there
        self._file, self._executor = file, executor
        self._lock = threading.Lock()
        self._names: dict[bytes, None] = {}
        self._gone: deque[bytes] = deque()
        self._found: deque[bytes] = deque()
        self._filed = 0  # names in the file
        if file is not None:
            self._open(file)

    def __len__(self) -> int:
        return len(self._names)

    @property
    def untold(self) -> bool:
        """Whether chunks of an earlier process have still to be told."""
        return bool(self._found)

    def add(self, names: Iterable[bytes]) -> list[bytes]:
        """Those of stored chunks that were not announced before; now they are."""
        with self._lock:
            news = [name for name in dict.fromkeys(names) if name not in self._names]
            self._names.update(dict.fromkeys(news))
        if news and self._file is not None:
            self._keep(self._file, news)
        return news

    def take_found(self) -> list[bytes]:
        """Some of what an earlier process stored."""
        return [self._found.popleft() for _ in range(min(_AT_ONCE, len(self._found)))]

    def take_gone(self) -> list[bytes]:
        """Announced chunks that are not there any more."""
        return [self._gone.popleft() for _ in range(len(self._gone))]

    def look_after(self, names: Iterable[bytes]) -> None:
        """See whether these are still there."""
        with self._lock:
            some = [name for name in names if name in self._names]
        self._look(some)

    def look(self, since_s: float, pause: Callable[[], object]) -> None:
        """Look after as many as are due when the last look was `since_s` ago; `pause` is called
        now and then."""
        due = max(_SLICE, round(len(self._names) * min(1.0, since_s / _ROUND_S)))
        for first in range(0, min(due, len(self._names)), _SLICE):
            if first:
                pause()
            with self._lock:
                some = list(itertools.islice(self._names, min(_SLICE, due - first)))
            self._look(some)

    def close(self, timeout_s: float) -> None:
        """Wait until the file has what it was given; nothing is kept any more."""
        if self._file is not None:
            self._file, written = None, threading.Event()
            self._executor.submit(_LANE, written.set)
            written.wait(timeout_s)

    def _look(self, names: Sequence[bytes]) -> None:
        held = self._there([self._key_of(name) for name in names])
        with self._lock:
            for name, there in zip(names, held, strict=True):
                if name not in self._names:
                    continue  # it was found gone meanwhile
                del self._names[name]
                if there:
                    self._names[name] = None  # its next turn comes after all others'
                else:
                    self._gone.append(name)

    def _open(self, file: NamesFile) -> None:
        names = file.read()
        held = self._there([self._key_of(name) for name in names])
        self._names = dict.fromkeys(itertools.compress(names, held))
        self._found.extend(self._names)
        self._filed = len(self._names)
        if len(names) > self._filed:
            file.write(self._names)

    def _keep(self, file: NamesFile, news: Sequence[bytes]) -> None:
        self._filed += len(news)
        if self._filed <= 2 * len(self._names) + _OLD_NAMES:
            self._executor.submit(_LANE, lambda: file.append(news))
            return
        with self._lock:
            all_names = list(self._names)
        self._filed = len(all_names)
        self._executor.submit(_LANE, lambda: file.write(all_names))
