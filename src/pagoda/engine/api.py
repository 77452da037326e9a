"""The engine port: what a front door may ask of an engine, and what comes back.

Free of torch, so that the HTTP server, the benches and their tests need none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from pagoda.core.holdings import (
    BarredNamespace,
    Cleared,
    Holding,
    Lookup,
    Prefetched,
    Scope,
    TierStatus,
    Ttl,
)
from pagoda.core.pins import PinStatus, PinWish
from pagoda.core.policy.port import Hint


class FinishReason(StrEnum):
    """Why an answer ended."""

    STOP = "stop"  # end-of-sequence token, stop token or stop string
    LENGTH = "length"  # max_tokens or the end of the context
    CANCELLED = "cancelled"  # the client went away
    ERROR = "error"  # the engine failed; Update.error says how


class CacheScope(StrEnum):
    """What a cache reset empties."""

    DEVICE = "device"  # the engine's own pool; lower tiers keep their blocks
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How tokens are drawn and when to stop. temperature 0 is greedy.

    top_p in (0, 1], top_k 0 = off, min_p in [0, 1). `logprobs` is the number of
    alternatives reported beside each chosen token (0 = the chosen one only, None = none).
    A draw depends on (seed, position) alone, never on what else is in the batch.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0
    max_tokens: int = 256
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One sequence to continue. `salt` separates tenants: equal prompts under different
    salts share nothing. `id` is unique among the requests in flight; `hint` is what the request
    says of its session."""

    id: str
    prompt: tuple[int, ...]
    sampling: Sampling = field(default_factory=Sampling)
    salt: str = ""
    hint: Hint = Hint.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprob:
    """A token with its log-probability (natural log, before temperature) and alternatives."""

    token_id: int
    text: str
    logprob: float
    top: tuple[tuple[int, str, float], ...] = ()  # (token_id, text, logprob), best first


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts of a request. `cached_device` and `cached_restored` are prompt tokens
    whose KV was found on the device, or read from lower tiers and verified."""

    prompt_tokens: int
    completion_tokens: int = 0
    cached_device: int = 0
    cached_restored: int = 0

    @property
    def cached_tokens(self) -> int:
        return self.cached_device + self.cached_restored


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """Progress of one request: new text (stop strings already withheld) and new tokens.

    The last update has `finish`; text may be empty in any update. With
    FinishReason.ERROR, `error` holds a message that is safe to show to a client.
    """

    request_id: str
    text: str = ""
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    finish: FinishReason | None = None
    usage: Usage
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """What a front door must know of the served model."""

    name: str
    context_tokens: int
    vocab_size: int
    block_tokens: int
    created_s: int = 0


class Codec(Protocol):
    """Text to tokens and back (the model's tokenizer and chat template)."""

    def encode(self, text: str) -> list[int]: ...

    def decode(self, token_ids: list[int]) -> str: ...

    def render_chat(self, messages: list[dict[str, str]]) -> list[int]:
        """Tokens of a chat with the assistant's turn opened. Raises RequestError when the
        template refuses the messages."""
        ...


Sink = Callable[[Update], None]


class Cache(Protocol):
    """Administration of an engine's caches. All methods may be called from any thread, and wait
    for the engine's current step. They raise EngineClosed, and RequestError for what names
    nothing. Salts and prompts are not kept."""

    def holdings(self, scope: Scope) -> list[Holding]:
        """What is cached, by tier and namespace, fastest tier first."""
        ...

    def tiers(self) -> list[TierStatus]:
        """How each tier below the device stands, fastest first."""
        ...

    def drain(self, tier: str) -> TierStatus:
        """Write no more to a tier while this engine lives; what it holds can still be read."""
        ...

    def lookup(self, prompt: Sequence[int], salt: str) -> Lookup:
        """How much of a prompt is resident, and where. No block counts as used by it."""
        ...

    def clear(self, scope: Scope) -> Future[Cleared]:
        """Drop blocks of a scope from every tier; done once their headers were read back."""
        ...

    def quarantined(self) -> list[BarredNamespace]:
        """Namespaces of which nothing is handed out or stored, the oldest first."""
        ...

    def lift(self, namespace: str) -> BarredNamespace:
        """Hand out and store blocks of a namespace again; named by how it begins."""
        ...

    def ttls(self) -> list[Ttl]:
        """Times to live that are set."""
        ...

    def set_ttl(self, seconds: float | None, *, tenant: str | None, salt: str | None) -> None:
        """Set, or remove with None, the time to live of a tenant, by its id or its salt; with
        neither, of every tenant that has none of its own."""
        ...

    def prefetch(self, prompt: Sequence[int], salt: str) -> Prefetched:
        """Begin to bring a prompt's blocks into the fastest tier below the device."""
        ...

    def prefetches(self) -> list[Prefetched]:
        """Those that run, and those that ended of late."""
        ...

    def pin(
        self, prompt: Sequence[int], salt: str, wish: PinWish, *, wait_s: float = 0.0
    ) -> PinStatus:
        """Keep a prompt's blocks, there or not, until the pin ends. Waits up to `wait_s` until
        the pin is written down. Raises PinRefused for one that exceeds a budget."""
        ...

    def pins(self) -> list[PinStatus]:
        """Every pin, the oldest first."""
        ...

    def unpin(self, id: str | None, *, owner: str | None) -> int:
        """End a pin, or with None all of an owner's; returns how many."""
        ...


class Engine(Protocol):
    """A running engine. All methods may be called from any thread and return at once."""

    @property
    def card(self) -> ModelCard: ...

    @property
    def codec(self) -> Codec: ...

    @property
    def cache(self) -> Cache: ...

    def submit(self, request: Request, sink: Sink) -> None:
        """Queue a request. `sink` is called from the engine's thread, must not block, and is
        called last with an update that has `finish`. Raises RequestError when the request
        can never be served, EngineClosed when the engine is closing."""
        ...

    def cancel(self, request_id: str) -> None:
        """Stop a request and release its blocks; unknown ids are ignored."""
        ...

    def reset_cache(self, scope: CacheScope) -> int:
        """Forget cached blocks; returns how many. Those of the device are forgotten at once, but
        for what running requests hold. With ALL it is a clearing of everything (`Cache.clear`)
        that is waited for: a restart finds none of the blocks, or RequestError says where."""
        ...

    def stats(self) -> Mapping[str, float]:
        """Counters and gauges for people: running, waiting, blocks in each tier, …"""
        ...

    def healthy(self) -> bool:
        """False once the engine's thread has died or is closing."""
        ...

    def close(self, *, flush_s: float = 10.0) -> None:
        """Finish or cancel what runs, write what is pending within `flush_s`, release all."""
        ...
