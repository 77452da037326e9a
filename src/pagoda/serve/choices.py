"""From a request's body to the sequences the engine is asked for: one per prompt and choice."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

from pagoda.core.errors import RequestError
from pagoda.core.policy.port import Hint
from pagoda.engine.api import Request, Sampling
from pagoda.serve.config import ServeConfig
from pagoda.serve.schema import ChatBody, CommonBody, CompletionBody

__all__ = ["Limits", "check_limits", "derived_seed", "requests_for"]

COMPLETION_TOKENS = 16  # OpenAI's default for /v1/completions


@dataclass(frozen=True, slots=True)
class Limits:
    """What a body asks for, once checked against the server's limits."""

    n: int
    stop: tuple[str, ...]
    logprobs: int | None
    max_tokens: int | None  # None: whatever the context leaves


def check_limits(body: CommonBody, config: ServeConfig) -> Limits:
    """Raises RequestError for what exceeds the server's limits."""
    n = body.n or 1
    if n > config.max_n:
        raise _too_many("n", f"n is at most {config.max_n}")
    logprobs = _logprobs(body)
    if (logprobs or 0) > config.max_logprobs:
        name = "top_logprobs" if isinstance(body, ChatBody) else "logprobs"
        raise _too_many(name, f"{name} is at most {config.max_logprobs}")
    return Limits(n, _stop(body, config), logprobs, _max_tokens(body))


def _stop(body: CommonBody, config: ServeConfig) -> tuple[str, ...]:
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or []
    if len(stop) > config.max_stop:
        raise _too_many("stop", f"at most {config.max_stop} stop strings are allowed")
    if any(not text or len(text) > config.max_stop_chars for text in stop):
        raise _too_many("stop", f"a stop string has 1 to {config.max_stop_chars} characters")
    return tuple(dict.fromkeys(stop))


def _logprobs(body: CommonBody) -> int | None:
    if isinstance(body, ChatBody):
        return (body.top_logprobs or 0) if body.logprobs else None
    return body.logprobs if isinstance(body, CompletionBody) else None


def _max_tokens(body: CommonBody) -> int | None:
    if isinstance(body, ChatBody):
        return body.max_completion_tokens or body.max_tokens
    return body.max_tokens or COMPLETION_TOKENS


def _too_many(param: str, message: str) -> RequestError:
    return RequestError(message, param=param, code="invalid_value")


def derived_seed(seed: int, choice: int) -> int:
    """The seed of a request's choice: the first one's is the request's own, so that n=1 and
    n>1 begin alike; the others' are 63 bits of SHA-256 over `seed:choice` in decimal."""
    if choice == 0:
        return seed
    digest = hashlib.sha256(f"{seed}:{choice}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def requests_for(
    body: CommonBody,
    limits: Limits,
    prompts: list[tuple[tuple[int, ...], int]],
    *,
    id: str,
    hint: Hint,
) -> list[Request]:
    """One engine request per prompt and choice, prompts first. `prompts` are (tokens, room
    for the answer). Without a seed one is drawn here, so that the engine stays a function of
    its requests."""
    seed = secrets.randbits(63) if body.seed is None else body.seed
    return [
        Request(
            id=f"{id}/{at * limits.n + choice}",
            prompt=tokens,
            sampling=_sampling(body, limits, seed=derived_seed(seed, choice), room=room),
            salt=body.cache_salt or "",
            hint=hint,
        )
        for at, (tokens, room) in enumerate(prompts)
        for choice in range(limits.n)
    ]


def _sampling(body: CommonBody, limits: Limits, *, seed: int, room: int) -> Sampling:
    return Sampling(
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        top_k=max(0, body.top_k or 0),
        min_p=body.min_p or 0.0,
        seed=seed,
        max_tokens=room,
        stop=limits.stop,
        stop_token_ids=tuple(body.stop_token_ids or ()),
        ignore_eos=bool(body.ignore_eos),
        logprobs=limits.logprobs,
    )
