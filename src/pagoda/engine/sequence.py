"""One request on its way through the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from pagoda.core.events import Ended, Finished
from pagoda.core.identity import ROOT, Key, NamespaceId, chain
from pagoda.core.policy.port import Ending
from pagoda.core.policy.port import Request as Visit
from pagoda.engine.api import FinishReason, Request, Sink, TokenLogprob, Update, Usage
from pagoda.engine.detokenize import Detokenizer
from pagoda.store.restore import Restore
from pagoda.store.shared import Probe


class Phase(Enum):
    """Where a request is."""

    WAITING = "waiting"  # holds no blocks
    RESTORING = "restoring"  # its prefix is being read from lower tiers
    RUNNING = "running"  # computes
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a step, or the end, brings to an answer."""

    text: str = ""
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    finish: FinishReason | None = None
    error: str | None = None


@dataclass(slots=True, eq=False)
class Sequence:
    """A request's tokens, its block table, and how far its KV is computed.

    `tokens` are prompt and answer; KV of tokens[:computed] lies in `blocks`. `keys` name
    the full blocks so far; keys[:published] have been offered to the caches.
    """

    request: Request
    sink: Sink
    detokenizer: Detokenizer
    namespace: NamespaceId
    block_tokens: int
    arrived_s: float
    tokens: list[int] = field(init=False)
    phase: Phase = Phase.WAITING
    blocks: list[int] = field(default_factory=list)
    computed: int = 0
    keys: list[Key] = field(default_factory=list)
    published: int = 0
    probe: Probe | None = None  # what the shared store has of the prompt
    restore: Restore | None = None
    restore_first: int = 0  # position in `blocks` of the restore's first block
    restore_created_s: list[int | None] = field(default_factory=list)  # of the blocks restored
    checked: range | None = None  # blocks that are computed though they were found; None: unasked
    visit: Visit | None = None  # as policies know it, once it has begun
    admissions: int = 0
    cached_device: int = 0  # prompt tokens, at the first admission
    cached_restored: int = 0
    admitted_s: float | None = None  # on the engine's clock, like arrived_s
    first_token_s: float | None = None

    def __post_init__(self) -> None:
        self.tokens = list(self.request.prompt)

    @property
    def prompt_tokens(self) -> int:
        return len(self.request.prompt)

    @property
    def answer_tokens(self) -> int:
        return len(self.tokens) - self.prompt_tokens

    @property
    def pending(self) -> int:
        """Tokens whose KV is not computed yet; 1 while decoding."""
        return len(self.tokens) - self.computed

    @property
    def usage(self) -> Usage:
        return Usage(
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.answer_tokens,
            cached_device=self.cached_device,
            cached_restored=self.cached_restored,
        )

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold this many tokens."""
        return -(-tokens // self.block_tokens)

    def keys_to(self, blocks: int) -> list[Key]:
        """Keys of the first `blocks` full blocks."""
        first = len(self.keys)
        if blocks > first:
            tokens = self.tokens[first * self.block_tokens : blocks * self.block_tokens]
            parent = self.keys[-1] if self.keys else ROOT
            self.keys += chain(
                self.namespace, tokens, block_tokens=self.block_tokens, parent=parent
            )
        return self.keys[:blocks]

    def parent_of(self, block: int) -> Key:
        """The key before this block's in the chain."""
        return self.keys[block - 1] if block else ROOT

    def reset(self) -> None:
        """Back to waiting, without blocks: what is cached will be found again."""
        self.phase = Phase.WAITING
        self.blocks = []
        self.computed = self.published = 0
        self.restore = None
        self.checked = range(0)  # what was not compared by now is not

    def tell(self, progress: Progress) -> None:
        """Send an update to whoever asked."""
        self.sink(
            Update(
                request_id=self.request.id,
                text=progress.text,
                token_ids=progress.token_ids,
                logprobs=progress.logprobs,
                finish=progress.finish,
                usage=self.usage,
                error=progress.error,
            )
        )

    def finished(self, reason: FinishReason, now_s: float) -> Finished:
        """What there is to tell of the whole request."""
        admitted_s = now_s if self.admitted_s is None else self.admitted_s
        first_s = self.first_token_s
        return Finished(
            request_id=self.request.id,
            reason=reason.value,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.answer_tokens,
            cached_device_tokens=self.cached_device,
            cached_restored_tokens=self.cached_restored,
            queued_s=admitted_s - self.arrived_s,
            first_token_s=None if first_s is None else first_s - self.arrived_s,
            total_s=now_s - self.arrived_s,
        )

    def begin(self) -> Visit:
        """It begins, for policies: once, however often it is admitted. Its time is that of its
        arrival."""
        assert self.visit is None, "a request begins once"
        self.visit = Visit(
            keys=tuple(self.keys_to(self.prompt_tokens // self.block_tokens)),
            at_s=self.arrived_s,
            tokens=self.prompt_tokens,
            hint=self.request.hint,
        )
        return self.visit

    def ending(self, now_s: float) -> Ending:
        """How it ends, for policies."""
        return Ending(
            keys=self._chain(),
            at_s=now_s,
            output_tokens=self.answer_tokens,
            hint=self.request.hint,
        )

    def ended(self, reason: FinishReason) -> Ended:
        """Which blocks it was about."""
        return Ended(
            arrived_s=self.arrived_s,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.answer_tokens,
            keys=self._chain(),
            hint=self.request.hint,
            reason=reason.value,
        )

    def _chain(self) -> tuple[Key, ...]:
        """The whole blocks of its prompt, and those behind them that were computed."""
        whole = max(self.prompt_tokens, self.computed) // self.block_tokens
        return tuple(self.keys_to(whole))
