"""Immutable facts that travel up: each layer takes an `observer` and tells it what happened.

An observer must not block and must not raise. Counts are blocks unless the name says
otherwise; `tier` is a tier's name ("device", "host", "drive", …).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from pagoda.core.checking import Verdict
from pagoda.core.identity import Key
from pagoda.core.policy.port import Hint


class Reason(StrEnum):
    """Why a block was not served, stored or kept. One word a kind, stable in metrics."""

    ABSENT = "absent"  # no tier holds the key
    CORRUPT = "corrupt"  # the payload's digest differs from its seal
    MISPLACED = "misplaced"  # an intact block of another key, namespace or generation
    TRUNCATED = "truncated"  # fewer bytes than the seal states
    TIMEOUT = "timeout"  # the I/O passed its deadline
    IO_ERROR = "io_error"  # the medium reported an error
    FULL = "full"  # no free slot and nothing evictable, or no space on the medium
    READ_ONLY = "read_only"  # the medium refuses writes
    BUSY = "busy"  # staging memory or the queue is full
    STALE = "stale"  # the slot was reused before the I/O ran
    CLOSED = "closed"  # the store is shutting down
    WORN = "worn"  # the drive's write budget is used up
    UNHEALTHY = "unhealthy"  # the drive says of itself that it is failing or used up
    SUSPECT = "suspect"  # a copy of the block was bad a short while ago
    LOCKED = "locked"  # sealed with a key or codec that this process does not have
    UNSIGNED = "unsigned"  # plain, where encryption or a MAC is demanded
    QUARANTINED = "quarantined"  # a block of its namespace was found to be wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """Blocks read from a tier, verified and handed over."""

    tier: str
    blocks: int
    size_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Blocks written, sealed and published in a tier."""

    tier: str
    blocks: int
    size_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Blocks that a tier held but that were not handed over; they count as misses."""

    tier: str
    blocks: int
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Blocks that were not stored in a tier."""

    tier: str
    blocks: int
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Declined:
    """Blocks that a tier was offered and that were not worth a write. The same block counts each
    time that it is offered."""

    tier: str
    blocks: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evicted:
    """Blocks dropped from a tier to make room."""

    tier: str
    blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Overruled:
    """Pinned blocks dropped from a tier all the same: nothing else could go."""

    tier: str
    blocks: int


class PinEnd(StrEnum):
    """Why a pin ended. One word a kind, stable in metrics."""

    EXPIRED = "expired"
    REMOVED = "removed"  # its owner, or an operator, said so
    CLEARED = "cleared"  # its blocks were cleared
    LAPSED = "lapsed"  # other weights are served


@dataclass(frozen=True, slots=True, kw_only=True)
class PinBegan:
    """A prefix is pinned, or pinned again for longer."""

    blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PinsEnded:
    """Pins are no more; their blocks stay until their place is needed."""

    pins: int
    reason: PinEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class PinDenied:
    """A pin was refused: it exceeded a budget in a tier."""

    tier: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """Slots taken out of service after a bad block."""

    tier: str
    slots: int
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Degraded:
    """A tier stopped taking writes, or stopped altogether; `detail` is for people."""

    tier: str
    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fenced:
    """A tier takes no writes until what raised the fence is gone; it is still read."""

    tier: str
    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfenced:
    """A tier takes writes again."""

    tier: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What is known of a drive's wear, health and space; None where it is not. `life_years` is
    how long it lasts if it is written on like this."""

    tier: str
    used_percent: int | None
    spare_percent: int | None
    media_errors: int | None
    free_bytes: int | None
    budget_bytes: int | None
    written_bytes: int
    life_years: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """A tier's index was rebuilt after a restart."""

    tier: str
    blocks: int
    dropped: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrubbed:
    """Blocks read back and verified though nobody asked for them; `bad` left service."""

    tier: str
    blocks: int
    bad: int
    size_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubPassed:
    """Every block that a tier held when the pass began was verified, or is gone by now."""

    tier: str
    blocks: int
    bad: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A block that a tier holds was held against the same block, computed again. `difference` is
    that of `core.checking`, None where the copy could not be read back."""

    tier: str
    verdict: Verdict
    difference: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Barred:
    """A namespace (in hex) is in quarantine: none of its blocks is handed out or stored. `since_s`
    is in seconds since the epoch, `detail` is for people."""

    namespace: str
    since_s: int
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unbarred:
    """A namespace is out of quarantine."""

    namespace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """A prompt's full blocks by where they were found when it was scheduled."""

    device: int
    lower: int
    absent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepped:
    """One engine step."""

    prefill_tokens: int
    decode_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempted:
    """A running request gave its device blocks back and waits again."""

    request_id: str
    blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A request ended. `first_token_s` is None when it ended before its first token."""

    request_id: str
    reason: str
    prompt_tokens: int
    completion_tokens: int
    cached_device_tokens: int
    cached_restored_tokens: int
    queued_s: float
    first_token_s: float | None
    total_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The blocks of a request that had come to run: what a recording is made of. `keys` are the
    whole blocks of its prompt, and those behind them that were computed; `arrived_s` is a time of
    the engine's clock."""

    arrived_s: float
    prompt_tokens: int
    completion_tokens: int
    keys: tuple[Key, ...]
    hint: Hint
    reason: str


Event = (
    Restored
    | Stored
    | Refused
    | Skipped
    | Declined
    | Evicted
    | Overruled
    | PinBegan
    | PinsEnded
    | PinDenied
    | Quarantined
    | Degraded
    | Fenced
    | Unfenced
    | Examined
    | Rebuilt
    | Scrubbed
    | ScrubPassed
    | Checked
    | Barred
    | Unbarred
    | Looked
    | Stepped
    | Preempted
    | Finished
    | Ended
)
Observer = Callable[[Event], None]


def ignore(event: Event) -> None:
    """An observer that forgets."""
    del event
