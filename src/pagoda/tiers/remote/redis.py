"""A shared store on Valkey or Redis: one string value a block, pipelined in bounded batches.

Values carry an expiry when `ttl_s` is set; otherwise the server's own eviction policy (set
`maxmemory-policy allkeys-lru` there) decides what goes. One retry on a fresh connection
mends a connection that the server or a firewall closed; anything that lasts is the breaker's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pagoda.core.errors import TierError, TierFault, TierFull, TierReadOnly, TierTimeout

NAME = "remote"
SCHEMES = ("redis", "rediss", "unix")
_SCAN_COUNT = 1000  # names the server looks at for one reply
_READ_BYTES = 256 << 10  # of a reply at a time; the client's 32 KiB halve the speed

_DATABASE = re.compile(r"/?|/[0-9]+")

_REFUSED = (
    "the server refuses this user or password",
    "set remote.user, and remote.password_file or PAGODA_REMOTE_PASSWORD",
)
_MISCONFIGURED = (
    "the server cannot save to its disk and refuses writes",
    "mend its disk, or set stop-writes-on-bgsave-error no there",
)
# The client's exception, ours, what it means, what to do.
_ANSWERS: tuple[tuple[str, type[TierError], str, str], ...] = (
    (
        "OutOfMemoryError",
        TierFull,
        "the server has reached its maxmemory and evicts nothing",
        "set maxmemory-policy allkeys-lru there, or give it more memory",
    ),
    (
        "ReadOnlyError",
        TierReadOnly,
        "the server is a read-only replica",
        "name the primary in remote.url",
    ),
    (
        "NoPermissionError",
        TierReadOnly,
        "the server's ACL refuses a command to this user",
        "allow it SET, GETRANGE, EXISTS, UNLINK, SCAN, PING and SELECT on the names ~*",
    ),
    ("AuthenticationError", TierFault, *_REFUSED),
    ("AuthorizationError", TierFault, *_REFUSED),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisConfig:
    """Where the server is and how to speak to it.

    `url` is redis://host:port/db, rediss://… (TLS) or unix:///path/of/socket?db=0; `user` and
    `password` override what it carries. `timeout_s` bounds connecting, and each wait for
    bytes. `batch_bytes` bounds what one round trip moves, `ttl_s` 0 means no expiry.
    """

    url: str
    user: str = ""
    password: str = field(default="", repr=False)
    ca_file: str = ""
    timeout_s: float = 1.0
    ttl_s: float = 0.0
    batch_bytes: int = 32 << 20


class RedisTier:
    """A SharedTier over one server. Raises TierFault when the client is absent, or the URL bad.

    Nothing is asked of the server here: it may be down when an engine starts.
    """

    name = NAME

    def __init__(self, config: RedisConfig) -> None:
        self._where = redacted(config.url)
        self._config = config
        self._redis = _import_client()
        try:
            pool = self._redis.ConnectionPool(**_options(config))
        except ValueError:
            raise TierFault(
                f"{self._where} is no address of a Valkey or Redis server",
                tier=NAME,
                remedy="write remote.url as redis://host:6379/0, rediss://… or unix:///socket",
            ) from None  # the client's text may quote the URL
        self._client = self._redis.Redis.from_pool(pool)

    def put(self, names: Sequence[str], values: Sequence[Sequence[memoryview]]) -> None:
        sizes = [sum(len(piece) for piece in pieces) for pieces in values]
        for batch in _batches(sizes, self._config.batch_bytes):
            with self._typed(), self._client.pipeline(transaction=False) as pipeline:
                for i in batch:
                    # Joined: one argument is sent without another copy, several would not be.
                    pipeline.set(names[i], b"".join(values[i]), px=self._expiry_ms())
                pipeline.execute()

    def get(self, names: Sequence[str], limit_bytes: int) -> list[memoryview | None]:
        found: list[memoryview | None] = []
        for batch in _batches([limit_bytes] * len(names), self._config.batch_bytes):
            with self._typed(), self._client.pipeline(transaction=False) as pipeline:
                for i in batch:
                    pipeline.getrange(names[i], 0, limit_bytes - 1)
                found += map(_value, pipeline.execute(raise_on_error=False))
            self._tell_empty_from_absent(names[batch.start : batch.stop], found, batch.start)
        return found

    def has(self, names: Sequence[str]) -> list[bool]:
        if not names:
            return []
        with self._typed(), self._client.pipeline(transaction=False) as pipeline:
            for name in names:
                pipeline.exists(name)
            return [bool(count) for count in pipeline.execute()]

    def drop(self, names: Sequence[str]) -> None:
        if names:
            with self._typed():
                self._client.unlink(*names)

    def names(self, prefix: str) -> Iterator[str]:
        pattern = f"{prefix}*"  # names are hexadecimal: nothing in them needs escaping
        with self._typed():
            for name in self._client.scan_iter(match=pattern, count=_SCAN_COUNT):
                yield name.decode("ascii", errors="replace")

    def close(self) -> None:
        with self._typed():
            self._client.close()

    def _tell_empty_from_absent(
        self, names: Sequence[str], found: list[memoryview | None], first: int
    ) -> None:
        """GETRANGE of an absent name is empty, and so is that of an empty value: somebody's,
        which would be in the way of the block for ever if it counted as absent."""
        empty = [i for i in range(first, len(found)) if found[i] is not None and not found[i]]
        there = self.has([names[i - first] for i in empty])
        for i, exists in zip(empty, there, strict=True):
            if not exists:
                found[i] = None

    def _expiry_ms(self) -> int | None:
        return max(1, int(self._config.ttl_s * 1000)) if self._config.ttl_s else None

    @contextmanager
    def _typed(self) -> Iterator[None]:
        """Turn the client's errors into the tree's. Their texts may name keys: never quoted."""
        try:
            yield
        except TierError:
            raise
        except (self._redis.RedisError, OSError) as error:
            raise self._mapped(error) from None

    def _mapped(self, error: Exception) -> TierError:
        errors = self._redis.exceptions
        if isinstance(error, errors.TimeoutError | TimeoutError):
            return TierTimeout(
                f"{self._where}: no answer within {self._config.timeout_s} s",
                tier=NAME,
                deadline_s=self._config.timeout_s,
                remedy="see whether the server is overloaded, or raise remote.deadline",
            )
        for name, kind, what, remedy in _ANSWERS:
            if isinstance(error, getattr(errors, name)):
                return kind(f"{self._where}: {what}", tier=NAME, remedy=remedy)
        if "MISCONF " in str(error):
            what, remedy = _MISCONFIGURED
            return TierReadOnly(f"{self._where}: {what}", tier=NAME, remedy=remedy)
        return self._fault(error)

    def _fault(self, error: Exception) -> TierFault:
        """Only errors of a connection are quoted: replies repeat the command and its names."""
        quotable = isinstance(error, self._redis.ConnectionError | OSError)
        return TierFault(
            f"{self._where}: {error if quotable else type(error).__name__}",
            tier=NAME,
            remedy="see whether the server runs and remote.url names it",
        )


def _value(reply: Any) -> memoryview:
    """A reply to GETRANGE; nothing, if what has the name is no string but a list, a set, …"""
    if isinstance(reply, Exception):
        if not str(reply).startswith("WRONGTYPE"):
            raise reply
        return memoryview(b"")
    return memoryview(reply)


def redacted(url: str) -> str:
    """The URL without its credentials and options, for messages."""
    try:
        parts = urlsplit(url)
    except ValueError:  # no address at all
        return f"{url.partition(':')[0]}:…"
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"


def _options(config: RedisConfig) -> dict[str, Any]:
    """What connections are made with. Raises ValueError for a URL that is none, or that has
    options: ssl_cert_reqs=none would switch off what protects."""
    from redis.backoff import EqualJitterBackoff  # noqa: PLC0415
    from redis.connection import parse_url  # noqa: PLC0415
    from redis.retry import Retry  # noqa: PLC0415

    parts = urlsplit(config.url)
    if set(parse_qs(parts.query)) - {"db"}:
        raise ValueError("options in the URL")
    if parts.scheme != "unix" and not _DATABASE.fullmatch(parts.path):
        raise ValueError("the client would take database 0")
    options: dict[str, Any] = parse_url(config.url)  # type: ignore[no-untyped-call]
    options |= {
        "socket_timeout": config.timeout_s,
        "socket_read_size": _READ_BYTES,
        "retry": Retry(EqualJitterBackoff(base=0.05, cap=0.2), 1),
        "health_check_interval": 30,
        "protocol": 2,
    }
    if "path" not in options:
        options["socket_connect_timeout"] = config.timeout_s
    if config.user:
        options["username"] = config.user
    if config.password:
        options["password"] = config.password
    if config.ca_file and config.url.startswith("rediss:"):
        options["ssl_ca_certs"] = config.ca_file
    return options


def _batches(sizes: Sequence[int], limit_bytes: int) -> Iterator[range]:
    """Consecutive ranges of at most `limit_bytes` each, or of one item larger than that."""
    first, total = 0, 0
    for i, size in enumerate(sizes):
        if i > first and total + size > limit_bytes:
            yield range(first, i)
            first, total = i, 0
        total += size
    if first < len(sizes):
        yield range(first, len(sizes))


def _import_client() -> Any:
    try:
        import redis  # noqa: PLC0415
    except ImportError as error:
        raise TierFault(
            "the client for Valkey and Redis, which remote.url needs, is not installed",
            tier=NAME,
            remedy="pip install 'pagoda-kv[remote]'",
        ) from error
    return redis
