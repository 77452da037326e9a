"""How answers are written: OpenAI's chat and completion objects, whole or in chunks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from pagoda.engine.api import TokenLogprob

__all__ = ["ChatShape", "CompletionShape", "Shape"]

Json = dict[str, object]

# What stands for an impossible token: JSON has no minus infinity.
LOWEST_LOGPROB = -9999.0
SPELLED_BYTES = re.compile(r"bytes:(?:\\x[0-9a-f]{2})+")


class Shape(Protocol):
    """One of the two APIs' ways of writing a choice."""

    id_prefix: str
    whole: str  # "object" of a complete answer
    part: str  # and of a chunk

    def choice(self, index: int, text: str, logprobs: Json | None, finish: str) -> Json: ...

    def delta(
        self, index: int, text: str, logprobs: Json | None, finish: str | None, *, first: bool
    ) -> Json: ...

    def logprobs(self, tokens: Sequence[TokenLogprob], *, offset: int) -> Json: ...


class ChatShape:
    """/v1/chat/completions. A choice's first chunk names the role and comes with its first
    token, never before: a client that times the first chunk times the first token."""

    id_prefix = "chatcmpl"
    whole = "chat.completion"
    part = "chat.completion.chunk"

    def choice(self, index: int, text: str, logprobs: Json | None, finish: str) -> Json:
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": finish}

    def delta(
        self, index: int, text: str, logprobs: Json | None, finish: str | None, *, first: bool
    ) -> Json:
        delta: Json = {"role": "assistant", "content": text} if first else {"content": text}
        return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}

    def logprobs(self, tokens: Sequence[TokenLogprob], *, offset: int) -> Json:
        del offset  # chats report bytes instead of places
        return {"content": [_chat_token(token) for token in tokens], "refusal": None}


class CompletionShape:
    """/v1/completions. `text_offset` counts the characters of the answer's tokens before each
    one; a token that is only part of a character counts as none."""

    id_prefix = "cmpl"
    whole = "text_completion"
    part = "text_completion"

    def choice(self, index: int, text: str, logprobs: Json | None, finish: str | None) -> Json:
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}

    def delta(
        self, index: int, text: str, logprobs: Json | None, finish: str | None, *, first: bool
    ) -> Json:
        del first  # completions have no role to name
        return self.choice(index, text, logprobs, finish)

    def logprobs(self, tokens: Sequence[TokenLogprob], *, offset: int) -> Json:
        offsets = []
        for token in tokens:
            offsets.append(offset)
            offset += shown_chars(token)
        return {
            "tokens": [token.text for token in tokens],
            "token_logprobs": [_bounded(token.logprob) for token in tokens],
            "top_logprobs": [_by_text(token) for token in tokens],
            "text_offset": offsets,
        }


def shown_chars(token: TokenLogprob) -> int:
    """The characters a token adds to `text_offset`."""
    return 0 if SPELLED_BYTES.fullmatch(token.text) else len(token.text)


def _chat_token(token: TokenLogprob) -> Json:
    top = [_named(text, logprob) for _, text, logprob in token.top]
    return {**_named(token.text, token.logprob), "top_logprobs": top}


def _named(text: str, logprob: float) -> Json:
    return {"token": text, "logprob": _bounded(logprob), "bytes": _bytes_of(text)}


def _bytes_of(text: str) -> list[int]:
    """A token's bytes; the engine spells those that are no text as `bytes:\\xe4\\xbd`."""
    if SPELLED_BYTES.fullmatch(text):
        return list(bytes.fromhex(text.removeprefix("bytes:").replace("\\x", "")))
    return list(text.encode())


def _by_text(token: TokenLogprob) -> dict[str, float] | None:
    """Alternatives by their text; of several tokens with one text, the likeliest."""
    if not token.top:
        return None
    best: dict[str, float] = {}
    for _, text, logprob in token.top:
        best.setdefault(text, _bounded(logprob))
    return best


def _bounded(logprob: float) -> float:
    return max(logprob, LOWEST_LOGPROB)
