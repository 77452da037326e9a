"""An engine without a model: speaks bytes, echoes or follows a script, can be slow or fail.

Implements the port in engine/api.py, so a front door can be tested to its limits: `live` counts
the requests that the engine still works on, and must return to zero whatever a client does.
"""

from __future__ import annotations

import codecs
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pagoda.core.errors import EngineClosed, RequestError
from pagoda.engine.api import (
    CacheScope,
    FinishReason,
    ModelCard,
    Request,
    Sink,
    TokenLogprob,
    Update,
    Usage,
)
from pagoda.engine.detokenize import StopMatcher
from pagoda.testing.cache import FakeCache

__all__ = ["ByteCodec", "FakeEngine", "echo"]

EOS = 256
VOCAB = 257


class ByteCodec:
    """Tokens are UTF-8 bytes; 256 ends an answer. Text that contains `refuse` cannot be a chat."""

    def __init__(self, *, refuse: str = "\x00refuse") -> None:
        self._refuse = refuse

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, token_ids: list[int]) -> str:
        return bytes(i for i in token_ids if i < EOS).decode(errors="replace")

    def render_chat(self, messages: list[dict[str, str]]) -> list[int]:
        text = "".join(f"{m['role']}: {m['content']}\n" for m in messages)
        if self._refuse in text:
            raise RequestError("the chat template refuses the messages", param="messages")
        return self.encode(text)


def echo(request: Request) -> str:
    """The default script: the answer is the prompt."""
    return ByteCodec().decode(list(request.prompt))


@dataclass(slots=True)
class _Sequence:
    """A request being answered."""

    request: Request
    sink: Sink
    left: list[int]  # tokens to come, last one first
    stop: StopMatcher
    characters: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )
    made: int = 0
    cancelled: bool = False


