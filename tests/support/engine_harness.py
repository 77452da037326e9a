"""A scheduler over a pretend runner: KV is a function of the tokens before it, so that a
block with wrong bytes changes the answer."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence as Run

from store_harness import NAMESPACE, Harness

from pagoda.core.events import Event
from pagoda.core.identity import NamespaceId
from pagoda.core.policy import DEFAULT, Hint
from pagoda.engine.api import Request, Sampling
from pagoda.engine.batch import Segment
from pagoda.engine.device import DeviceBlocks
from pagoda.engine.scheduler import Limits, Scheduler
from pagoda.engine.sequence import Sequence
from pagoda.machine.buffers import aligned_buffer
from pagoda.store.checks import CheckPlan
from pagoda.tiers.remote.port import SharedTier

BLOCK_TOKENS = 16
BLOCK_BYTES = 4096
STATE_BYTES = BLOCK_BYTES // BLOCK_TOKENS


class PretendRunner:
    """Computes 256 bytes of KV a token: a digest of the token and the KV of the one before."""

    def __init__(self, blocks: int) -> None:
        self.memory = memoryview(aligned_buffer(blocks * BLOCK_BYTES))
        self.tokens_computed = 0
        self.segments: list[Segment] = []

    def view(self, block: int) -> memoryview:
        return self.memory[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES]

    def forward(self, segments: Run[Segment]) -> list[int]:
        """The next token of each segment that wants one."""
        self.segments += segments
        answers = []
        for segment in segments:
            for offset, token in enumerate(segment.tokens):
                self._write(segment, segment.start + offset, token)
                self.tokens_computed += 1
            if segment.want_logits:
                answers.append(int.from_bytes(self._read(segment, segment.end - 1)[:2], "little"))
        return answers

    def _place(self, segment: Segment, position: int) -> memoryview:
        place = position % BLOCK_TOKENS * STATE_BYTES
        return self.view(segment.blocks[position // BLOCK_TOKENS])[place : place + STATE_BYTES]

    def _read(self, segment: Segment, position: int) -> bytes:
        return bytes(self._place(segment, position)) if position >= 0 else bytes(STATE_BYTES)

    def _write(self, segment: Segment, position: int, token: int) -> None:
        before = self._read(segment, position - 1)
        digest = hashlib.sha256(before + token.to_bytes(4, "little")).digest()
        self._place(segment, position)[:] = digest * (STATE_BYTES // 32)


def expected_answer(prompt: Run[int], count: int) -> list[int]:
    """What the pretend runner answers, computed without blocks."""
    state = bytes(STATE_BYTES)
    for token in prompt:
        state = hashlib.sha256(state + token.to_bytes(4, "little")).digest() * (STATE_BYTES // 32)
    answer = []
    for _ in range(count):
        token = int.from_bytes(state[:2], "little")
        answer.append(token)
        state = hashlib.sha256(state + token.to_bytes(4, "little")).digest() * (STATE_BYTES // 32)
    return answer


class EngineHarness:
    """Scheduler, device blocks, store and pretend runner, driven turn by turn."""

    def __init__(
        self,
        *,
        blocks: int = 24,
        upper: int = 64,
        lower: int = 64,
        limits: Limits | None = None,
        seed: int = 0,
        shared: SharedTier | None = None,
        check: CheckPlan | None = None,
    ) -> None:
        self.io = Harness(upper=upper, lower=lower, seed=seed, shared=shared, check=check)
        self.runner = PretendRunner(blocks)
        self.events: list[Event] = []
        self.device = DeviceBlocks(blocks, view=self.runner.view, policy=DEFAULT)
        self.scheduler = Scheduler(
            self.device,
            self.io.store,
            limits=limits or Limits(max_sequences=8, chunk_tokens=128),
            observer=self.events.append,
        )
        self.answers: dict[str, list[int]] = {}
        self.live: dict[str, Sequence] = {}

    def ask(
        self,
        name: str,
        prompt: Run[int],
        *,
        tokens: int = 5,
        namespace: NamespaceId = NAMESPACE,
        hint: Hint = Hint.NONE,
    ) -> Sequence:
        """Queue a request."""
        sampling = Sampling(max_tokens=tokens)
        sequence = Sequence(
            request=Request(id=name, prompt=tuple(prompt), sampling=sampling, hint=hint),
            sink=lambda update: None,
            detokenizer=None,  # type: ignore[arg-type] - the harness reads tokens only
            namespace=namespace,
            block_tokens=BLOCK_TOKENS,
            arrived_s=self.io.clock(),
        )
        self.live[name] = sequence
        self.scheduler.add(sequence)
        return sequence

    def turn(self, *, io_jobs: int = 1000) -> bool:
        """One turn of the engine's loop; False when nothing could be computed."""
        for _ in range(io_jobs):
            if not self.io.executor.step():
                break
        self.io.store.poll()
        self.scheduler.advance(self.io.clock())
        step = self.scheduler.plan()
        answers = self.runner.forward([segment for _, segment in step])
        for sequence, segment in step:
            self.scheduler.computed(sequence, len(segment.tokens))
        wanted = [sequence for sequence, segment in step if segment.want_logits]
        for sequence, token in zip(wanted, answers, strict=True):
            self._accept(sequence, token)
        self.scheduler.check_invariants()
        return bool(step)

    def _accept(self, sequence: Sequence, token: int) -> None:
        sequence.tokens.append(token)
        name = sequence.request.id
        self.answers.setdefault(name, []).append(token)
        if sequence.answer_tokens == sequence.request.sampling.max_tokens:
            self.cancel(name)

    def cancel(self, name: str) -> None:
        """Take a request out."""
        self.scheduler.remove(self.live.pop(name), self.io.clock())

    def run(self, *, turns: int = 2000) -> None:
        """Turn until nobody waits; fails when it takes too long."""
        for _ in range(turns):
            if self.scheduler.idle:
                break
            self.turn()
        assert self.scheduler.idle, "the engine does not come to an end"
        self.io.settle()
        self.scheduler.check_invariants()
        assert self.device.state.lease_count() == 0, "a device block was leaked"


def prompt_of(count: int, *, salt: int = 0) -> list[int]:
    """A prompt of `count` tokens."""
    return [(salt * 1009 + i * 31) % 50000 for i in range(count)]
