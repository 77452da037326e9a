"""What tiers are worth: tokens held, restore against recompute, stalls, wear.

A restore moves the least bytes that a context needs (windows and states counted once);
a recompute is the prefill of the same tokens. Both are for one request alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pagoda.advise.plan.facts import Load
from pagoda.advise.plan.roofline import Deployment, prefill
from pagoda.core.sizing import Parallel

SECONDS_A_DAY = 86_400
TAIL_TOKENS = 256
"""New tokens that follow a prefix, where the load does not say."""
DAYS_A_YEAR = 365.25


@dataclass(frozen=True, kw_only=True)
class Tier:
    """Somewhere KV can lie: bytes it holds, and the ways from it to the device.

    `read` is the medium's rate for all ranks together (each byte once), `rank_link` what
    one rank's own link carries: an MLA latent passes every rank's link whole.
    """

    name: str
    capacity_bytes: float
    read: float
    rank_link: float
    latency_s: float
    link: str


@dataclass(frozen=True, kw_only=True)
class TierWorth:
    """A tier's figures: tokens, break-even length (None: never), TTFT and overlap needed."""

    tier: Tier
    tokens: int
    break_even_tokens: int | None
    restore_s: float
    recompute_s: float
    ttft_s: float
    overlap_needed: float


def stored_bytes_per_token(deployment: Deployment) -> int:
    """Return bytes of one token below the device: each head once, an MLA latent once."""
    return deployment.model.kv.token_bytes(deployment.dtype, Parallel())


def stored_context_bytes(deployment: Deployment, tokens: float) -> int:
    """Return bytes that a restored prefix of `tokens` moves in all."""
    return deployment.model.kv.context_bytes(round(tokens), deployment.dtype, Parallel())


def restore_s(deployment: Deployment, tier: Tier, tokens: float) -> float:
    """Return the time to bring a prefix of `tokens` from a tier to the device."""
    medium = stored_context_bytes(deployment, tokens) / tier.read
    shape, parallel = deployment.model.kv, deployment.parallel
    link = shape.context_bytes(round(tokens), deployment.dtype, parallel) / tier.rank_link
    return tier.latency_s + max(medium, link)


def recompute_s(deployment: Deployment, tokens: float, tail: float = TAIL_TOKENS) -> float:
    """Return what computing a prefix of `tokens` adds to a prompt with `tail` tokens after it.

    The tail is computed either way, and with it the weights are read: a short prefix adds
    little until the matrix units are busy.
    """
    whole = prefill(deployment, tokens + tail).total_s
    return max(0.0, whole - prefill(deployment, tail, tokens).total_s)


def break_even_tokens(deployment: Deployment, tier: Tier, longest: int) -> int | None:
    """Return the length from which on a restore beats computing again, or None up to `longest`.

    Found from the long end, by halving down to a length that loses and bisecting above it:
    a short prefix is nearly free to compute, and attention makes long ones dearer a token.
    """

    def wins(tokens: int) -> bool:
        return restore_s(deployment, tier, tokens) < recompute_s(deployment, tokens)

    if not wins(longest):
        return None
    high = longest
    while high > 1 and wins(high // 2):
        high //= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if wins(middle) else (middle, high)
    return high


def worth(deployment: Deployment, tier: Tier, load: Load, longest: int) -> TierWorth:
    """Return a tier's figures for the load's shared prefix (the whole input when none is)."""
    prefix = load.input_tokens * load.shared_prefix or load.input_tokens
    rest = max(load.input_tokens - prefix, 1)
    restore = restore_s(deployment, tier, prefix)
    tail = prefill(deployment, rest, prefix).total_s
    return TierWorth(
        tier=tier,
        tokens=int(tier.capacity_bytes // max(stored_bytes_per_token(deployment), 1)),
        break_even_tokens=break_even_tokens(deployment, tier, longest),
        restore_s=restore,
        recompute_s=recompute_s(deployment, prefix, max(rest, TAIL_TOKENS)),
        ttft_s=restore + tail,
        # the part of a restore that no computing of the same request can hide
        overlap_needed=max(0.0, 1 - tail / restore) if restore else 0.0,
    )


def miss_rate_budget(loss: float, compute_s: float, miss_s: float) -> float:
    """Return the share of requests that may miss so that throughput falls by at most `loss`.

    `compute_s` is the engine's time for a request, `miss_s` what a miss adds to it: a
    restore that the engine waits for, or the prefix computed again.
    From throughput = compute / (1 + beta): beta may reach loss / (1 - loss), and
    beta = miss_rate * miss_s / compute_s.
    """
    if miss_s <= 0:
        return 1.0
    return min(1.0, loss / (1 - loss) * compute_s / miss_s)


@dataclass(frozen=True, kw_only=True)
class Drive:
    """An NVMe drive as sold: bytes, bytes a second, rated writes a day over its warranty."""

    capacity_bytes: float = 3.84e12
    read: float = 6.5e9
    write: float = 3.0e9
    writes_per_day: float = 1.0
    warranty_years: float = 5.0
    # payloads are whole aligned stripes, written once: little to move inside the drive
    write_amplification: float = 1.2

    @property
    def rated_bytes(self) -> float:
        """Bytes the maker rates the drive for."""
        return self.capacity_bytes * self.writes_per_day * self.warranty_years * DAYS_A_YEAR


@dataclass(frozen=True, kw_only=True)
class DriveUse:
    """What a load asks of drives: bytes at rest, bytes a second read, bytes a day written."""

    held_bytes: float
    read_bytes_per_s: float
    write_bytes_a_day: float


@dataclass(frozen=True, kw_only=True)
class DriveNeeds:
    """How many drives a load needs, by each reason, and how long `owned` ones last."""

    owned: int
    write_bytes_a_day: float
    by_capacity: int
    by_read: int
    by_write: int
    by_endurance: int
    life_years: float

    @property
    def drives(self) -> int:
        """The drives needed: the largest of the reasons."""
        return max(self.by_capacity, self.by_read, self.by_write, self.by_endurance)


def write_bytes_a_day(deployment: Deployment, load: Load, requests_per_s: float) -> float:
    """Return bytes a day when each new token is written once: new input and output."""
    new = load.new_input + load.output_tokens
    return requests_per_s * new * stored_bytes_per_token(deployment) * SECONDS_A_DAY


def drive_needs(drive: Drive, use: DriveUse, owned: int, years: float = 5.0) -> DriveNeeds:
    """Return the drives that `use` needs to last `years`, and the life of `owned` ones."""
    wear = use.write_bytes_a_day * drive.write_amplification * DAYS_A_YEAR
    return DriveNeeds(
        owned=owned,
        write_bytes_a_day=use.write_bytes_a_day,
        by_capacity=math.ceil(use.held_bytes / drive.capacity_bytes),
        by_read=math.ceil(use.read_bytes_per_s / drive.read),
        by_write=math.ceil(use.write_bytes_a_day / SECONDS_A_DAY / drive.write),
        by_endurance=math.ceil(wear * years / drive.rated_bytes),
        life_years=owned * drive.rated_bytes / wear if wear else math.inf,
    )
