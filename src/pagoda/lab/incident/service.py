"""The service in front of a cache: takes requests from the wire and answers them in batches."""

from __future__ import annotations

import gc
import json
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from pagoda.core.identity import Key
from pagoda.lab.bench.child import environment
from pagoda.lab.incident.generator import FINISHED, REQUEST, Order
from pagoda.lab.incident.timeline import Timeline
from pagoda.lab.incident.traffic import Conversations

_MOST_AT_ONCE = 48  # requests begun together
_MOST_WAITING = 192
_READ_BYTES = REQUEST.size * 4096
_IDLE_S = 0.0005
_SWITCH_S = 0.0005
_GRACE_S = 2.0  # for what is under way when the load ends


class Path(Protocol):
    """A cache with what surrounds it: how a request is answered."""

    @property
    def waiting(self) -> int:
        """Requests begun and not answered."""
        ...

    @property
    def wrong(self) -> int:
        """Blocks served that were not the true ones, by the oracle."""
        ...

    @property
    def refused(self) -> int:
        """Blocks that were found and not handed out."""
        ...

    @property
    def failed(self) -> int:
        """Requests that ended with an exception."""
        ...

    def fill(self, keys: Sequence[Key]) -> None:
        """Store a chain below: the load's past, or what a nightly job leaves behind."""
        ...

    def settle(self) -> None:
        """Wait until what was filled in is stored. Raises EngineClosed when it takes too long."""
        ...

    def begin(self, requests: Sequence[tuple[int, Sequence[Key]]]) -> None:
        """Start requests: (number, prefix)."""
        ...

    def step(self) -> list[int]:
        """Make progress; the numbers of the requests that are answered now."""
        ...


@dataclass(slots=True)
class _Wire:
    """The service's end of the socket."""

    socket: socket.socket
    _left: bytes = b""
    open: bool = True
    requests: list[tuple[int, int]] = field(default_factory=list)  # (meant at, conversation)

    def receive(self, wait_s: float) -> None:
        """Take in what has arrived."""
        if not self.open or not select.select([self.socket], [], [], wait_s)[0]:
            return
        try:
            data = self.socket.recv(_READ_BYTES)
        except ConnectionResetError:  # it ended with our last words unread
            data = b""
        self.open = bool(data)
        data = self._left + data
        whole = len(data) - len(data) % REQUEST.size
        self.requests += REQUEST.iter_unpack(data[:whole])
        self._left = data[whole:]


def run_load(path: Path, conversations: Conversations, order: Order) -> dict[str, Any]:
    """Answer one load from its first request to its last; returns what its users felt."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "pagoda.lab.incident.generator", str(theirs.fileno())]
    with subprocess.Popen(
        command, pass_fds=[theirs.fileno()], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, env=environment(), process_group=0,  # a Ctrl-C is for this process alone
    ) as generator, ours, _killed_by_errors(generator):  # fmt: skip
        theirs.close()
        assert generator.stdin is not None
        generator.stdin.write(json.dumps(asdict(order)))
        generator.stdin.close()
        timeline = _answer(path, conversations, _Wire(ours), closed=not order.rate_per_s)
        ours.shutdown(socket.SHUT_RDWR)
        assert generator.stdout is not None
        sent = json.loads(generator.stdout.read() or "{}")
    return timeline.report(order, sent)


@contextmanager
def _killed_by_errors(process: subprocess.Popen[str]) -> Iterator[None]:
    """The process ends at once when something is raised inside."""
    try:
        yield
    except BaseException:
        process.kill()
        raise


def _answer(path: Path, conversations: Conversations, wire: _Wire, *, closed: bool) -> Timeline:
    """Take requests up and answer them until the load has ended and nothing is under way."""
    timeline = Timeline(path)
    meant: dict[int, int] = {}  # when each request under way was meant to be sent
    began = failed = 0
    until_ns: int | None = None
    moving = False
    with _no_pauses():
        while until_ns is None or (meant and time.monotonic_ns() < until_ns):
            wire.receive(0.0 if moving else _IDLE_S)
            room = max(0, min(_MOST_AT_ONCE, _MOST_WAITING - path.waiting))
            taken, wire.requests = wire.requests[:room], wire.requests[room:]
            if taken:
                numbers = range(began, began + len(taken))
                began += len(taken)
                meant.update(zip(numbers, (meant_ns for meant_ns, _ in taken), strict=True))
                timeline.asked(taken)
                prefixes = (conversations.visit(conversation) for _, conversation in taken)
                path.begin(list(zip(numbers, prefixes, strict=True)))
            done = path.step()
            timeline.answered([meant.pop(number) for number in done])
            failing, failed = path.failed - failed, path.failed
            if failing:  # this path answers or fails all that it has begun
                meant.clear()
            if closed and wire.open and (done or failing):
                _tell(wire, len(done) + failing)
            moving = bool(taken or done)
            if not wire.open and not wire.requests and until_ns is None:
                until_ns = time.monotonic_ns() + int(_GRACE_S * 1e9)
    return timeline


@contextmanager
def _no_pauses() -> Iterator[None]:
    """No thread holds the interpreter for long, and the collector does not look through what
    stays: both would be pauses of several milliseconds."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        sys.setswitchinterval(interval_s)


def _tell(wire: _Wire, finished: int) -> None:
    try:
        wire.socket.sendall(FINISHED.pack(finished))
    except (BrokenPipeError, ConnectionResetError):
        wire.open = False
