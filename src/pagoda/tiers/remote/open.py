"""From an address to a shared store: which client speaks to it is its scheme's matter."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field

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
    scheme, colon, _ = config.url.partition(":")
    scheme = scheme if colon else ""
    if config.ca_file:
        _require_authorities(config.ca_file)
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


def _require_authorities(file: str) -> None:
    """A file that cannot be used would look like a server that cannot be reached."""
    try:
        ssl.create_default_context(cafile=file)
    except OSError as error:
        parsed = isinstance(error, ssl.SSLError)
        why = "holds no certificates (PEM)" if parsed else error.strerror or type(error).__name__
        raise TierFault(
            f"remote.ca_file {file}: {why}",
            tier=redis.NAME,
            remedy="name a PEM file of certificate authorities, or leave it empty",
        ) from error
