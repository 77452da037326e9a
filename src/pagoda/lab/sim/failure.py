"""What a simulation finds: which check, and what it saw."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum


class Check(StrEnum):
    """What is checked, one word each. None of them was placed for one seeded defect."""

    BYTES = "bytes"  # a block handed over has the true bytes of its tokens
    BUFFERS = "buffers"  # a buffer that was not filled is zeroed, or untouched
    MEMORY = "memory"  # nobody writes to memory that was given back
    RELEASE = "release"  # a saver's memory is given back once, and not while I/O uses it
    EXCLUSIVE = "exclusive"  # no slot is written while another order uses it
    INVARIANTS = "invariants"  # each state adds up
    ASSERTION = "assertion"  # no assertion of the store's own fails
    EXCEPTION = "exception"  # no exception of a tier reaches a request
    LIVENESS = "liveness"  # without faults, all work ends within bounded steps
    LEASES = "leases"  # an idle node holds no lease
    DEADLINE = "deadline"  # a restore is done at its deadline
    FOUND = "found"  # what was stored is found again
    PREFIX = "prefix"  # a look-up counts blocks that are there, without a hole
    ROOM = "room"  # no block is evicted, or refused, beside a free or evictable slot
    REASON = "reason"  # a block is called corrupt only where a fault has damaged it
    RESTART = "restart"  # a restart finds what was committed, all of it and nothing else
    ORDER = "order"  # a header is erased before its payload is overwritten
    GENERATION = "generation"  # each reuse of a slot has a higher generation
    STALE = "stale"  # an order for another generation or block of a slot gets nothing
    NEGATIVE = "negative"  # a block that was bad is not asked for again for a while
    WEAR = "wear"  # no more is written to a drive than its budget allows
    JUDGED = "judged"  # the sampled check calls a copy wrong where, and only where, it is
    BARRED = "barred"  # nothing of a namespace in quarantine is handed over
    PINNED = "pinned"  # no pinned block goes while another can
    CLEARED = "cleared"  # a cleared block is not found


class Failure(BaseException):
    """A check that failed. Not an Exception: the store turns those of a tier into outcomes,
    and this one has to get through it."""

    def __init__(self, check: Check, detail: str) -> None:
        super().__init__(f"{check}: {detail}")
        self.check = check
        self.detail = detail


@contextmanager
def findings() -> Iterator[None]:
    """Whatever goes wrong inside is a finding."""
    try:
        yield
    except AssertionError as error:
        raise Failure(Check.ASSERTION, f"{error}\n{traceback.format_exc()}") from error
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise Failure(Check.EXCEPTION, f"{what}\n{traceback.format_exc()}") from error


class Killed(BaseException):
    """The process of a node ends here: passes through the store as a kill would, unhandled."""


def ensure(condition: bool, check: Check, detail: str) -> None:
    """Raise Failure unless `condition` holds."""
    if not condition:
        raise Failure(check, detail)
