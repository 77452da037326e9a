"""A shared store on objects: S3 and what speaks like it, GCS, Azure, or a shared directory.

One object a block, through obstore. A directory's files are written under a temporary name
and renamed (as `file://` in obstore does), so that no reader sees a part of one; they are not
synced, and what a power cut leaves of them the seals refuse.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from pagoda.core.errors import TierError, TierFault, TierFull, TierReadOnly, TierTimeout

NAME = "remote"
SCHEMES = ("s3", "gs", "az", "file")
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_READ_ONLY = {errno.EROFS, errno.EPERM, errno.EACCES}
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_HTTP_STATUS = re.compile(r"\b(?:status|status code)[: ]+(\d{3})\b", re.IGNORECASE)
_TIMED_OUT = re.compile(r"TimedOut|kind: Timeout|timed out")  # in the client's debug text
_NO_CONNECTION = "error sending request"

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectConfig:
    """Where the objects are: s3://bucket/prefix, gs://…, az://account/container/… or
    file:///directory.

    `endpoint` and `region` are for servers that speak S3; `user` and `password` are its
    access key and secret; empty ones leave the credentials to the environment (AWS_*, …).
    `timeout_s` bounds one request, `concurrency` how many are under way.
    """

    url: str
    endpoint: str = ""
    region: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    ca_file: str = ""
    timeout_s: float = 2.0
    concurrency: int = 8


class ObjectTier:
    """A SharedTier over a bucket's prefix or a directory. Raises TierFault when the client is
    absent or the URL bad; a store that cannot be reached is noticed at the first call."""

    name = NAME

    def __init__(self, config: ObjectConfig) -> None:
        self._where = config.url.partition("?")[0]
        self._timeout_s = config.timeout_s
        self._obstore = _import_client()
        self._store = self._open(config)
        self._bulk_delete = config.url.startswith("s3:")  # and absent names are no error there
        self._pool = ThreadPoolExecutor(config.concurrency, thread_name_prefix="pagoda-objects")

    def put(self, names: Sequence[str], values: Sequence[Sequence[memoryview]]) -> None:
        def put(i: int) -> None:
            with self._typed(writing=True):
                # One request each: parts left over by an aborted upload would cost money.
                self._obstore.put(self._store, names[i], b"".join(values[i]), use_multipart=False)

        self._each(put, range(len(names)))

    def get(self, names: Sequence[str], limit_bytes: int) -> list[memoryview | None]:
        return self._each(lambda name: self._get(name, limit_bytes), names)

    def has(self, names: Sequence[str]) -> list[bool]:
        return self._each(self._has, names)

    def drop(self, names: Sequence[str]) -> None:
        if self._bulk_delete:
            with self._typed(writing=True):
                self._obstore.delete(self._store, list(names))
        else:
            self._each(self._drop, names)

    def names(self, prefix: str) -> Iterator[str]:
        with self._typed():
            for chunk in self._obstore.list(self._store, prefix=prefix.rstrip("/") or None):
                yield from (meta["path"] for meta in chunk if meta["path"].startswith(prefix))

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _get(self, name: str, limit_bytes: int) -> memoryview | None:
        with self._typed():
            try:
                found = self._obstore.get(self._store, name)
                if found.meta["size"] > limit_bytes:
                    return memoryview(
                        self._obstore.get_range(self._store, name, start=0, length=limit_bytes)
                    )
                return memoryview(found.bytes())
            except FileNotFoundError:
                return None

    def _has(self, name: str) -> bool:
        with self._typed():
            try:
                self._obstore.head(self._store, name)
            except FileNotFoundError:
                return False
            return True

    def _drop(self, name: str) -> None:
        with self._typed(writing=True):
            try:
                self._obstore.delete(self._store, name)
            except FileNotFoundError:
                return

    def _each(self, call: Callable[[Any], Result], items: Sequence[Any]) -> list[Result]:
        """`call` for every item, several at a time; the first error, once all have ended."""
        if len(items) == 1:
            return [call(items[0])]
        futures = [self._pool.submit(call, item) for item in items]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise errors[0]
        return [future.result() for future in futures]

    def _open(self, config: ObjectConfig) -> Any:
        try:
            parts = urlsplit(config.url)
        except ValueError:
            raise self._bad_url() from None
        if "@" in parts.netloc or parts.query or parts.scheme not in SCHEMES:
            raise self._bad_url()
        with self._typed():
            try:
                if parts.scheme == "file":
                    return self._open_directory(unquote(parts.path), host=parts.netloc)
                return self._open_bucket(config, parts.scheme)
            except (ValueError, self._obstore.exceptions.BaseError):  # nothing was asked yet
                raise self._bad_url() from None

    def _open_directory(self, path: str, *, host: str) -> Any:
        if host or not path.startswith("/"):
            raise self._bad_url()
        with self._typed(writing=True):
            if not Path(path).is_dir():
                Path(path).mkdir(mode=0o700, parents=True)  # KV reveals prompts
            if not os.access(path, os.R_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return self._obstore.store.LocalStore(prefix=path)

    def _open_bucket(self, config: ObjectConfig, scheme: str) -> Any:
        timeout = timedelta(seconds=config.timeout_s)
        client: dict[str, Any] = {"timeout": timeout, "connect_timeout": timeout}
        options: dict[str, Any] = {}
        if scheme == "s3":
            options["region"] = config.region or "us-east-1"
            if config.endpoint:
                _require_endpoint(config.endpoint)
                options["endpoint"] = config.endpoint
                options["virtual_hosted_style_request"] = False
                client["allow_http"] = config.endpoint.startswith("http://")
            if config.user:
                options |= {
                    "access_key_id": config.user,
                    "secret_access_key": config.password,
                }
        if config.ca_file:
            client["root_certificate"] = Path(config.ca_file).read_bytes()
        return self._obstore.store.from_url(
            config.url,
            client_options=client,
            retry_config={"max_retries": 1, "retry_timeout": timeout},
            **options,
        )

    def _bad_url(self) -> TierFault:
        scheme = self._where.partition(":")[0]
        return TierFault(
            f"{scheme}:… is no address of an object store",
            tier=NAME,
            remedy="write remote.url as s3://bucket/prefix, gs://…, az://… or file:///directory, "
            "without credentials or options",
        )

    @contextmanager
    def _typed(self, *, writing: bool = False) -> Iterator[None]:
        """Turn the client's errors into the tree's. Their texts name objects: never quoted."""
        try:
            yield
        except TierError:
            raise
        except (self._obstore.exceptions.BaseError, OSError) as error:
            raise self._mapped(error, writing=writing) from None

    def _mapped(self, error: Exception, *, writing: bool) -> TierError:
        errors, text = self._obstore.exceptions, str(error)
        number = _number_of(error, text)
        denied = isinstance(error, errors.PermissionDeniedError | PermissionError)
        if number in _FULL or "507" in _HTTP_STATUS.findall(text):
            return TierFull(
                f"{self._where}: no space is left", tier=NAME, remedy="free space in the store"
            )
        if writing and (denied or number in _READ_ONLY):
            return TierReadOnly(
                f"{self._where}: writing is not permitted",
                tier=NAME,
                remedy="allow this user to write and delete there",
            )
        if denied or number in _READ_ONLY or isinstance(error, errors.UnauthenticatedError):
            return TierFault(
                f"{self._where}: the store refuses this user or password",
                tier=NAME,
                errno=number,
                remedy="set remote.user, and remote.password_file or PAGODA_REMOTE_PASSWORD",
            )
        if _TIMED_OUT.search(text):
            return TierTimeout(
                f"{self._where}: no answer within {self._timeout_s} s",
                tier=NAME,
                deadline_s=self._timeout_s,
                remedy="look at the network to the store, or raise remote.deadline",
            )
        return TierFault(
            f"{self._where}: {_summary(error, text, number)}",
            tier=NAME,
            errno=number,
            remedy="see whether the store runs, and remote.url and remote.endpoint name it",
        )


def _require_endpoint(endpoint: str) -> None:
    if not re.match(r"https?://[^/]", endpoint):
        raise TierFault(
            "remote.endpoint is no address of a server",
            tier=NAME,
            remedy="write it as https://host:port",
        )


def _number_of(error: Exception, text: str) -> int | None:
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    found = _OS_ERROR.search(text)
    return int(found[1]) if found else None


def _summary(error: Exception, text: str, number: int | None) -> str:
    """What may be told of an error: its number, its HTTP status, or its kind."""
    if number is not None:
        return os.strerror(number)
    if isinstance(error, FileNotFoundError):
        return "there is no such bucket or directory"
    if status := _HTTP_STATUS.search(text):
        return f"the store answered with HTTP status {status[1]}"
    return "the store cannot be reached" if _NO_CONNECTION in text else type(error).__name__


def _import_client() -> Any:
    try:
        import obstore  # noqa: PLC0415
        import obstore.store  # noqa: PLC0415
    except ImportError as error:
        raise TierFault(
            "the client for object stores, which remote.url needs, is not installed",
            tier=NAME,
            remedy="pip install 'pagoda-kv[remote]'",
        ) from error
    return obstore
