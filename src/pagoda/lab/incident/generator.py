"""The load, from a process of its own, so that a slow service cannot slow its users down.

    python -m pagoda.lab.incident.generator FD    one JSON order on standard input

Writes requests to the socket FD, 16 bytes each: when it was meant to be sent (nanoseconds of
the monotonic clock, which all processes of a machine share) and the conversation. *Open loop*:
at random instants (Poisson), whatever the service does. *Closed loop*: so many requests are
outstanding; the service tells how many it has finished, 4 bytes at a time. At the end it prints
how late it was itself.
"""

from __future__ import annotations

import json
import random
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from pagoda.lab.bench.stats import Percentiles
from pagoda.lab.incident.traffic import order_of_visits

REQUEST = struct.Struct("<qi4x")
FINISHED = struct.Struct("<i")
_TICK_S = 0.0005
_MOST_AT_ONCE = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to send. `rate_per_s` for an open loop, `outstanding` for a closed one."""

    conversations: int
    seconds: float
    seed: int
    rate_per_s: float = 0.0
    outstanding: int = 0


def arrivals(order: Order, start_ns: int) -> Iterator[int]:
    """Instants of an open loop, nanoseconds."""
    rng = random.Random(order.seed)  # noqa: S311 - a load, no secret
    at_s = 0.0
    while (at_s := at_s + rng.expovariate(order.rate_per_s)) < order.seconds:
        yield start_ns + int(at_s * 1e9)


def send_open(order: Order, send: Callable[[bytes], object]) -> dict[str, Any]:
    """Send each request when it is due; returns how many there were and how late they left."""
    start_ns = time.monotonic_ns()
    due = list(arrivals(order, start_ns))
    visits = list(islice(order_of_visits(order.conversations, seed=order.seed), len(due)))
    shift_ns = time.monotonic_ns() + 10_000_000 - start_ns  # drawing them took a while
    due = [at_ns + shift_ns for at_ns in due]
    late: list[float] = []
    sent = 0
    while sent < len(due):
        now_ns = time.monotonic_ns()
        ready = sent
        while ready < len(due) and due[ready] <= now_ns and ready - sent < _MOST_AT_ONCE:
            ready += 1
        if ready == sent:
            time.sleep(_TICK_S)
            continue
        send(b"".join(map(REQUEST.pack, due[sent:ready], visits[sent:ready])))
        late += [(now_ns - at_ns) / 1e9 for at_ns in due[sent:ready]]
        sent = ready
    shape = Percentiles.of(late)
    return {"requests": sent, "late_s": asdict(shape) if shape else None}


def send_closed(
    order: Order, send: Callable[[bytes], object], finished: Callable[[], int]
) -> dict[str, Any]:
    """Keep `outstanding` requests on their way until the time is over; -1 from `finished` says
    that the service has gone."""
    until_ns = time.monotonic_ns() + int(order.seconds * 1e9)
    visits = order_of_visits(order.conversations, seed=order.seed)
    sent, more = 0, order.outstanding
    while more >= 0 and (now_ns := time.monotonic_ns()) < until_ns:
        send(b"".join(REQUEST.pack(now_ns, visit) for visit in islice(visits, more)))
        sent += more
        more = finished()
    return {"requests": sent, "late_s": None}


def main(fd: int) -> None:
    """Send what standard input orders; nothing, if it was closed before the order came."""
    text = sys.stdin.read()
    if not text:
        return
    order = Order(**json.loads(text))
    with socket.socket(fileno=fd) as wire:

        def finished() -> int:
            told = wire.recv(FINISHED.size, socket.MSG_WAITALL)
            return FINISHED.unpack(told)[0] if len(told) == FINISHED.size else -1

        try:
            if order.rate_per_s:
                found = send_open(order, wire.sendall)
            else:
                found = send_closed(order, wire.sendall, finished)
        except (BrokenPipeError, ConnectionResetError):
            found = {"requests": 0, "late_s": None}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
