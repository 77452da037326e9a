"""The engine: one thread that owns scheduler, runner and store, and answers the port's calls."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from pagoda.core.errors import ContextExceeded, EngineClosed, RequestError
from pagoda.core.events import Observer, Stepped, ignore
from pagoda.core.identity import Namespace, NamespaceId
from pagoda.core.policy import DEFAULT
from pagoda.engine.answer import AnswerReader
from pagoda.engine.api import (
    CacheScope,
    Engine,
    FinishReason,
    ModelCard,
    Request,
    Sink,
)
from pagoda.engine.batch import Segment
from pagoda.engine.cache import EngineCache
from pagoda.engine.codec import TokenizerCodec
from pagoda.engine.commands import Commands
from pagoda.engine.detokenize import Detokenizer
from pagoda.engine.device import TIER, DeviceBlocks
from pagoda.engine.home import HomeThread
from pagoda.engine.runner import Runner
from pagoda.engine.sampling import Draw, sample
from pagoda.engine.scheduler import Limits, Scheduler
from pagoda.engine.sequence import Progress, Sequence
from pagoda.engine.shelf import DeviceShelf
from pagoda.store.admin import Admin
from pagoda.store.catalogue import Catalogue
from pagoda.store.pins import PinPlan
from pagoda.store.scopes import Served
from pagoda.store.store import Store

_log = logging.getLogger("pagoda.engine")
_IDLE_WAIT_S = 0.5
_STATS_EVERY_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What an engine is made of. `namespace` is that of unsalted requests."""

    runner: Runner
    codec: TokenizerCodec
    store: Store
    namespace: Namespace
    card: ModelCard
    limits: Limits
    wake: threading.Event  # set by the store's threads, too
    catalogue: Catalogue = field(default_factory=lambda: Catalogue(()))
    pins: PinPlan = field(default_factory=PinPlan)
    policy: str = DEFAULT  # of the device's blocks
    observer: Observer = ignore
    clock: Callable[[], float] = time.monotonic


