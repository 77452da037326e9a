"""The one error tree.

    PagodaError                      message, remedy
    ├── SettingsError                a setting is unknown or has a bad value: key, source
    ├── ModelError                   a model directory cannot be served: path
    │   ├── ModelNotFound
    │   └── UnsupportedModel         a feature that Pagoda does not implement: feature
    ├── RequestError                 a request is refused: param, code
    │   ├── ContextExceeded          it does not fit the context: tokens, limit
    │   └── PinRefused               a pin exceeds a budget: tier, used, asked, limit (blocks)
    ├── TierError                    a tier cannot do what was asked: tier
    │   ├── FormatError              a slab or header is foreign, newer or damaged: path
    │   ├── DirectoryLocked          another process owns the directory: path, owner
    │   ├── CapacityError            sizes do not fit: asked_bytes, limit_bytes
    │   ├── TierFull                 no space left (ENOSPC or the free-space floor)
    │   ├── TierReadOnly             the medium refuses writes
    │   ├── TierTimeout              an I/O passed its deadline: deadline_s
    │   └── TierFault                any other I/O error: errno
    ├── TraceError                   a trace cannot be read or recorded: path, line
    ├── ServerError                  a server that is asked cannot be used: url
    │   ├── ServerUnreachable        nothing answers, or the connection broke
    │   ├── ServerTimeout            it did not answer in time: timeout_s
    │   ├── ServerRefused            it refuses: status
    │   ├── ServerForeign            it does not speak OpenAI's API
    │   └── ModelUnknown             it does not serve the model: model
    ├── EngineBusy                   the engine's thread did not answer in time; nothing was done
    └── EngineClosed                 the engine is shutting down or has failed

Conditions raise one of these; violated internal invariants are assertions.
A corrupt, late or missing block is none of them: it is an outcome (core.outcome).
"""

from __future__ import annotations

__all__ = [
    "CapacityError",
    "ContextExceeded",
    "DirectoryLocked",
    "EngineBusy",
    "EngineClosed",
    "FormatError",
    "ModelError",
    "ModelNotFound",
    "ModelUnknown",
    "PagodaError",
    "PinRefused",
    "RequestError",
    "ServerError",
    "ServerForeign",
    "ServerRefused",
    "ServerTimeout",
    "ServerUnreachable",
    "SettingsError",
    "TierError",
    "TierFault",
    "TierFull",
    "TierReadOnly",
    "TierTimeout",
    "TraceError",
    "UnsupportedModel",
]


class PagodaError(Exception):
    """Every error Pagoda raises on purpose; `remedy` says what the reader can do."""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} ({self.remedy})" if self.remedy else self.message


class SettingsError(PagodaError):
    """A setting is unknown or has a bad value; `source` is the flag, variable or file."""

    def __init__(self, message: str, *, key: str, source: str, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.key = key
        self.source = source


class ModelError(PagodaError):
    """A model directory cannot be served."""

    def __init__(self, message: str, *, path: str, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.path = path


class ModelNotFound(ModelError):
    """The directory, or a file that a model needs, is missing."""


class UnsupportedModel(ModelError):
    """The model needs a feature that Pagoda does not implement, and will not guess."""

    def __init__(self, message: str, *, path: str, feature: str, remedy: str = "") -> None:
        super().__init__(message, path=path, remedy=remedy)
        self.feature = feature


class RequestError(PagodaError):
    """A request is refused; `param` and `code` are those of the OpenAI error object."""

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str = "invalid_request",
        remedy: str = "",
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.param = param
        self.code = code


class ContextExceeded(RequestError):
    """Prompt and answer together do not fit the context."""

    def __init__(self, message: str, *, tokens: int, limit: int, param: str = "messages") -> None:
        super().__init__(message, param=param, code="context_length_exceeded")
        self.tokens = tokens
        self.limit = limit


class PinRefused(RequestError):
    """A pin exceeds a budget: `used` of `limit` blocks of a tier are pinned, `asked` more are
    needed."""

    def __init__(  # noqa: PLR0913 - the sum, and what it is of
        self, message: str, *, remedy: str, tier: str, used: int, asked: int, limit: int
    ) -> None:
        super().__init__(message, param="pin", code="pin_budget_exceeded", remedy=remedy)
        self.tier = tier
        self.used = used
        self.asked = asked
        self.limit = limit


class TierError(PagodaError):
    """A tier cannot do what was asked; `tier` names it."""

    def __init__(self, message: str, *, tier: str, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.tier = tier


class FormatError(TierError):
    """A slab or header is foreign, of a newer version, or damaged."""

    def __init__(self, message: str, *, tier: str, path: str, remedy: str = "") -> None:
        super().__init__(message, tier=tier, remedy=remedy)
        self.path = path


class DirectoryLocked(TierError):
    """Another process owns the directory; `owner` describes it."""

    def __init__(self, message: str, *, tier: str, path: str, owner: str, remedy: str = "") -> None:
        super().__init__(message, tier=tier, remedy=remedy)
        self.path = path
        self.owner = owner


class CapacityError(TierError):
    """Sizes do not fit: a block in a slot, a slab on its file system, a pool in memory."""

    def __init__(
        self, message: str, *, tier: str, asked_bytes: int, limit_bytes: int, remedy: str = ""
    ) -> None:
        super().__init__(message, tier=tier, remedy=remedy)
        self.asked_bytes = asked_bytes
        self.limit_bytes = limit_bytes


class TierFull(TierError):
    """No space is left on the medium."""


class TierReadOnly(TierError):
    """The medium refuses writes; reading goes on."""


class TierTimeout(TierError):
    """An I/O passed its deadline; the thread that runs it may still be stuck."""

    def __init__(self, message: str, *, tier: str, deadline_s: float, remedy: str = "") -> None:
        super().__init__(message, tier=tier, remedy=remedy)
        self.deadline_s = deadline_s


class TierFault(TierError):
    """Any other I/O error; the medium is not trusted until it is probed."""

    def __init__(
        self, message: str, *, tier: str, errno: int | None = None, remedy: str = ""
    ) -> None:
        super().__init__(message, tier=tier, remedy=remedy)
        self.errno = errno


class TraceError(PagodaError):
    """A trace cannot be read or recorded; `line` counts from 1, None if it is no one line's."""

    def __init__(
        self, message: str, *, path: str, line: int | None = None, remedy: str = ""
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.path = path
        self.line = line


class ServerError(PagodaError):
    """A server that is asked over HTTP cannot be used."""

    def __init__(self, message: str, *, url: str, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.url = url


class ServerUnreachable(ServerError):
    """Nothing answers at the URL, or the connection broke."""


class ServerTimeout(ServerError):
    """The server did not answer in time."""

    def __init__(self, message: str, *, url: str, timeout_s: float, remedy: str = "") -> None:
        super().__init__(message, url=url, remedy=remedy)
        self.timeout_s = timeout_s


class ServerRefused(ServerError):
    """The server refuses; `status` is that of HTTP."""

    def __init__(self, message: str, *, url: str, status: int, remedy: str = "") -> None:
        super().__init__(message, url=url, remedy=remedy)
        self.status = status


class ServerForeign(ServerError):
    """What answers does not speak OpenAI's API."""


class ModelUnknown(ServerError):
    """The server does not serve the model."""

    def __init__(self, message: str, *, url: str, model: str, remedy: str = "") -> None:
        super().__init__(message, url=url, remedy=remedy)
        self.model = model


class EngineBusy(PagodaError):
    """The engine's thread did not come to a call in time; it was withdrawn, nothing was done."""


class EngineClosed(PagodaError):
    """The engine is shutting down or has failed; the request was not served."""
