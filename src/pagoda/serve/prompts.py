"""Prompts as tokens, off the event loop when they are long, checked against the context."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from pagoda.core.errors import ContextExceeded, RequestError
from pagoda.engine.api import Codec, ModelCard
from pagoda.serve.schema import Message

__all__ = ["completion_prompts", "message_prompt", "room_for_answer"]

T = TypeVar("T")
Tokens = tuple[int, ...]

# Encoding this much takes well under a millisecond, less than a detour through a thread is
# worth; more must not keep every other client waiting.
INLINE_CHARS = 2048


async def message_prompt(turns: list[Message], codec: Codec) -> Tokens:
    """The tokens of a chat, with the assistant's turn opened."""
    messages = [message.for_template() for message in turns]
    size = sum(len(turn["content"]) for turn in messages)
    return tuple(await _aside(lambda: codec.render_chat(messages), size))


async def completion_prompts(prompt: object, codec: Codec, card: ModelCard) -> list[Tokens]:
    """The tokens of each prompt: a string, a list of strings, a list of ids or a list of lists
    of ids. Raises RequestError for any other shape."""
    if isinstance(prompt, str) or (isinstance(prompt, list) and _is_ids(prompt)):
        prompt = [prompt]
    if not isinstance(prompt, list) or not prompt:
        raise _shape_fault()
    return [await _one_prompt(single, codec, card) for single in prompt]


async def _one_prompt(prompt: object, codec: Codec, card: ModelCard) -> Tokens:
    if isinstance(prompt, str):
        if not prompt:
            raise _empty("prompt")
        return tuple(await _aside(lambda: codec.encode(prompt), len(prompt)))
    if not isinstance(prompt, list) or not _is_ids(prompt):
        raise _shape_fault()
    if min(prompt) < 0 or max(prompt) >= card.vocab_size:
        raise RequestError(
            f"token ids must be between 0 and {card.vocab_size - 1}",
            param="prompt",
            code="invalid_value",
        )
    return tuple(prompt)


def _is_ids(prompt: list[object]) -> bool:
    """A list of numbers, and not empty; booleans are no numbers here."""
    return bool(prompt) and all(type(item) is int for item in prompt)


async def _aside(work: Callable[[], T], size_chars: int) -> T:
    return work() if size_chars <= INLINE_CHARS else await asyncio.to_thread(work)


def room_for_answer(prompt: Tokens, *, asked: int | None, context: int, param: str) -> int:
    """How many tokens an answer may have: `asked`, or by default what the context leaves.
    Raises ContextExceeded when both do not fit, RequestError for an empty prompt."""
    if not prompt:
        raise _empty(param)
    room = context - len(prompt)
    if room < 1:
        raise ContextExceeded(
            f"the prompt has {len(prompt)} tokens; the context holds {context}, the answer "
            "included",
            tokens=len(prompt),
            limit=context,
            param=param,
        )
    if asked is not None and asked > room:
        raise ContextExceeded(
            f"the prompt has {len(prompt)} tokens and max_tokens asks for more than the "
            f"{room} that are left of the context's {context}",
            tokens=len(prompt) + asked,
            limit=context,
            param="max_tokens",
        )
    return room if asked is None else asked


def _empty(param: str) -> RequestError:
    return RequestError("the prompt is empty", param=param, code="empty_prompt")


def _shape_fault() -> RequestError:
    return RequestError(
        "prompt must be a string, a list of strings, a list of token ids or a list of lists "
        "of token ids, and not empty",
        param="prompt",
        code="invalid_value",
    )
