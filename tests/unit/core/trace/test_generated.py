"""Blocks of answers, inferred from later prompts, beside the rule written out plainly."""

from __future__ import annotations

import json

from hypothesis import example, given
from trace_lines import SIZE, Asked, conversations, json_lines

from pagoda.core.trace import TraceRequest
from pagoda.core.trace.hash_ids import Mooncake


def read(requests: list[Asked]) -> list[TraceRequest]:
    """The requests as a trace tells of them."""
    codec = Mooncake(SIZE)
    for line in json_lines(requests):
        codec.take(line)
    return codec.requests()


def named(requests: list[TraceRequest], place: int) -> tuple[int, ...]:
    """The rule: the blocks that the first later request that goes on behind this one names."""
    this = requests[place]
    n, end = this.input_tokens, this.input_tokens + this.output_tokens
    first = n // SIZE
    for other in requests[place + 1 :]:
        same = first > 0 and other.prompt[:first] == this.prompt[:first]
        longer = other.input_tokens >= end
        stays = n % SIZE and len(other.prompt) > first and other.prompt[first] == this.prompt[first]
        if same and longer and not stays:
            return other.prompt[first : end // SIZE]
    return ()


FIRST = Asked(0, (0, 0, 0, 0, 1), (1, 1, 1, 1))
FOLLOWING = Asked(1, (0, 0, 0, 0, 1, 1, 1, 1, 1, 0), ())


@given(conversations)
@example([FIRST, FOLLOWING])
@example([FIRST, Asked(1, FIRST.prompt, ()), FOLLOWING])
@example([FIRST, Asked(1, FIRST.prompt + FIRST.answer, ())])
def test_answers_are_what_the_rule_says(requests: list[Asked]) -> None:
    """As many blocks as the answer completes: those that the rule names, then ones of which
    each occurs nowhere else in the trace."""
    trace = read(requests)
    prompts = {block for request in trace for block in request.prompt}
    fresh: list[int] = []
    for place, request in enumerate(trace):
        n = request.input_tokens
        count = (n + request.output_tokens) // SIZE - n // SIZE
        expected = named(trace, place) if count else ()
        assert len(request.generated) == count
        assert request.generated[: len(expected)] == expected
        fresh += request.generated[len(expected) :]
    assert len(fresh) == len(set(fresh))
    assert prompts.isdisjoint(fresh)


def test_a_prompt_that_keeps_the_partly_filled_block_goes_on_elsewhere() -> None:
    """Ids as some writers give them: the name of a block that was partly filled stays when it is
    padded. Such a prompt does not have the answer behind it."""
    codec = Mooncake(SIZE)
    for ids, answer in (([1, 2], 4), ([1, 2, 3], 0), ([1, 4, 5], 0)):
        tokens = 6 if answer else 12
        fields = {"timestamp": 0, "input_length": tokens, "output_length": answer, "hash_ids": ids}
        codec.take(json.dumps(fields))
    first, _, following = codec.requests()
    assert first.generated == following.prompt[1:2]


def test_a_next_turn_has_the_answer_in_its_prompt() -> None:
    """The block that the answer fills up bears the name that it has in the next prompt."""
    first, following = read([FIRST, FOLLOWING])
    assert first.generated == following.prompt[1:2]
    assert first.whole(SIZE) == following.whole(SIZE)
