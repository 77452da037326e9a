"""An answer of an OpenAI-compatible server, taken apart: tokens, log-probabilities, counts.

What is missing is None; what is there but is not what the API says raises BadAnswer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class BadAnswer(ValueError):
    """The JSON is not an answer of this API; the text says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Position:
    """One token of an answer: its text, its log-probability and the likeliest alternatives."""

    token: str
    logprob: float
    top: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer. `positions` is None without log-probabilities; `cached` and `restored` are
    prompt tokens that were not computed, and those of them that came from below the device:
    None where the server does not tell."""

    text: str
    positions: tuple[Position, ...] | None
    prompt_tokens: int
    cached: int | None
    restored: int | None


def parse_answer(body: object, *, chat: bool) -> Answer:
    """An answer from the JSON of a chat or a completion with one choice. Raises BadAnswer."""
    whole = _mapping(body, "the answer")
    choices = whole.get("choices")
    if not isinstance(choices, list) or len(choices) != 1:
        raise BadAnswer("the answer does not have one choice")
    choice = _mapping(choices[0], "the choice")
    usage = _mapping(whole.get("usage"), "usage")
    prompt_tokens = _count(usage.get("prompt_tokens"))
    if not prompt_tokens:
        raise BadAnswer("usage.prompt_tokens is missing")
    return Answer(
        text=_chat_text(choice) if chat else _text(choice.get("text")),
        positions=_chat_positions(choice) if chat else _positions(choice),
        prompt_tokens=prompt_tokens,
        cached=_cached(usage),
        restored=_restored(whole, usage),
    )


def _chat_text(choice: Mapping[str, Any]) -> str:
    """What was said, reasoning included."""
    message = _mapping(choice.get("message"), "message")
    parts = [message.get(name) for name in ("reasoning_content", "reasoning", "content")]
    return "".join(_text(part) for part in parts if part is not None)


def _positions(choice: Mapping[str, Any]) -> tuple[Position, ...] | None:
    """Those of a completion: three lists of equal length."""
    if choice.get("logprobs") is None:
        return None
    found = _mapping(choice["logprobs"], "logprobs")
    tokens, own, tops = (
        _list(found.get(name), name) for name in ("tokens", "token_logprobs", "top_logprobs")
    )
    if not len(tokens) == len(own) == len(tops):
        raise BadAnswer("the lists of logprobs differ in length")
    return tuple(
        Position(_text(token), _logprob(value), _top(top or {}))
        for token, value, top in zip(tokens, own, tops, strict=True)
    )


def _chat_positions(choice: Mapping[str, Any]) -> tuple[Position, ...] | None:
    """Those of a chat: one object a token."""
    if choice.get("logprobs") is None:
        return None
    content = _mapping(choice["logprobs"], "logprobs").get("content")
    return None if content is None else tuple(map(_chat_position, _list(content, "content")))


def _chat_position(item: object) -> Position:
    token = _mapping(item, "a token's logprobs")
    top: dict[str, float] = {}
    for other in _list(token.get("top_logprobs") or [], "top_logprobs"):
        named = _mapping(other, "an alternative")
        top.setdefault(_text(named.get("token")), _logprob(named.get("logprob")))
    return Position(_text(token.get("token")), _logprob(token.get("logprob")), top)


def _top(item: object) -> dict[str, float]:
    return {name: _logprob(value) for name, value in _mapping(item, "top_logprobs").items()}


def _cached(usage: Mapping[str, Any]) -> int | None:
    details = usage.get("prompt_tokens_details")
    return _count(details.get("cached_tokens")) if isinstance(details, Mapping) else None


def _restored(whole: Mapping[str, Any], usage: Mapping[str, Any]) -> int | None:
    """Pagoda tells it beside the cached tokens; SGLang splits these by where they lay, in a part
    of the answer that is its own, when it was asked for."""
    own = whole.get("sglext")
    split = own.get("cached_tokens_details") if isinstance(own, Mapping) else None
    if isinstance(split, Mapping):
        return sum(_count(value) or 0 for name, value in split.items() if name != "device")
    details = usage.get("prompt_tokens_details")
    return _count(details.get("restored_tokens")) if isinstance(details, Mapping) else None


def _mapping(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BadAnswer(f"{what} is not an object")
    return value


def _list(value: object, what: str) -> Sequence[Any]:
    if not isinstance(value, list):
        raise BadAnswer(f"{what} is not a list")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise BadAnswer("a text is missing")
    return value


def _logprob(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadAnswer("a log-probability is not a number")
    return float(value)


def _count(value: object) -> int | None:
    """A count of tokens, None for anything else."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if is_count else None  # type: ignore[return-value]
