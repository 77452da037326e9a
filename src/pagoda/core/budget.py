"""How much may be written to a drive: a token bucket of bytes a day, and a total for its life.

The bucket holds at most one day's bytes, so that a new drive is filled at full speed; over
any span of time T a drive is written at most (1 + T in days) times its day's bytes. Flash
wears by what is written to it, and a cache that writes everything wears it out in months.

A restart must not give bytes back. So bytes are first *granted*: taken from the bucket in an
`Account` that the caller makes durable, and only then spent. A crash loses what was granted
and not spent; a clean end gives it back (`settle`). Within a process the bucket fills by the
monotonic clock that is passed in; over a restart by the wall clock, as far as that went
forward.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

DAY_S = 86_400.0
UNLIMITED_BYTES = 1 << 62
_SMALLEST_GRANT_BYTES = 64 << 20
_GRANTS_A_DAY = 96
_GRANTS_A_LIFE = 4096
_DAYS_A_YEAR = 365
_LIFE_DAYS = 5 * _DAYS_A_YEAR  # that drives are rated for
_PACE_SHOWS_S = 3600.0
_LEAST_PART = 4  # of a grant, that is worth asking for


@dataclass(frozen=True, slots=True, kw_only=True)
class Endurance:
    """Limits of writing to one drive, in bytes; None: no limit."""

    day_bytes: int | None = None
    total_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What a drive's budget is when the process ends now: bytes left in the bucket, bytes
    written in all (grants count as written), and when that was, in ms since the epoch."""

    left_bytes: int
    written_bytes: int
    at_ms: int


def new_account(endurance: Endurance, *, now_ms: int) -> Account:
    """A new drive's: a full bucket, nothing written."""
    return Account(left_bytes=_burst(endurance), written_bytes=0, at_ms=now_ms)


def unknown_account(endurance: Endurance, *, now_ms: int) -> Account:
    """What to assume when the account is lost: an empty bucket, and a life used up if it has
    an end. Never more than the budget; the operator may know better."""
    return Account(left_bytes=0, written_bytes=endurance.total_bytes or 0, at_ms=now_ms)


