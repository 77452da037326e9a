"""Reading from a shared store: asking what is there, and fetching it for a restore.

A value arrives in memory of the I/O thread's own. The request's buffers are claimed only
then, by the thread that fills them or by the owner whose deadline has passed, whoever comes
first: late data lands nowhere, and a hanging network holds no buffer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pagoda.core.errors import TierError
from pagoda.core.events import Reason, Refused, Restored
from pagoda.core.identity import Key, NamespaceId
from pagoda.core.outcome import Corrupt, Hit, Miss, Outcome, Unavailable
from pagoda.store.restore import Restore
from pagoda.store.shared_link import Link
from pagoda.tiers.remote.sealed import Name
from pagoda.tiers.sealed import reason_of

_FIRST_QUESTION = 8  # names in a probe's first call; each next one asks for twice as many


@dataclass(slots=True, eq=False)
class Probe:
    """A question under way: which blocks of a prefix are in the shared store.

    Once `done`, `known_prefix` has the answer, or as much of it as came in time.
    """

    names: list[Name]
    deadline_s: float
    done: bool = False


@dataclass(slots=True)
class _Answer:
    there: list[Name] = field(default_factory=list)
    absent: list[Name] = field(default_factory=list)
    unanswered: list[Name] = field(default_factory=list)
    error: TierError | None = None


@dataclass(slots=True, eq=False)
class Pull:
    """A read order on its way: a run of a restore's blocks. `outcomes` None: the buffers were
    not touched."""

    restore: Restore
    positions: range
    names: list[Name]
    outcomes: list[Outcome] | None = None
    seconds: float = 0.0
    expired: bool = False
    recalled: bool = False  # the owner had the buffers back before anything landed in them
    _claim: threading.Lock = field(default_factory=threading.Lock)

    def claim(self) -> bool:
        """Fill the buffers, or take them back: whoever asks first has them."""
        return self._claim.acquire(blocking=False)

    def into(self) -> list[memoryview]:
        """The buffers to read into."""
        return [self.restore.into[position] for position in self.positions]


class SharedReads:
    """The read half. All methods run in the owner's thread, jobs in I/O threads."""

    def __init__(self, link: Link, *, drop: Callable[[Sequence[Name]], None]) -> None:
        self._link = link
        self._drop = drop
        self._probes: list[Probe] = []
        self._pulls: list[Pull] = []

    @property
    def idle(self) -> bool:
        return not self._probes and not self._pulls

    def known_prefix(self, keys: Sequence[Key]) -> int:
        """How many leading blocks should be there. Changes nothing; asks nobody."""
        return len(self._known(keys))

    def probe(self, namespace: NamespaceId, keys: Sequence[Key]) -> Probe:
        """Ask for what is not remembered of a prefix; done at once when that is nothing."""
        link = self._link
        names = self._unknown(namespace, keys[: link.config.probe_blocks])
        probe = Probe(names, link.clock() + link.config.probe_deadline_s)
        if not names or not link.guard.reads.admits():
            probe.done = True
            return probe
        self._probes.append(probe)
        link.orders.send(
            link.probes, lambda: self._ask(probe), lambda answer: self._answered(probe, answer)
        )
        return probe

    def fetch(self, restore: Restore, positions: range) -> None:
        """Order the blocks at `positions` (a run behind what other tiers hold); from the first
        on that is not known to be there they are misses at once."""
        names = self._known([restore.keys[position] for position in positions])
        absent = positions[len(names) :]
        restore.landed(absent, [Miss() for _ in absent])
        step = self._link.config.run_blocks
        for first in range(0, len(names), step):
            run = names[first : first + step]
            self._send(Pull(restore, positions[first : first + len(run)], run))

    def expire(self) -> None:
        """Give up on what is late."""
        now_s = self._link.clock()
        for probe in [probe for probe in self._probes if now_s >= probe.deadline_s]:
            self._probes.remove(probe)
            probe.done = True
            self._late(probe.names)
        for pull in [pull for pull in self._pulls if not pull.expired]:
            if now_s >= pull.restore.deadline_s:
                self._expire(pull)

    def next_deadline_s(self) -> float | None:
        """When `expire` has something to do."""
        pulls = (pull.restore.deadline_s for pull in self._pulls if not pull.expired)
        return min((*pulls, *(probe.deadline_s for probe in self._probes)), default=None)

    def _known(self, keys: Sequence[Key]) -> list[Name]:
        """Names of the leading blocks that should be there; none while reads are paused."""
        if not self._link.guard.reads.admits():
            return []
        now_s = self._link.clock()
        names: list[Name] = []
        for key in keys:
            name = self._link.presence.name_of(key, now_s)
            if name is None or self._link.bars(name.namespace):
                break
            names.append(name)
        return names

    def _unknown(self, namespace: NamespaceId, keys: Sequence[Key]) -> list[Name]:
        """What to ask for: nothing behind a block that is known not to be there."""
        now_s = self._link.clock()
        unknown: list[Name] = []
        for key in keys:
            entry = self._link.presence.find(key, now_s)
            if entry is None:
                unknown.append(Name(namespace, key))
            elif entry.reason is not None:
                break
        return unknown

    def _ask(self, probe: Probe) -> _Answer:
        """In an I/O thread: ask in growing steps, until one is absent or the time is over."""
        answer, first, count = _Answer(), 0, _FIRST_QUESTION
        while first < len(probe.names) and not answer.absent:
            asked = probe.names[first : first + count]
            if self._link.clock() >= probe.deadline_s:
                break
            try:
                found = self._link.sealed.has(asked)
            except TierError as error:
                answer.error, answer.unanswered = error, asked
                break
            for name, there in zip(asked, found, strict=True):
                (answer.there if there else answer.absent).append(name)
            first, count = first + count, 2 * count
        return answer

    def _answered(self, probe: Probe, answer: _Answer) -> None:
        """Facts are remembered even if they come late; a refusal keeps the names from being
        asked for again for a while."""
        presence, now_s = self._link.presence, self._link.clock()
        presence.there(answer.there, now_s)
        presence.not_there(answer.absent, Reason.ABSENT, now_s)
        if answer.error is not None:
            reason = reason_of(answer.error)
            presence.not_there(answer.unanswered, reason, now_s)
            self._link.tell_trips(reason)
        if not probe.done:
            probe.done = True
            self._probes.remove(probe)

    def _send(self, pull: Pull) -> None:
        link = self._link
        pull.restore.started(pull.positions, link.name)
        self._pulls.append(pull)
        link.orders.send(link.loads, lambda: self._read(pull), self._landed)

    def _read(self, pull: Pull) -> Pull:
        """In an I/O thread."""
        started_s = self._link.clock()

        def in_time() -> bool:
            return self._link.clock() < pull.restore.deadline_s

        if in_time() and not pull.recalled:
            pull.outcomes = self._link.sealed.load(
                pull.names, pull.into(), claim=lambda: in_time() and pull.claim()
            )
        pull.seconds = self._link.clock() - started_s
        return pull

    def _landed(self, pull: Pull) -> None:
        if pull.recalled:
            return
        if pull.outcomes is None:  # too late, and the owner has not noticed yet
            self._expire(pull)
            return
        self._pulls.remove(pull)
        pull.restore.landed(pull.positions, pull.outcomes)
        if not pull.expired:
            self._account(pull, pull.outcomes)

    def _expire(self, pull: Pull) -> None:
        """The request goes on without it. Buffers that are being filled stay taken until the
        order lands; others are zeroed and given back now."""
        pull.expired = True
        pull.recalled = pull.claim()
        pull.restore.expire(pull.positions)
        self._refuse(Reason.TIMEOUT, len(pull.names))
        self._late(pull.names)
        if pull.recalled:
            for buffer in pull.into():
                buffer[:] = bytes(len(buffer))
            late = [Unavailable(self._link.name, Reason.TIMEOUT) for _ in pull.positions]
            pull.restore.landed(pull.positions, late)
            self._pulls.remove(pull)

    def _late(self, names: Sequence[Name]) -> None:
        """Late blocks are not asked for again for a while, and the store's breaker hears of
        them: a call that hangs would not tell."""
        self._link.presence.not_there(names, Reason.TIMEOUT, self._link.clock())
        self._link.guard.reads.failed()
        self._link.tell_trips(Reason.TIMEOUT)

    def _account(self, pull: Pull, outcomes: Sequence[Outcome]) -> None:
        """Tell what arrived, and remember what did not."""
        presence, now_s = self._link.presence, self._link.clock()
        arrived: list[memoryview] = []
        bad: list[Name] = []
        for name, buffer, outcome in zip(pull.names, pull.into(), outcomes, strict=True):
            match outcome:
                case Hit():
                    arrived.append(buffer)
                    presence.there([name], now_s)
                case Miss(reason=reason) | Corrupt(reason=reason) | Unavailable(reason=reason):
                    self._refuse(reason, 1)
                    presence.not_there([name], reason, now_s)
                    self._link.tell_trips(reason)
            if isinstance(outcome, Corrupt):
                bad.append(name)
        self._drop(bad)
        if arrived:
            self._tell_arrived(arrived, pull.seconds)

    def _tell_arrived(self, arrived: Sequence[memoryview], seconds: float) -> None:
        self._link.observer(
            Restored(
                tier=self._link.name,
                blocks=len(arrived),
                size_bytes=sum(len(buffer) for buffer in arrived),
                seconds=seconds,
            )
        )

    def _refuse(self, reason: Reason, blocks: int) -> None:
        self._link.observer(Refused(tier=self._link.name, blocks=blocks, reason=reason))
