"""What tests on the real SGLang ask, and the counters they look at."""

from __future__ import annotations

import random

from sglang_harness import Answer, Server

PROMPT_TOKENS = 405
CACHED_TOKENS = 400  # 25 pages of 16
STORED = "pagoda_stored_bytes_total"
SKIPPED = "pagoda_skipped_segments_total"
RESTORED = "pagoda_restored_bytes_total"
REFUSED = "pagoda_refused_segments_total"
TOLD = "sglang:prefetched_tokens_total"
_ROUNDS = 20  # until a drive that has failed is trusted again

Prompt = list[int]


def prompt_of(seed: int, tokens: int = PROMPT_TOKENS) -> Prompt:
    """Random bytes as tokens; prompts of two seeds have no page in common."""
    rng = random.Random(seed)
    return [rng.randrange(3, 250) for _ in range(tokens)]


def ask_until_stored(
    server: Server, prompt: Prompt, *, token_bytes: int = 1024
) -> tuple[Answer, Answer]:
    """The answer that is computed, and that of a hit on the device, once storage has it all."""
    stored = server.total(STORED)
    cold, local = server.ask(prompt), server.ask(prompt)
    assert (cold.cached, local.cached, local.stored) == (0, CACHED_TOKENS, 0)
    server.wait_for(STORED, stored + CACHED_TOKENS * token_bytes)
    return cold, local


def restore(server: Server, prompt: Prompt) -> Answer:
    """The answer to a prompt that only storage can have."""
    server.flush()
    return server.ask(prompt)


def restore_in_the_end(server: Server, prompt: Prompt, *, wanted: Answer) -> Answer:
    """The first answer that comes out of storage as a whole; those before it are as wanted."""
    for _ in range(_ROUNDS):
        answer = restore(server, prompt)
        if answer.stored == CACHED_TOKENS:
            return answer
        assert answer.tokens == wanted.tokens
    raise AssertionError(f"nothing was restored in {_ROUNDS} rounds")
