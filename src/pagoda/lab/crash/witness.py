"""A Tier wrapper that tells what is committed and erased, and when. It reads headers by the
byte table of docs/design/format.md, not by the code under test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pagoda.core.identity import Key
from pagoda.lab.crash.blocks import version_of
from pagoda.lab.crash.ledger import Act, Event, Placed
from pagoda.tiers.port import Geometry, Tier

_KEY = slice(64, 96)  # in a header


class Witness:
    """A Tier that does what the inner one does, and tells `tell` of it. `position` counts the
    operations on the drive's file that have returned."""

    def __init__(
        self, inner: Tier, *, tell: Callable[[Event], None], position: Callable[[], int]
    ) -> None:
        self._inner = inner
        self._tell = tell
        self._position = position
        self._versions: dict[int, int] = {}  # of what lies in each slot

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def geometry(self) -> Geometry:
        return self._inner.geometry

    @property
    def identity(self) -> bytes:
        return self._inner.identity

    def reserve(self, slots: Sequence[int]) -> None:
        self._say(Act.OVERWRITE, slots)
        self._inner.reserve(slots)

    def write(self, slots: Sequence[int], payloads: Sequence[memoryview]) -> None:
        for slot, payload in zip(slots, payloads, strict=True):
            self._versions[slot] = version_of(payload)
        self._inner.write(slots, payloads)

    def commit(self, slots: Sequence[int], headers: Sequence[bytes]) -> None:
        blocks = tuple(
            Placed(slot, Key(header[_KEY]), self._versions[slot])
            for slot, header in zip(slots, headers, strict=True)
        )
        self._say(Act.COMMIT, slots, blocks)
        self._inner.commit(slots, headers)
        self._say(Act.COMMITTED, slots, blocks)

    def read(self, slots: Sequence[int], into: Sequence[memoryview]) -> list[int]:
        return self._inner.read(slots, into)

    def free(self, slots: Sequence[int]) -> None:
        self._say(Act.OVERWRITE, slots)
        self._inner.free(slots)
        self._say(Act.ERASED, slots)

    def scan(self) -> Iterator[tuple[int, bytes]]:
        return self._inner.scan()

    def close(self) -> None:
        self._inner.close()

    def _say(self, act: Act, slots: Sequence[int], blocks: tuple[Placed, ...] = ()) -> None:
        self._tell(Event(act, self._position(), tuple(slots), blocks))
