"""Pagoda's own recordings: what a server was asked, without a word of it.

The first line is `{"pagoda_trace": 1, "block_tokens": N}`. Each other line is a request:

    {"at_s": 12.5, "input": 40, "output": 30, "prompt": "<16 hex digits a block>…",
     "generated": "…", "hint": "none", "end": "stop"}

`at_s` counts from the recording's begin. `prompt` names the prompt's whole blocks, `generated`
those that follow them, as far as they were computed. A name is an 8-byte BLAKE2b digest of the
block's key under 32 random bytes which are never written: equal names in one recording mean equal
prefixes, and nothing else can be told from them. Lines come in the order in which requests ended.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from pagoda.core.identity import Key
from pagoda.core.policy.port import Hint
from pagoda.core.trace.chains import Chains
from pagoda.core.trace.fields import answer_tokens, fields_of, prompt_tokens, seconds, shown, whole
from pagoda.core.trace.model import TraceRequest
from pagoda.core.trace.order import by_arrival
from pagoda.core.trace.port import TOKENS, Malformed, Unreadable

MARK = "pagoda_trace"  # the field that tells a recording's first line
VERSION = 1
SALT_BYTES = 32
_NAME_BYTES = 8
_DIGITS = 2 * _NAME_BYTES
_HEX = re.compile(r"[0-9a-f]*")
_HINTS = {hint.value: hint for hint in Hint}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRequest:
    """What a recording keeps of a request. `keys` are its chain of whole blocks, first block
    first, as far as they were computed, at least those of its prompt."""

    at_s: float
    input_tokens: int
    output_tokens: int
    keys: Sequence[Key]
    hint: Hint
    end: str


class RecordingLines:
    """Writes the lines of one recording. `salt` has SALT_BYTES random bytes, for it alone."""

    def __init__(self, *, salt: bytes, block_tokens: int) -> None:
        assert len(salt) == SALT_BYTES, f"a recording's salt has {SALT_BYTES} bytes"
        self._salt = salt
        self._block_tokens = block_tokens

    def header(self) -> str:
        """The first line, without its end like all of them."""
        return json.dumps({MARK: VERSION, "block_tokens": self._block_tokens})

    def line(self, request: RecordedRequest) -> str:
        """A request's line."""
        first = request.input_tokens // self._block_tokens
        return json.dumps(
            {
                "at_s": round(request.at_s, 6),
                "input": request.input_tokens,
                "output": request.output_tokens,
                "prompt": self._names(request.keys[:first]),
                "generated": self._names(request.keys[first:]),
                "hint": request.hint.value,
                "end": request.end,
            }
        )

    def _names(self, keys: Sequence[Key]) -> str:
        return "".join(
            hashlib.blake2b(key, key=self._salt, digest_size=_NAME_BYTES).hexdigest()
            for key in keys
        )


def begins_recording(line: str) -> bool:
    """Whether a line is the first one of a recording, of whatever version."""
    try:
        return MARK in fields_of(line)
    except Malformed:
        return False


class Recording:
    """Reads a recording. Blocks of answers are in it, none is inferred."""

    format = "pagoda"

    def __init__(self) -> None:
        self.block_tokens = 0  # until the first line was read
        self._chains = Chains()
        self._requests: list[TraceRequest] = []

    def take(self, line: str) -> None:
        fields = fields_of(line)
        if not self.block_tokens:
            self._begin(fields)
            return
        if MARK in fields:
            raise Malformed("a second recording begins here: one file holds one")
        self._requests.append(self._request(fields))

    def requests(self) -> list[TraceRequest]:
        return by_arrival(self._requests)

    def _begin(self, fields: dict[str, object]) -> None:
        if fields.get(MARK) != VERSION:
            raise Unreadable(
                f"a recording of version {shown(fields.get(MARK))}; this Pagoda reads {VERSION}"
            )
        try:
            block_tokens = whole(fields.get("block_tokens"), "block_tokens", least=1, below=TOKENS)
        except Malformed as error:
            raise Unreadable(f"a recording's first line is damaged: {error}") from error
        self.block_tokens = block_tokens

    def _request(self, fields: dict[str, object]) -> TraceRequest:
        tokens = prompt_tokens(fields.get("input"), "input")
        answer = answer_tokens(fields.get("output"), "output")
        prompt, generated = (_names_in(fields.get(name), name) for name in ("prompt", "generated"))
        first, end = tokens // self.block_tokens, (tokens + answer) // self.block_tokens
        if len(prompt) != first:
            raise Malformed(
                f"{tokens} tokens have {first} whole blocks, prompt names {len(prompt)}"
            )
        if len(generated) > end - first:
            raise Malformed(
                f"the answer completes {end - first} blocks, generated names {len(generated)}"
            )
        hint = fields.get("hint", Hint.NONE.value)
        if not isinstance(hint, str) or hint not in _HINTS:
            raise Malformed(f"hint is none of {', '.join(_HINTS)}: {shown(hint)}")
        at_s = seconds(fields.get("at_s"), "at_s")
        self._chains.count(len(prompt) + len(generated))
        numbers = self._chains.number(prompt + generated)
        return TraceRequest(
            at_s=at_s,
            input_tokens=tokens,
            output_tokens=answer,
            prompt=numbers[:first],
            generated=numbers[first:],
            hint=_HINTS[hint],
        )


def _names_in(value: object, name: str) -> list[int]:
    if not isinstance(value, str) or len(value) % _DIGITS or not _HEX.fullmatch(value):
        raise Malformed(f"{name} is no row of {_DIGITS} hexadecimal digits a block: {shown(value)}")
    return [int(value[at : at + _DIGITS], 16) for at in range(0, len(value), _DIGITS)]