class FakeEngine:
    """One thread that gives every live request a token a step, `token_s` apart.

    `script` says what to answer; an answer shorter than max_tokens ends with `stop`, unless
    ignore_eos is set, when it starts over. `fail_after` tokens a request ends in an error.
    `cached` is (device, restored) prompt tokens of every usage. `submitted` keeps all requests.
    """

    def __init__(
        self,
        *,
        script: Callable[[Request], str] = echo,
        token_s: float = 0.0,
        fail_after: int | None = None,
        cached: tuple[int, int] = (0, 0),
        context_tokens: int = 4096,
    ) -> None:
        self._script = script
        self._token_s = token_s
        self._fail_after = fail_after
        self._cached = cached
        self._context_tokens = context_tokens
        self._codec = ByteCodec()
        self._changed = threading.Condition()
        self._live: dict[str, _Sequence] = {}
        self._state = "running"
        self.submitted: list[Request] = []
        self.cancelled: list[str] = []
        self.resets: list[CacheScope] = []
        self.cache = FakeCache()
        self._thread = threading.Thread(target=self._run, name="fake-engine", daemon=True)
        self._thread.start()

    @property
    def card(self) -> ModelCard:
        return ModelCard(
            name="fake", context_tokens=self._context_tokens, vocab_size=VOCAB, block_tokens=16
        )

    @property
    def codec(self) -> ByteCodec:
        return self._codec

    @property
    def live(self) -> int:
        """Requests that were submitted and have not been sent their last update."""
        with self._changed:
            return len(self._live)

    @property
    def closed(self) -> bool:
        return self._state == "closed"

    def submit(self, request: Request, sink: Sink) -> None:
        left = list(self._script(request).encode())[::-1] or [EOS]
        sequence = _Sequence(request, sink, left, StopMatcher(request.sampling.stop))
        with self._changed:
            if self._state != "running":
                raise EngineClosed("the engine is closed")
            assert request.id not in self._live, "request ids are unique among those in flight"
            self.submitted.append(request)
            self._live[request.id] = sequence
            self._changed.notify()

    def cancel(self, request_id: str) -> None:
        with self._changed:
            if request_id in self._live:
                self.cancelled.append(request_id)
                self._live[request_id].cancelled = True
                self._changed.notify()

    def reset_cache(self, scope: CacheScope) -> int:
        self.resets.append(scope)
        return 7 if scope is CacheScope.ALL else 3

    def stats(self) -> Mapping[str, float]:
        return {"running": float(self.live)}

    def healthy(self) -> bool:
        return self._state == "running"

    def die(self) -> None:
        """Turns unhealthy, as an engine whose thread has ended."""
        self._end("dead")

    def close(self, *, flush_s: float = 10.0) -> None:
        self._end("closed")
        self._thread.join(timeout=flush_s)

    def _end(self, state: str) -> None:
        with self._changed:
            self._state = state
            for sequence in self._live.values():
                sequence.cancelled = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._live or self._state != "running")
                if not self._live:
                    return
                if self._token_s and not self._any_cancelled():
                    self._changed.wait_for(self._any_cancelled, timeout=self._token_s)
                batch = list(self._live.values())
            for sequence in batch:
                self._step(sequence)

    def _any_cancelled(self) -> bool:
        return any(sequence.cancelled for sequence in self._live.values())

    def _step(self, sequence: _Sequence) -> None:
        if sequence.cancelled:
            return self._finish(sequence, FinishReason.CANCELLED)
        if sequence.made == self._fail_after:
            return self._finish(sequence, FinishReason.ERROR, error="the engine failed on purpose")
        token = sequence.left.pop()
        sequence.made += 1
        if token == EOS:
            return self._finish(sequence, FinishReason.STOP, token=token)
        text = sequence.stop.feed(sequence.characters.decode(bytes([token])))
        if sequence.stop.stopped or token in sequence.request.sampling.stop_token_ids:
            return self._finish(sequence, FinishReason.STOP, token=token, text=text)
        if sequence.made == sequence.request.sampling.max_tokens:
            text += sequence.characters.decode(b"", final=True) + sequence.stop.flush()
            return self._finish(sequence, FinishReason.LENGTH, token=token, text=text)
        if not sequence.left:
            again = sequence.request.sampling.ignore_eos
            whole = list(self._script(sequence.request).encode())[::-1]
            sequence.left = whole if again and whole else [EOS]
        return sequence.sink(self._update(sequence, token=token, text=text))

    def _finish(
        self,
        sequence: _Sequence,
        reason: FinishReason,
        *,
        token: int | None = None,
        text: str = "",
        error: str | None = None,
    ) -> None:
        if reason is FinishReason.STOP and token == EOS:
            text += sequence.stop.flush()
        update = self._update(sequence, token=token, text=text, finish=reason, error=error)
        with self._changed:
            del self._live[sequence.request.id]
        sequence.sink(update)

    def _update(
        self,
        sequence: _Sequence,
        *,
        token: int | None,
        text: str,
        finish: FinishReason | None = None,
        error: str | None = None,
    ) -> Update:
        alternatives = sequence.request.sampling.logprobs
        shown = token is not None and alternatives is not None
        return Update(
            request_id=sequence.request.id,
            text=text,
            token_ids=() if token is None else (token,),
            logprobs=(_logprob(token, alternatives),) if shown else (),  # type: ignore[arg-type]
            finish=finish,
            usage=Usage(
                prompt_tokens=len(sequence.request.prompt),
                completion_tokens=sequence.made,
                cached_device=self._cached[0],
                cached_restored=self._cached[1],
            ),
            error=error,
        )


def _spelled(token: int) -> str:
    return "<end>" if token == EOS else chr(token) if token < 128 else f"bytes:\\x{token:02x}"


def _logprob(token: int, alternatives: int) -> TokenLogprob:
    """The chosen token is the likeliest; its successors follow, each half a nat less likely."""
    ranked = [(token + at) % VOCAB for at in range(alternatives)]
    top = tuple((i, _spelled(i), -0.5 * (at + 1)) for at, i in enumerate(ranked))
    return TokenLogprob(token_id=token, text=_spelled(token), logprob=-0.5, top=top)
