"""Asking a running engine, and noting when each token came."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from pagoda.core.errors import EngineClosed
from pagoda.engine.api import Engine, FinishReason, Request, Sampling, Update, Usage
from pagoda.lab.bench.window import Decoded

ANSWER_WAIT_S = 600.0


@dataclass
class _Answer:
    """Collects one request's updates; called in the engine's thread."""

    tokens: list[int] = field(default_factory=list)
    moments_s: list[float] = field(default_factory=list)
    last: Update | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    def __call__(self, update: Update) -> None:
        now_s = time.perf_counter()
        self.tokens += update.token_ids
        self.moments_s += [now_s] * len(update.token_ids)
        if update.finish is not None:
            self.last = update
            self.ended.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A finished request: seconds to its first token, its tokens, its usage."""

    first_token_s: float
    decoded: Decoded
    usage: Usage


def ask_all(
    engine: Engine, prompts: Sequence[Sequence[int]], *, new_tokens: int, salt: str
) -> list[Asked]:
    """Submit all prompts at once, greedy, exactly `new_tokens` each; wait for all.

    `salt` keeps prompts from being answered out of other runs' caches. Raises EngineClosed
    when a request fails.
    """
    sampling = Sampling(temperature=0.0, max_tokens=new_tokens, ignore_eos=True)
    answers = [_Answer() for _ in prompts]
    began_s = time.perf_counter()
    for number, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        request = Request(id=f"{salt}/{number}", prompt=tuple(prompt), sampling=sampling, salt=salt)
        engine.submit(request, answer)
    return [_wait(answer, began_s) for answer in answers]


def ask(engine: Engine, prompt: Sequence[int], *, new_tokens: int, salt: str) -> Asked:
    """One prompt alone."""
    return ask_all(engine, [prompt], new_tokens=new_tokens, salt=salt)[0]


def _wait(answer: _Answer, began_s: float) -> Asked:
    if not answer.ended.wait(ANSWER_WAIT_S) or answer.last is None:
        raise EngineClosed(f"no answer within {ANSWER_WAIT_S:.0f} s")
    if answer.last.finish is not FinishReason.LENGTH:
        raise EngineClosed(f"a request ended early: {answer.last.error or answer.last.finish}")
    return Asked(
        first_token_s=answer.moments_s[0] - began_s,
        decoded=Decoded(tokens=tuple(answer.tokens), moments_s=tuple(answer.moments_s)),
        usage=answer.last.usage,
    )
