"""Asking in the manner that a server understands: which of the two APIs, which fields."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pagoda.core.errors import ServerRefused
from pagoda.verify.answers import Answer
from pagoda.verify.client import Client

ANSWER_TOKENS = 12
_TOP = 5  # the most that OpenAI's completions list
_CROWD = 4
_MISSING, _REFUSED = {404, 405, 501}, {400, 422}


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text, and the salt under which it is cached."""

    text: str
    salt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """What a server takes: chats or plain completions; log-probabilities; salts; whether it is
    asked where cached tokens lay, as SGLang is."""

    chat: bool
    logprobs: bool
    salts: bool
    places: bool = False

    def body(self, prompt: Prompt, *, model: str, answer_tokens: int) -> dict[str, object]:
        """The JSON of a greedy request."""
        body: dict[str, object] = {
            "model": model,
            "max_tokens": answer_tokens,
            "temperature": 0,
            "seed": 0,
        }
        if self.chat:
            body["messages"] = [{"role": "user", "content": prompt.text}]
        else:
            body["prompt"] = prompt.text
        if self.logprobs:
            body |= {"logprobs": True, "top_logprobs": _TOP} if self.chat else {"logprobs": _TOP}
        if self.salts:
            body["cache_salt"] = prompt.salt
        if self.places:
            body["return_cached_tokens_details"] = True
        return body


class Asker:
    """Asks one model in one manner."""

    def __init__(self, client: Client, *, model: str, manner: Manner) -> None:
        self.client = client
        self.model = model
        self.manner = manner

    def ask(self, prompt: Prompt, *, answer_tokens: int = ANSWER_TOKENS) -> Answer:
        """One answer. Raises ServerError."""
        path = "/v1/chat/completions" if self.manner.chat else "/v1/completions"
        body = self.manner.body(prompt, model=self.model, answer_tokens=answer_tokens)
        return self.client.answer(path, body, chat=self.manner.chat)

    def ask_together(
        self,
        prompts: Sequence[Prompt],
        *,
        delays: Sequence[float] = (),
        sleep: Callable[[float], None] = time.sleep,
    ) -> list[Answer]:
        """Answers to prompts that are asked at the same time, a few of them at once; each after
        its delay in seconds, where there are delays."""

        def ask(prompt: Prompt, delay_s: float) -> Answer:
            if delay_s:
                sleep(delay_s)
            return self.ask(prompt)

        with ThreadPoolExecutor(_CROWD, thread_name_prefix="pagoda-verify") as pool:
            return list(pool.map(ask, prompts, delays or [0.0] * len(prompts)))


def settle(client: Client, *, model: str, prompt: Prompt) -> Asker:
    """An asker in the first manner that the server takes. Raises ServerRefused when it takes
    none."""
    refusal: ServerRefused | None = None
    missing: set[bool] = set()
    for manner in _manners():
        if manner.chat in missing:
            continue
        asker = Asker(client, model=model, manner=manner)
        try:
            asker.ask(prompt, answer_tokens=1)
        except ServerRefused as error:
            if error.status not in _MISSING | _REFUSED:
                raise
            if error.status in _MISSING:
                missing.add(manner.chat)
            refusal = error
        else:
            return asker
    assert refusal is not None, "there are manners"
    raise refusal


def _manners() -> Iterator[Manner]:
    for chat in (False, True):
        for logprobs in (True, False):
            for salts in (True, False):
                yield Manner(chat=chat, logprobs=logprobs, salts=salts)
