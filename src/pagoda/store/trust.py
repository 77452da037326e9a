"""Whether a tier may be read and written now: pauses, fences, draining.

A *pause* is short and lifts by itself: the direction that failed is left alone for 5 s, then
twice as long at each further failure, up to 80 s. A *fence* stops writing until what raised
it is gone; reading goes on. Draining is a fence that an operator raises for good, and a lost
tier is neither read nor written.
"""

from __future__ import annotations

from enum import StrEnum

from pagoda.core.events import Degraded, Fenced, Observer, Reason, Unfenced
from pagoda.core.holdings import Standing

FAULTS_TO_FENCE = 5  # failures of one direction, with no success between them

_FIRST_PAUSE_S = 5.0
_LONGEST_PAUSE_S = 80.0


class Fence(StrEnum):
    """What raised a fence, and what lifts it."""

    FAULTS = "faults"  # repeated I/O errors or lateness; a trial block written and read back
    HEALTH = "health"  # what the drive says of itself; the drive saying otherwise
    SPACE = "space"  # the file system is below its floor; free space


class Pause:
    """A direction of I/O that failed is left alone for a while; each failure doubles it."""

    def __init__(self) -> None:
        self._until_s = 0.0
        self._length_s = _FIRST_PAUSE_S
        self.failures = 0  # since the last success

    def active(self, now_s: float) -> bool:
        return now_s < self._until_s

    def failed(self, now_s: float) -> None:
        self.failures += 1
        self._until_s = now_s + self._length_s
        self._length_s = min(2 * self._length_s, _LONGEST_PAUSE_S)

    def succeeded(self) -> None:
        self._length_s = _FIRST_PAUSE_S
        self.failures = 0


class Trust:
    """One tier's standing. Owner's thread."""

    def __init__(self, tier: str, observer: Observer) -> None:
        self._tier = tier
        self._observer = observer
        self._reading = Pause()
        self._writing = Pause()
        self._fences: set[Fence] = set()
        self.draining = False
        self.lost = False

    def readable(self, now_s: float) -> bool:
        return not self.lost and not self._reading.active(now_s)

    def writable(self, now_s: float) -> bool:
        barred = self.lost or self.draining or bool(self._fences)
        return not barred and not self._writing.active(now_s)

    def refusal(self) -> Reason:
        """Why writes are refused, in one word."""
        if Fence.SPACE in self._fences:
            return Reason.FULL
        return Reason.UNHEALTHY if Fence.HEALTH in self._fences else Reason.READ_ONLY

    def fenced(self, fence: Fence) -> bool:
        return fence in self._fences

    @property
    def standing(self) -> Standing:
        """In one word, pauses left aside: they pass by themselves within a minute or two."""
        if self.lost:
            return Standing.LOST
        if self.draining:
            return Standing.DRAINING
        return Standing.FENCED if self._fences else Standing.SERVING

    def read_succeeded(self) -> None:
        self._reading.succeeded()

    def write_succeeded(self) -> None:
        self._writing.succeeded()

    def read_failed(self, reason: Reason, now_s: float) -> None:
        """Reading is paused; failures that come in during a pause belong to the one that began
        it."""
        if not self._reading.active(now_s):
            self._reading.failed(now_s)
            self._tell(reason, "reads are paused")
            self._judge(self._reading, reason)

    def write_failed(self, reason: Reason, detail: str, now_s: float) -> None:
        """Writing is paused; what is there can still be read."""
        if not self._writing.active(now_s):
            self._writing.failed(now_s)
            self._tell(reason, detail)
            if reason not in (Reason.FULL, Reason.READ_ONLY):  # not the drive's fault
                self._judge(self._writing, reason)

    def lose(self, detail: str) -> None:
        """The tier could not be brought into service: its blocks are lost to this process."""
        self.lost = True
        self._tell(Reason.IO_ERROR, detail)

    def fence(self, fence: Fence, reason: Reason, detail: str) -> None:
        """Stop writing until `lift`; telling it once is enough."""
        if fence not in self._fences:
            self._fences.add(fence)
            self._observer(Fenced(tier=self._tier, reason=reason, detail=detail))

    def lift(self, fence: Fence) -> None:
        """What raised a fence is gone. A lifted fence of faults ends the pauses as well."""
        if fence not in self._fences:
            return
        self._fences.remove(fence)
        if fence is Fence.FAULTS:
            self._reading, self._writing = Pause(), Pause()
        if not self._fences:
            self._observer(Unfenced(tier=self._tier))

    def _judge(self, pause: Pause, reason: Reason) -> None:
        if pause.failures >= FAULTS_TO_FENCE:
            self.fence(Fence.FAULTS, reason, f"{pause.failures} failures in a row")

    def _tell(self, reason: Reason, detail: str) -> None:
        self._observer(Degraded(tier=self._tier, reason=reason, detail=detail))