class WriteBudget:
    """The budget of one drive. Times are seconds of a monotonic clock and wall milliseconds."""

    def __init__(
        self, endurance: Endurance, account: Account, *, now_s: float, now_ms: int
    ) -> None:
        self._endurance = endurance
        self._burst = _burst(endurance)
        self._bytes_a_second = (endurance.day_bytes or 0) / DAY_S
        away_s = max(0, now_ms - account.at_ms) / 1000
        self._bucket = float(account.left_bytes)
        self._refill(away_s)
        self._filled_s = now_s
        self._written = account.written_bytes
        self._began_s, self._began_bytes = now_s, account.written_bytes
        self._granting: Account | None = None
        self._pending = 0
        self.usable_bytes = UNLIMITED_BYTES if self.unlimited else 0

    @property
    def unlimited(self) -> bool:
        return self._endurance == Endurance()

    @property
    def written_bytes(self) -> int:
        """Spent over the drive's life, as far as this budget has counted it."""
        return self._written - self._pending - (0 if self.unlimited else self.usable_bytes)

    @property
    def granting(self) -> bool:
        """A grant waits for being made durable."""
        return self._granting is not None

    def left_bytes(self, now_s: float) -> int:
        """What may be written now and soon: granted, being granted and still to be granted."""
        if self.unlimited:
            return UNLIMITED_BYTES
        return self.usable_bytes + self._pending + self._grantable(now_s)

    def pace(self, now_s: float) -> float | None:
        """Bytes a second that may be written from now on, so that what the bucket holds lasts a
        day and what is left of the total for five years; None: without a limit."""
        if self.unlimited:
            return None
        left = self.left_bytes(now_s)
        paces = []
        if self._endurance.day_bytes is not None:
            paces.append(left / DAY_S + self._bytes_a_second)
        if self._endurance.total_bytes is not None:
            unspent = max(0, self._endurance.total_bytes - self.written_bytes)
            paces.append(unspent / (_LIFE_DAYS * DAY_S))
        return min(paces)

    def life_years(self, now_s: float) -> float | None:
        """How long until the drive has been written as much as it is meant for, at the pace since
        the process began: the total, or else a day's bytes on each day of five years. None:
        without a limit, and until an hour has shown the pace."""
        meant = self._endurance.total_bytes or (self._endurance.day_bytes or 0) * _LIFE_DAYS
        span_s = now_s - self._began_s
        written = self.written_bytes - self._began_bytes
        if not meant or span_s < _PACE_SHOWS_S or written <= 0:
            return None
        day_bytes = written / span_s * DAY_S
        return max(0, meant - self.written_bytes) / day_bytes / _DAYS_A_YEAR

    def wants(self, now_s: float) -> bool:
        """Whether a grant should be asked for: less than half of one is left, and what there is
        to be had is worth making an account durable for."""
        if self.unlimited or self.granting or self.usable_bytes >= self._grant_bytes() // 2:
            return False
        limits = (self._grant_bytes(), self._burst, self._endurance.total_bytes or UNLIMITED_BYTES)
        return self._grantable(now_s) >= max(1, min(limits) // _LEAST_PART)

    def grant(self, now_s: float, now_ms: int) -> Account:
        """Take a grant from the bucket: the account to make durable before `confirm`."""
        assert not self.granting, "one grant at a time"
        self._pending = min(self._grant_bytes(), self._grantable(now_s))
        self._bucket -= self._pending
        self._written += self._pending
        self._granting = self._account(now_ms)
        return self._granting

    def confirm(self) -> None:
        """The account is durable: what it grants may be spent."""
        self.usable_bytes += self._pending
        self._pending = 0
        self._granting = None

    def revoke(self) -> None:
        """The account could not be made durable: nothing is granted. What a half-kept account
        may say is less than what is left, never more."""
        self._bucket += self._pending
        self._written -= self._pending
        self._pending = 0
        self._granting = None

    def spend(self, size_bytes: int) -> None:
        """Bytes are about to be written."""
        assert 0 <= size_bytes <= self.usable_bytes, "bytes are granted before they are spent"
        if self.unlimited:
            self._written += size_bytes
        else:
            self.usable_bytes -= size_bytes

    def settle(self, now_s: float, now_ms: int) -> Account:
        """Close: give back what was granted and not spent. Nothing can be spent after it."""
        if not self.unlimited:
            self._grantable(now_s)  # fills the bucket up to now
            unspent = self.usable_bytes + self._pending
            self._bucket = min(self._bucket + unspent, self._burst)
            self._written -= unspent
        self.usable_bytes = self._pending = 0
        return self._account(now_ms)

    def _grant_bytes(self) -> int:
        """Large enough that accounts are written seldom, small enough to be lost in a crash."""
        by_day = (self._endurance.day_bytes or 0) // _GRANTS_A_DAY
        by_life = (self._endurance.total_bytes or 0) // _GRANTS_A_LIFE
        return max(_SMALLEST_GRANT_BYTES, by_day or by_life)

    def _grantable(self, now_s: float) -> int:
        """What the bucket and the drive's life hold by now."""
        self._refill(max(0.0, now_s - self._filled_s))
        self._filled_s = max(now_s, self._filled_s)
        by_life = UNLIMITED_BYTES
        if self._endurance.total_bytes is not None:
            by_life = max(0, self._endurance.total_bytes - self._written)
        by_day = int(self._bucket) if self._endurance.day_bytes is not None else UNLIMITED_BYTES
        return min(by_life, by_day)

    def _refill(self, seconds: float) -> None:
        self._bucket = min(self._burst, self._bucket + seconds * self._bytes_a_second)

    def _account(self, now_ms: int) -> Account:
        return Account(
            left_bytes=max(0, int(self._bucket)), written_bytes=self._written, at_ms=now_ms
        )


def _burst(endurance: Endurance) -> int:
    return UNLIMITED_BYTES if endurance.day_bytes is None else endurance.day_bytes


def divided(endurance: Endurance, shares: int) -> Endurance:
    """The budget of one of several directories that lie on the same drive."""
    if endurance.day_bytes is None:
        return endurance
    return replace(endurance, day_bytes=endurance.day_bytes // shares)
