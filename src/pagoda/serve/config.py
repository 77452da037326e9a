"""Settings of the HTTP server: frozen, checked once."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

from pagoda.core.errors import SettingsError

__all__ = ["ServeConfig", "is_loopback"]


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only be reached from this machine."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """Where to listen, who may ask, and how much any client may take.

    Port 0 picks a free one. Without `api_key` only loopback hosts are accepted, both to listen
    on and in a request's Host header (a web page must not reach the server through a name that
    resolves to it). `model_name` defaults to the engine's. Raises SettingsError for a bad value.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = field(default=None, repr=False)
    model_name: str | None = None

    max_connections: int = 512
    header_timeout_s: float = 10.0  # from connecting, or a request's first byte, to its head
    idle_timeout_s: float = 60.0  # between two requests of one connection
    body_timeout_s: float = 60.0  # from the head to the end of the body
    stall_timeout_s: float = 120.0  # a client that reads nothing of its answer
    grace_s: float = 30.0  # how long running requests may go on after a stop signal
    flush_s: float = 10.0  # then, how long the engine may write pending blocks

    max_body_bytes: int = 8 << 20
    max_buffered_bytes: int = 64 << 20  # bodies of all requests together
    max_waiting: int = 256  # sequences without a first token; more are told to come back
    max_choices: int = 128  # prompts × n of one request
    max_n: int = 16
    max_stop: int = 16
    max_stop_chars: int = 256
    max_logprobs: int = 20

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise _bad("port", "a port is between 0 and 65535 (0 picks a free one)")
        if self.api_key is not None and not self.api_key.strip():
            raise _bad("api_key", "an API key is not empty", remedy="leave it out for loopback")
        if self.api_key is None and not is_loopback(self.host):
            raise _bad(
                "host",
                f"listening on {self.host or 'every address'} needs an API key",
                remedy="set api_key, or listen on 127.0.0.1",
            )
        for name in self.__dataclass_fields__:
            if name.endswith("_s") or name.startswith("max_"):
                self._check_positive(name)

    def _check_positive(self, name: str) -> None:
        value = getattr(self, name)
        allowed = value >= 0 if name in {"grace_s", "flush_s", "max_logprobs"} else value > 0
        if not allowed:
            raise _bad(name, f"{name} is {value}; it must be positive")


def _bad(key: str, message: str, *, remedy: str = "") -> SettingsError:
    return SettingsError(message, key=f"serve.{key}", source="ServeConfig", remedy=remedy)
