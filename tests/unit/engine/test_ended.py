"""What the engine tells of a request that ended: the chain that recordings are made of."""

from __future__ import annotations

from engine_harness import BLOCK_TOKENS, EngineHarness, prompt_of
from hypothesis import example, given
from hypothesis import strategies as st
from store_harness import NAMESPACE

from pagoda.core.identity import chain
from pagoda.engine.api import FinishReason


@given(st.integers(1, 70), st.integers(1, 40), st.integers(0, 6))
@example(10, BLOCK_TOKENS - 10, 10)
def test_an_ended_request_names_its_prompt_and_what_was_computed(
    prompt: int, answer: int, turns: int
) -> None:
    """The whole blocks of the prompt, whether they were computed or not, and those behind them
    whose KV was; the last token of an answer has none."""
    engine = EngineHarness()
    sequence = engine.ask("a", prompt_of(prompt), tokens=answer)
    for _ in range(turns):
        if not engine.scheduler.idle:
            engine.turn()
    if not engine.scheduler.idle:
        engine.cancel("a")
    ended = sequence.ended(FinishReason.LENGTH)
    known = chain(NAMESPACE, sequence.tokens, block_tokens=BLOCK_TOKENS)
    answered = len(engine.answers.get("a", []))
    computed = prompt + max(0, answered - 1)
    assert list(ended.keys) == known[: computed // BLOCK_TOKENS]
    assert (ended.prompt_tokens, ended.completion_tokens) == (prompt, answered)
    assert (ended.arrived_s, ended.reason) == (sequence.arrived_s, "length")
