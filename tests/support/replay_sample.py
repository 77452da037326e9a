"""A trace of many conversations, as a file: small, but with reuse that sizes and policies tell
apart."""

from __future__ import annotations

import random
from pathlib import Path

from trace_lines import SIZE, Asked, runs_lines


def sample(turns: int = 240, seed: int = 5) -> list[Asked]:
    """Conversations that take turns: each goes on from its prompt and answer, or begins anew
    behind one of a few instructions."""
    rng = random.Random(seed)
    instructions = [_tokens(rng, SIZE * 3) for _ in range(3)]
    chats: list[tuple[int, ...]] = []
    asked = []
    for turn in range(turns):
        if not chats or rng.random() < 0.3:
            chats.append(rng.choice(instructions))
        at = max(0, len(chats) - 1 - int(rng.expovariate(0.3)))
        prompt = chats[at] + _tokens(rng, rng.randint(1, 9))
        answer = _tokens(rng, rng.randint(0, 9))
        asked.append(Asked(at_ms=turn * 500, prompt=prompt, answer=answer))
        chats[at] = prompt + answer
    return asked


def write_sample(path: Path, lines: list[str] | None = None) -> Path:
    """The sample's lines, or others, in a file."""
    path.write_text("\n".join(lines or runs_lines(sample())) + "\n", encoding="utf-8")
    return path


def _tokens(rng: random.Random, count: int) -> tuple[int, ...]:
    return tuple(rng.randrange(1000) for _ in range(count))
