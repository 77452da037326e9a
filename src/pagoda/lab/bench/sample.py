"""What one request of a load showed: moments, counts, and the error if there was one."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from enum import StrEnum


class ErrorKind(StrEnum):
    """Why a request does not count as served. HTTP refusals are told apart by status in
    `Failure.label`."""

    CONNECT = "connect"  # no connection
    TRANSPORT = "transport"  # the connection broke before the answer was complete
    TIMEOUT = "timeout"  # the request passed its own time limit
    CUT_OFF = "cut off"  # the run's time was over first
    HTTP = "http"  # a status other than 200
    SERVER = "server error in stream"  # an error object among the events
    BAD_STREAM = "bad stream"  # not server-sent events, or not JSON
    TRUNCATED = "truncated"  # the stream ended without a finish reason or [DONE]
    EMPTY = "empty"  # a complete answer without any text


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An error: its kind, the HTTP status if there was one, a message for people."""

    kind: ErrorKind
    status: int | None = None
    message: str = ""

    @property
    def label(self) -> str:
        """The name under which errors are counted."""
        return f"{self.kind} {self.status}" if self.status is not None else str(self.kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A streamed answer as it arrived. `arrivals_s` are the moments of events that carried
    text, on the clock of the run. Token counts are the server's own, None when it sent none."""

    text: str = ""
    arrivals_s: tuple[float, ...] = ()
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One request of the load. In a closed loop it is sent when it is meant to be; in an open
    loop `sent_s` may lie behind `intended_s`, and latency counts from the latter."""

    session: int
    turn: int
    intended_s: float
    sent_s: float
    ended_s: float
    answer: Answer

    @property
    def served(self) -> bool:
        return self.answer.failure is None

    @property
    def late_s(self) -> float:
        return self.sent_s - self.intended_s

    @property
    def first_s(self) -> float:
        """From the intended moment to the first text; only of a served request."""
        return self.answer.arrivals_s[0] - self.intended_s

    @property
    def gaps_s(self) -> list[float]:
        """Times between neighbouring events that carried text."""
        moments = self.answer.arrivals_s
        return [after - before for before, after in itertools.pairwise(moments)]

    @property
    def tokens(self) -> int:
        """Tokens of the answer: the server's count, else the number of events."""
        counted = self.answer.completion_tokens
        return len(self.answer.arrivals_s) if counted is None else counted
