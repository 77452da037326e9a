"""The plan of a load: who asks what, and when. Pure: the same settings give the same plan.

Two shapes of load decide what a KV cache is worth:

- multi-turn: sessions that grow. Each turn sends the whole conversation again (the answers
  included) and one more question, so all but the last question may be cached.
- shared-prefix: one long document and many questions about it, each its own conversation.

Two ways to start them:

- closed loop: `concurrency` clients, each waiting for its answer before it asks again. A slow
  server is asked less often, which flatters it.
- open loop: conversations arrive at `rate_per_s` as a Poisson process, whatever the server
  does. Latency counts from the intended moment, so a stalled server cannot hide the
  requests that it kept from being sent (coordinated omission).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pagoda.core.errors import SettingsError
from pagoda.lab.bench.words import Words


class Profile(StrEnum):
    """The shape of the conversations."""

    MULTI_TURN = "multi-turn"
    SHARED_PREFIX = "shared-prefix"


DEFAULT_CONCURRENCY = 4
OPEN_LOOP_CONCURRENCY = 1024  # a guard for this machine's sockets, not part of the load
DEFAULT_WORDS = {Profile.MULTI_TURN: 150, Profile.SHARED_PREFIX: 1200}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings:
    """What load to make. Times in seconds; `rate_per_s` None means a closed loop.

    `words` is the length of the document or of a session's opening; None takes the profile's
    default. The run ends after `requests` requests or `duration_s`, whichever comes first.
    """

    profile: Profile = Profile.MULTI_TURN
    requests: int = 40
    sessions: int = 8
    concurrency: int | None = None
    rate_per_s: float | None = None
    think_s: float = 0.0
    words: int | None = None
    max_tokens: int = 64
    seed: int = 0
    duration_s: float = 300.0
    timeout_s: float = 120.0

    def __post_init__(self) -> None:
        _require("requests", self.requests, 1 <= self.requests <= 1_000_000)
        _require("sessions", self.sessions, self.sessions >= 1)
        _require("concurrency", self.concurrency, self.concurrency is None or self.concurrency >= 1)
        _require("rate", self.rate_per_s, self.rate_per_s is None or 0 < self.rate_per_s <= 1e5)
        _require("think", self.think_s, 0 <= self.think_s <= 3600)
        _require("words", self.words, 0 <= (self.words or 0) <= 1_000_000)
        _require("max-tokens", self.max_tokens, self.max_tokens >= 1)
        _require("duration", self.duration_s, self.duration_s > 0)
        _require("timeout", self.timeout_s, self.timeout_s > 0)

    @property
    def parallel(self) -> int:
        """How many requests may be in flight at once."""
        if self.concurrency is not None:
            return self.concurrency
        return DEFAULT_CONCURRENCY if self.rate_per_s is None else OPEN_LOOP_CONCURRENCY


def _require(key: str, value: object, holds: bool) -> None:
    if not holds:
        raise SettingsError(
            f"--{key} {value} is out of range", key=key, source="flag", remedy="see --help"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One conversation: `opening` stands before the first question. `starts_s` is its
    intended start, in seconds after the run's, in an open loop; `pauses_s` the thinking
    before each question (the first is 0)."""

    number: int
    opening: str
    questions: tuple[str, ...]
    pauses_s: tuple[float, ...]
    starts_s: float | None


def plan(settings: LoadSettings) -> tuple[Session, ...]:
    """All conversations of a run, `settings.requests` questions in all."""
    turns = _turns(settings)
    starts = _starts(settings, len(turns))
    return tuple(
        _session(settings, number=number, turns=count, starts_s=start)
        for number, (count, start) in enumerate(zip(turns, starts, strict=True))
    )


def _turns(settings: LoadSettings) -> list[int]:
    """Questions in each session; the remainder goes to the first ones."""
    if settings.profile is Profile.SHARED_PREFIX:
        return [1] * settings.requests
    sessions = min(settings.sessions, settings.requests)
    each, more = divmod(settings.requests, sessions)
    return [each + (number < more) for number in range(sessions)]


def _starts(settings: LoadSettings, sessions: int) -> list[float | None]:
    """Poisson arrivals of sessions, such that requests come at `rate_per_s` in the mean."""
    if settings.rate_per_s is None:
        return [None] * sessions
    words = Words(seed=settings.seed, name="arrivals")
    mean_s = settings.requests / sessions / settings.rate_per_s
    starts: list[float | None] = []
    at_s = 0.0
    for _ in range(sessions):
        at_s += words.exponential_s(mean_s)
        starts.append(at_s)
    return starts


def _session(settings: LoadSettings, *, number: int, turns: int, starts_s: float | None) -> Session:
    shared = settings.profile is Profile.SHARED_PREFIX
    length = DEFAULT_WORDS[settings.profile] if settings.words is None else settings.words
    opening = Words(seed=settings.seed, name="document" if shared else f"opening {number}")
    talk = Words(seed=settings.seed, name=f"talk {number}")
    return Session(
        number=number,
        opening=opening.document(length),
        questions=tuple(talk.question() for _ in range(turns)),
        pauses_s=(0.0, *(talk.exponential_s(settings.think_s) for _ in range(turns - 1))),
        starts_s=starts_s,
    )
