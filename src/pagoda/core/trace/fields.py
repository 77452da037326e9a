"""What lines of traces are made of, checked. All raise Malformed."""

from __future__ import annotations

import json

from pagoda.core.trace.port import NAMES, SECONDS, TOKENS, Malformed

_SHOWN = 40  # characters of a bad value


def fields_of(line: str) -> dict[str, object]:
    """A line that is one JSON object."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"no JSON: {shown(str(error))}") from error
    if not isinstance(value, dict):
        raise Malformed(f"a JSON object is due, not {shown(line)}")
    return value


def whole(value: object, name: str, *, least: int = 0, below: int = NAMES) -> int:
    """A whole number in [least, below)."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Malformed(f"{name} is no whole number: {shown(value)}")
    if not least <= value < below:
        raise Malformed(f"{name} is {shown(value)}; it lies in [{least}, {below})")
    return value


def prompt_tokens(value: object, name: str) -> int:
    """A prompt's length; it has a token at least."""
    return whole(value, name, least=1, below=TOKENS)


def answer_tokens(value: object, name: str) -> int:
    """An answer's length; 0 if nothing was generated."""
    return whole(value, name, below=TOKENS)


def seconds(value: object, name: str, *, per_second: float = 1.0) -> float:
    """A moment or a span, in seconds; `value` counts `per_second` to the second."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise Malformed(f"{name} is no number: {shown(value)}")
    if not 0 <= value < SECONDS * per_second:
        raise Malformed(f"{name} is {shown(value)}; it is 0 or more, and below {SECONDS:g} s")
    return value / per_second


def names(value: object, name: str, *, tokens: int, block_tokens: int) -> list[int]:
    """The names of the blocks of `tokens`, with or without a last one that is partly filled."""
    if not isinstance(value, list):
        raise Malformed(f"{name} is no list: {shown(value)}")
    check_count(len(value), tokens=tokens, block_tokens=block_tokens)
    return [whole(each, name) for each in value]


def check_count(count: int, *, tokens: int, block_tokens: int) -> None:
    """As many blocks as so many tokens fill; the last one may be left out if it is not whole."""
    due = -(-tokens // block_tokens)
    if count not in (due, tokens // block_tokens):
        raise Malformed(
            f"{tokens} tokens are {due} blocks of {block_tokens} tokens, the line names {count}"
        )


def shown(value: object) -> str:
    """A value as an error tells of it: cut where it is long."""
    text = value if isinstance(value, str) else _repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _repr(value: object) -> str:
    """A number may be too long to be written in digits at all."""
    try:
        return repr(value)
    except ValueError:
        return "a very long number"