class LlmEngine(Engine):
    """A running engine over `parts`, which it owns from now on; see `engine.api.Engine`.

    It runs in `home`, the thread that the parts were made in.
    """

    def __init__(self, parts: Parts, home: HomeThread) -> None:
        self._parts = parts
        self._home = home
        device = DeviceBlocks(
            parts.runner.num_blocks, view=parts.runner.block_view, policy=parts.policy
        )
        self._device = device
        self._scheduler = Scheduler(
            device, parts.store, limits=parts.limits, observer=parts.observer
        )
        self._served = Served(
            namespace=parts.namespace,
            block_tokens=parts.runner.block_tokens,
            block_bytes=parts.runner.block_bytes,
        )
        shelf = DeviceShelf(device, block_bytes=parts.runner.block_bytes)
        self._admin = Admin(
            parts.store, parts.catalogue, shelf, served=self._served, pins=parts.pins
        )
        self._commands = Commands(parts.wake)
        self._cache = EngineCache(self._admin, self._commands.ask)
        self._sequences: dict[str, Sequence] = {}
        self._namespaces: dict[str, NamespaceId] = {}
        self._stats: dict[str, float] = {}
        self._stats_due_s = 0.0
        self._reader = AnswerReader(parts.codec, context_tokens=parts.card.context_tokens)
        self._closing = False
        self._ended = home.run(self._run)

    # The port: called from any thread.

    @property
    def card(self) -> ModelCard:
        return self._parts.card

    @property
    def codec(self) -> TokenizerCodec:
        return self._parts.codec

    @property
    def cache(self) -> EngineCache:
        return self._cache

    def submit(self, request: Request, sink: Sink) -> None:
        self._check(request)
        sequence = Sequence(
            request=request,
            sink=sink,
            detokenizer=Detokenizer(self._parts.codec.pieces, request.sampling.stop),
            namespace=self._namespace(request.salt),
            block_tokens=self._parts.runner.block_tokens,
            arrived_s=self._parts.clock(),
        )
        self._commands.send(lambda: self._add(sequence))

    def cancel(self, request_id: str) -> None:
        with suppress(EngineClosed):  # then it has ended already
            self._commands.send(lambda: self._cancel(request_id))

    def reset_cache(self, scope: CacheScope) -> int:
        if scope is CacheScope.ALL:
            return self._cache.clear_everything()
        return self._commands.ask(self._device.forget)

    def stats(self) -> Mapping[str, float]:
        return self._stats

    def healthy(self) -> bool:
        return self._commands.open and not self._closing and not self._ended.done()

    def close(self, *, flush_s: float = 10.0) -> None:
        if self._closing:
            return
        self._closing = True
        self._commands.close()
        self._parts.wake.set()
        self._ended.result()
        self._home.close()
        self._admin.close()
        if self._parts.store.close(flush_s=flush_s):  # else a stuck read may still write there
            self._parts.runner.close()

    def check_invariants(self) -> None:
        """Sums of the device pool and the store, taken in the engine's thread."""
        self._commands.ask(self._scheduler.check_invariants)

    # The engine's thread.

    def _run(self) -> None:
        try:
            self._admin.start()
            while not self._closing:
                if not self._turn():
                    self._sleep()
            self._end_all(Progress(finish=FinishReason.CANCELLED))
            self._cache.close()
        except Exception:  # noqa: BLE001 - whatever it is, every waiting client must hear of it
            _log.exception("the engine failed")
            self._fail_all(_failure("the engine failed; see its log"))

    def _turn(self) -> bool:
        """Take commands, move blocks, compute one step; False when there was nothing to compute."""
        self._commands.run()
        self._parts.store.poll()
        self._admin.poll()
        self._advance(self._parts.clock())
        self._refresh_stats()
        step = self._scheduler.plan()
        if step:
            self._step(step)
        return bool(step)

    def _advance(self, now_s: float) -> None:
        """Admit what fits; a request whose blocks a stuck drive holds hears of it."""
        self._scheduler.advance(now_s)
        starved = self._scheduler.starved(now_s)
        if starved is not None:
            _log.error("a tier does not answer and holds device blocks that a request needs")
            self._end(starved, _failure("a stuck tier holds the memory that this request needs"))

    def _sleep(self) -> None:
        now_s = self._parts.clock()
        deadline_s = self._parts.store.next_deadline_s()
        timeout_s = _IDLE_WAIT_S if deadline_s is None else max(0.0, deadline_s - now_s)
        self._parts.wake.wait(min(timeout_s, _IDLE_WAIT_S))
        self._parts.wake.clear()

    def _step(self, step: list[tuple[Sequence, Segment]]) -> None:
        started_s = self._parts.clock()
        logits = self._parts.runner.forward([segment for _, segment in step])
        wanted = [sequence for sequence, segment in step if segment.want_logits]
        draws = sample(
            logits,
            [sequence.request.sampling for sequence in wanted],
            [len(sequence.tokens) for sequence in wanted],
        )
        for sequence, segment in step:
            self._scheduler.computed(sequence, len(segment.tokens))
        now_s = self._parts.clock()
        for sequence, draw in zip(wanted, draws, strict=True):
            self._accept(sequence, draw, now_s)
        self._tell_step(step, now_s - started_s)

    def _tell_step(self, step: list[tuple[Sequence, Segment]], seconds: float) -> None:
        sizes = [len(segment.tokens) for _, segment in step]
        decode = sum(size == 1 for size in sizes)
        self._parts.observer(
            Stepped(prefill_tokens=sum(sizes) - decode, decode_tokens=decode, seconds=seconds)
        )

    def _accept(self, sequence: Sequence, draw: Draw, now_s: float) -> None:
        """Take a drawn token into the answer, and end it if it ends here."""
        if sequence.first_token_s is None:
            sequence.first_token_s = now_s
        progress = self._reader.read(sequence, draw)
        if progress.finish is None:
            sequence.tell(progress)
        else:
            self._end(sequence, progress)

    def _end(self, sequence: Sequence, progress: Progress) -> None:
        assert progress.finish is not None, "an end has a reason"
        now_s = self._parts.clock()
        self._scheduler.remove(sequence, now_s)
        del self._sequences[sequence.request.id]
        self._parts.observer(sequence.finished(progress.finish, now_s))
        if sequence.visit is not None:  # else it asked for no block
            self._parts.observer(sequence.ended(progress.finish))
        sequence.tell(progress)

    def _end_all(self, last: Progress) -> None:
        self._commands.close()
        self._commands.run()
        for sequence in list(self._sequences.values()):
            self._end(sequence, last)

    def _fail_all(self, last: Progress) -> None:
        """Tell every client, without the scheduler: its sums may be wrong by the failure."""
        self._commands.close()
        self._cache.close()
        self._commands.run_out()  # among them requests that must hear of it, too
        for sequence in self._sequences.values():
            sequence.tell(last)
        now_s = self._parts.clock()
        for sequence in self._sequences.values():
            self._parts.observer(sequence.finished(FinishReason.ERROR, now_s))
        self._sequences.clear()

    # Commands, in the engine's thread.

    def _add(self, sequence: Sequence) -> None:
        if sequence.request.id in self._sequences:
            sequence.tell(_failure("a request with this id is running"))
            return
        self._admin.meet(sequence.namespace, sequence.request.salt)
        self._sequences[sequence.request.id] = sequence
        self._scheduler.add(sequence)
        full = sequence.prompt_tokens // sequence.block_tokens
        self._admin.pins.used(sequence.namespace, sequence.keys_to(full))

    def _cancel(self, request_id: str) -> None:
        sequence = self._sequences.get(request_id)
        if sequence is not None:
            self._end(sequence, Progress(finish=FinishReason.CANCELLED))

    # Helpers.

    def _check(self, request: Request) -> None:
        """Refuse what can never be served."""
        if not request.prompt:
            raise RequestError("the prompt is empty", param="prompt")
        worst = max(request.prompt)
        if min(request.prompt) < 0 or worst >= self.card.vocab_size:
            raise RequestError(
                f"token ids lie in [0, {self.card.vocab_size}); the prompt has {worst}",
                param="prompt",
            )
        if request.sampling.max_tokens < 1:
            raise RequestError("max_tokens is at least 1", param="max_tokens")
        tokens = len(request.prompt) + request.sampling.max_tokens
        if tokens > self.card.context_tokens:
            raise ContextExceeded(
                f"prompt ({len(request.prompt)}) and answer ({request.sampling.max_tokens}) "
                f"exceed the context of {self.card.context_tokens} tokens",
                tokens=tokens,
                limit=self.card.context_tokens,
            )

    def _namespace(self, salt: str) -> NamespaceId:
        known = self._namespaces.get(salt)
        if known is None:
            known = self._served.namespace_of(salt)
            if len(self._namespaces) < 1024:
                self._namespaces[salt] = known
        return known

    def _refresh_stats(self) -> None:
        now_s = self._parts.clock()
        if now_s < self._stats_due_s:
            return
        self._stats_due_s = now_s + _STATS_EVERY_S
        lower = self._parts.store.counts()
        self._stats = {
            "running": len(self._scheduler.active),
            "waiting": len(self._scheduler.waiting),
            "device_blocks": self._device.state.slots,
            "device_blocks_used": self._device.used(),
            "device_blocks_cached": self._device.cached(),
            **{f"{name}_blocks_stored": count for name, count in lower.items()},
            **self._leaders(),
            **self._admin.pins.stats(),
            "namespaces_quarantined": self._parts.store.quarantine.count,
            **{
                f"{name}_scrub_progress": share
                for name, share in self._parts.store.scrub_progress().items()
            },
        }

    def _leaders(self) -> dict[str, float]:
        """For each tier that heat orders, whether hit density decides there now."""
        leaders = {TIER: self._device.residency.leader, **self._parts.store.leaders()}
        return {
            f"{tier}_density_leads": float(leader == "density")
            for tier, leader in leaders.items()
            if leader
        }


def _failure(message: str) -> Progress:
    return Progress(finish=FinishReason.ERROR, error=message)


def card_of(*, name: str, runner: Runner, context_tokens: int, vocab_size: int) -> ModelCard:
    """The model card; the context is cut to what the block pool can hold at all."""
    pool_tokens = (runner.num_blocks - 1) * runner.block_tokens
    return ModelCard(
        name=name,
        context_tokens=min(context_tokens, pool_tokens),
        vocab_size=vocab_size,
        block_tokens=runner.block_tokens,
        created_s=int(time.time()),
    )


__all__ = ["LlmEngine", "Parts", "card_of"]
