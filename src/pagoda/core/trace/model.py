"""A trace as the simulator reads it, whatever file it came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pagoda.core.policy.port import Hint


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """One request.

    `prompt` has the ids of its prompt's blocks, first block first; the last one may be partly
    filled. `generated` has the whole blocks that its answer completes: they follow the prompt's
    whole blocks. Ids are chained: equal ids mean equal prefixes up to and with that block.
    `at_s` is seconds since the trace began.
    """

    at_s: float
    input_tokens: int
    output_tokens: int
    prompt: tuple[int, ...]
    generated: tuple[int, ...] = ()
    hint: Hint = Hint.NONE

    def whole(self, block_tokens: int) -> tuple[int, ...]:
        """The whole blocks of prompt and answer, a chain."""
        return self.prompt[: self.input_tokens // block_tokens] + self.generated


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Requests in order of arrival, and the size of their blocks."""

    name: str
    block_tokens: int
    requests: Sequence[TraceRequest]

    def unique_blocks(self) -> int:
        """How many different blocks the prompts have: what capacities in percent refer to."""
        return len({block for request in self.requests for block in request.prompt})

    def input_tokens(self) -> int:
        """Tokens of all prompts together."""
        return sum(request.input_tokens for request in self.requests)
