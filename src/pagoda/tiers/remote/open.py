"""From an address to a shared store: which client speaks to it is its scheme's matter."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from pagoda.core.errors import TierFault
from pagoda.tiers.remote import objects, redis
from pagoda.tiers.remote.port import SharedTier

SCHEMES = (*redis.SCHEMES, *objects.SCHEMES)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteConfig:
    """Where a shared store is, and how to speak to it; what a client has no use for is left
    aside. Durations in seconds; `ttl_s` 0 means that values do not expire."""

    url: str
    user: str = ""
    password: str = field(default="", repr=False)
    ca_file: str = ""
    endpoint: str = ""
    region: str = ""
    ttl_s: float = 0.0
    timeout_s: float = 1.0
    concurrency: int = 8


def open_shared(config: RemoteConfig) -> SharedTier:
    """The store at `config.url`. Raises TierFault for an unknown scheme or a bad address; no
    server is asked anything yet."""
    scheme = urlsplit(config.url).scheme
    if scheme in redis.SCHEMES:
        return redis.RedisTier(
            redis.RedisConfig(
                url=config.url,
                user=config.user,
                password=config.password,
                ca_file=config.ca_file,
                timeout_s=config.timeout_s,
                ttl_s=config.ttl_s,
            )
        )
    if scheme in objects.SCHEMES:
        return objects.ObjectTier(
            objects.ObjectConfig(
                url=config.url,
                endpoint=config.endpoint,
                region=config.region,
                user=config.user,
                password=config.password,
                ca_file=config.ca_file,
                timeout_s=config.timeout_s,
                concurrency=config.concurrency,
            )
        )
    raise TierFault(
        f"no shared store is spoken to at {scheme or '(no scheme)'}:…",
        tier=redis.NAME,
        remedy=f"begin remote.url with one of {', '.join(f'{name}://' for name in SCHEMES)}",
    )
