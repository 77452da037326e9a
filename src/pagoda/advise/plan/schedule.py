"""How full to run the KV pool: what each target admits, and how often it overflows."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pagoda.advise.plan.facts import Load
from pagoda.advise.plan.roofline import Deployment
from pagoda.advise.plan.throughput import Stalls, running_requests, throughput
from pagoda.core.sizing import Capacity

TARGETS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
DEFAULT_TARGET = 0.7

LENGTH_SPREAD = 0.5
"""Standard deviation of a running request's context as a share of its mean: an assumption.

A request grows from its input to input plus output while it runs, and inputs differ; 0.5 is
a mild spread. Measured traces of chats lie above 1.
"""


@dataclass(frozen=True, kw_only=True)
class Target:
    """One occupancy target: requests that run, their speed, the chance that the pool overflows."""

    occupancy: float
    requests: float
    tokens_per_s: float
    decode_s: float
    overflow: float


def targets(
    deployment: Deployment,
    load: Load,
    at_load: Capacity,
    limit: float,
    stalls: Stalls | None = None,
) -> list[Target]:
    """Return a row for each of TARGETS that admits a request, for one replica.

    `at_load` is the capacity for requests of the load's mean context.
    """
    rows = []
    for occupancy in TARGETS:
        requests = running_requests(at_load, occupancy, limit)
        if requests < 1:
            continue
        found = throughput(deployment, load, requests, stalls)
        rows.append(
            Target(
                occupancy=occupancy,
                requests=requests,
                tokens_per_s=found.tokens_per_s / deployment.parallel.dp,
                decode_s=found.decode_s,
                overflow=overflow_chance(at_load.concurrency, requests),
            )
        )
    return rows


def overflow_chance(pool_requests: float, requests: float) -> float:
    """Return the chance that `requests` contexts exceed a pool of `pool_requests` mean ones.

    Sums of independent lengths are close to normal: mean n, deviation
    sqrt(n) * LENGTH_SPREAD. An overflow preempts a request, which is recomputed.
    """
    deviation = math.sqrt(requests) * LENGTH_SPREAD
    return 0.5 * math.erfc((pool_requests - requests) / deviation / math.sqrt(2))
