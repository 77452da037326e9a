"""Sessions of agents, as `aiperf synthesize agentic-code` writes them: a line a turn, in order.

A line says what its turn adds to the context: `input_length` tokens in `hash_ids`, blocks of 512
tokens the last of which may be partly filled, and `output_length` tokens of an answer. A session's
first line has `timestamp` (ms), each later one `delay` (ms) since the answer before it ended.

What the file leaves open, and how it is read:

- A turn's prompt is the blocks of all turns so far, each turn's on blocks of their own, as their
  ids say. It counts 512 tokens a block but for the last one; answers are not named in it, so an
  answer's blocks are never asked for again.
- An answer is generated at 50 tokens a second.
- Where all sessions have one timestamp they begin 23 s apart, in the order of the file: with that,
  LRU and the offline optimum come as close as can be told to the values which are published with
  the trace that this is for.
- A session with `is_restart` repeats the context of an earlier one, and begins when that one's
  last answer has ended.

Source: https://github.com/ai-dynamo/aiperf
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pagoda.core.trace.chains import Chains
from pagoda.core.trace.fields import (
    answer_tokens,
    fields_of,
    names,
    prompt_tokens,
    seconds,
    shown,
)
from pagoda.core.trace.model import TraceRequest
from pagoda.core.trace.order import by_arrival
from pagoda.core.trace.port import TOKENS, Malformed

TOKENS_PER_SECOND = 50.0
APART_S = 23.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """What a line says; `wait_s` is its moment, or its delay."""

    wait_s: float
    input_tokens: int
    output_tokens: int
    names: list[int]

    @property
    def answer_s(self) -> float:
        return self.output_tokens / TOKENS_PER_SECOND


@dataclass(slots=True)
class _Session:
    restart: bool
    turns: list[_Turn]
    blocks: int

    def length_s(self) -> float:
        """From its first request to the end of its last answer."""
        waits_s = sum(turn.wait_s for turn in self.turns[1:])
        return waits_s + sum(turn.answer_s for turn in self.turns)


class Agentic:
    """Reads sessions."""

    format = "agentic"

    def __init__(self, block_tokens: int = 512) -> None:
        self.block_tokens = block_tokens
        self._chains = Chains()
        self._sessions: dict[str, _Session] = {}

    def take(self, line: str) -> None:
        fields = fields_of(line)
        name = fields.get("session_id")
        if not isinstance(name, str):
            raise Malformed(f"session_id is no text: {shown(name)}")
        session = self._sessions.get(name) or _Session(fields.get("is_restart") is True, [], 0)
        turn = self._turn(fields, "delay" if session.turns else "timestamp")
        blocks = session.blocks + len(turn.names)
        if blocks * self.block_tokens >= TOKENS:
            raise Malformed(f"the session's context has {TOKENS} tokens or more")
        self._chains.count(blocks + turn.output_tokens // self.block_tokens)
        self._sessions[name] = session
        session.blocks = blocks
        session.turns.append(turn)

    def requests(self) -> list[TraceRequest]:
        """Every turn's request."""
        starts_s = self._starts_s()
        return by_arrival(
            request
            for name, session in self._sessions.items()
            for request in self._requests(session, starts_s[name])
        )

    def _turn(self, fields: dict[str, object], wait: str) -> _Turn:
        tokens = prompt_tokens(fields.get("input_length"), "input_length")
        due = -(-tokens // self.block_tokens)
        ids = names(
            fields.get("hash_ids"),
            "hash_ids",
            tokens=due * self.block_tokens,
            block_tokens=self.block_tokens,
        )
        return _Turn(
            wait_s=seconds(fields.get(wait), wait, per_second=1000),
            input_tokens=tokens,
            output_tokens=answer_tokens(fields.get("output_length"), "output_length"),
            names=ids,
        )

    def _requests(self, session: _Session, at_s: float) -> Iterator[TraceRequest]:
        prompt: tuple[int, ...] = ()
        for place, turn in enumerate(session.turns):
            at_s += turn.wait_s if place else 0.0
            prompt += self._chains.number(turn.names, behind=prompt[-1] if prompt else None)
            unfilled = len(turn.names) * self.block_tokens - turn.input_tokens
            tokens = len(prompt) * self.block_tokens - unfilled
            whole = tokens // self.block_tokens
            yield TraceRequest(
                at_s=at_s,
                input_tokens=tokens,
                output_tokens=turn.output_tokens,
                prompt=prompt,
                generated=self._chains.fresh(
                    (tokens + turn.output_tokens) // self.block_tokens - whole
                ),
            )
            at_s += turn.answer_s

    def _starts_s(self) -> dict[str, float]:
        """When each session begins."""
        told = {name: session.turns[0].wait_s for name, session in self._sessions.items()}
        if len(set(told.values())) > 1:
            return told
        forerunners = self._forerunners()
        starts_s: dict[str, float] = {}
        for name in self._sessions:
            before = forerunners.get(name)
            if before is None:
                starts_s[name] = APART_S * (len(starts_s) - len(forerunners.keys() & starts_s))
            else:
                starts_s[name] = starts_s[before] + self._sessions[before].length_s()
        return starts_s

    def _forerunners(self) -> dict[str, str]:
        """Which earlier session each restarted one repeats: that of the last block which is not
        new."""
        owners: dict[int, str] = {}
        found: dict[str, str] = {}
        for name, session in self._sessions.items():
            known = [owners[each] for each in session.turns[0].names if each in owners]
            if session.restart and known:
                found[name] = known[-1]
            for turn in session.turns:
                for each in turn.names:
                    owners.setdefault(each, name)
        return found
