"""Pages of SGLang's host memory that a thread stuck in a drive may still touch.

SGLang frees a page as soon as its prefetch is told as failed, or its backup as over, and gives it
to another request. A thread in the kernel cannot be called back, so such a page must not come back
to its pool before the thread has come out. Nor may the pool have fewer pages meanwhile: the ranks
of a server decide alike because their pools have equally many free ones. So a few pages of each
pool are set aside at the start, on every rank alike; when SGLang frees a held page it is given one
of those, and the held one takes its place among them once its I/O has ended. No more pages are
read and written in place at a time than are set aside.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

Ended = Callable[[], bool]

_ASIDE_BYTES = 128 << 20  # two windows: one is read while another is written
_ASIDE_SHARE = 16  # at most this part of a pool


def aside_of(pages: int, page_bytes: int) -> int:
    """How many of a pool's pages to set aside; 0 where they are too few or too large for that."""
    aside = min(-(-_ASIDE_BYTES // page_bytes), pages // _ASIDE_SHARE)
    return aside if aside > 1 else 0


class GuardedPool:
    """A host pool whose `free` and `clear` come by here. Any thread. A page is known by its first
    index, counted in pages of `tokens` indices."""

    def __init__(self, pool: Any, *, tokens: int, aside: int) -> None:
        self._pool = pool
        self._tokens = tokens
        self._lock = threading.RLock()
        self._free, self._clear = pool.free, pool.clear
        self._busy = 0  # pages that are read or written in place, or held
        self._held: dict[int, list[Ended]] = {}
        self._owed: set[int] = set()  # of those, the ones that SGLang has freed
        self._short = 0  # of those, the ones that no page was given for
        self._aside = self._take(aside)
        self.limit = len(self._aside)
        self._mine = (self._freed, self._cleared)
        pool.free, pool.clear = self._mine

    def __len__(self) -> int:
        """How many pages are held."""
        return len(self._held)

    def begin(self, pages: int) -> int:
        """How many of `pages` may be read or written in place now."""
        with self._lock:
            granted = min(pages, max(1, self.limit // 2), self.limit - self._busy)
            self._busy += granted
            return granted

    def end(self, indices: Any, ended: Iterable[Ended]) -> None:
        """What began is over for SGLang; a page whose I/O has not `ended` is held until then."""
        with self._lock:
            for page, over in zip(self._pages(indices), ended, strict=True):
                if over():
                    self._busy -= 1
                else:
                    self._held.setdefault(page, []).append(over)

    def withdraw(self, indices: Any) -> None:
        """What was to begin does not."""
        with self._lock:
            self._busy -= len(self._pages(indices))

    def settle(self) -> None:
        """Take back what is not touched any more."""
        with self._lock:
            for page, waiting in list(self._held.items()):
                if not all(ended() for ended in waiting):
                    continue
                del self._held[page]
                self._busy -= len(waiting)
                if page in self._owed:
                    self._owed.remove(page)
                    self._keep(page)

    def leave(self) -> bool:
        """The pool is as it was; False while pages of it are held."""
        with self._lock:
            if self._held:
                return False
            own = vars(self._pool)
            if (own.get("free"), own.get("clear")) == self._mine:
                del self._pool.free, self._pool.clear
            self._give(self._aside)
            self._aside, self.limit = [], 0
            return True

    def _freed(self, indices: Any) -> Any:
        with self._lock:
            if not self._held:
                return self._free(indices)
            pages = self._pages(indices)
            good = [page for page in pages if page not in self._held]
            for page in pages:
                if page in self._held:
                    self._owed.add(page)
                    if self._aside:
                        good.append(self._aside.pop())
                    else:
                        self._short += 1
            self._give(good)
            return len(indices)

    def _cleared(self) -> None:
        """All pages are free, but as many as are set aside: the held ones among them."""
        with self._lock:
            self._clear()
            everything = self._take(int(self._pool.available_size()) // self._tokens)
            others = [page for page in everything if page not in self._held]
            spare = max(0, self.limit - len(self._held))
            self._owed, self._short = set(self._held), 0
            self._aside, rest = others[:spare], others[spare:]
            self._give(rest)

    def _keep(self, page: int) -> None:
        if self._short:
            self._short -= 1
            self._give([page])
        else:
            self._aside.append(page)

    def _take(self, pages: int) -> list[int]:
        indices = self._pool.alloc(pages * self._tokens) if pages else None
        return [] if indices is None else self._pages(indices)

    def _give(self, pages: list[int]) -> None:
        if pages:
            first = np.asarray(pages, dtype=np.int64)[:, None] * self._tokens
            self._free(torch.from_numpy((first + np.arange(self._tokens)).reshape(-1)))

    def _pages(self, indices: Any) -> list[int]:
        return [int(index) // self._tokens for index in indices[:: self._tokens].tolist()]
