"""The naive model: which prompts exist, and the true bytes of every block of theirs.

Bytes are made from the namespace's fields and the tokens alone, by other means than keys:
two blocks that differ but come under one key are told apart here.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pagoda.core.identity import ROOT, Key, Namespace, NamespaceId, chain
from pagoda.store.writer import Block

BLOCK_TOKENS = 2
BLOCK_BYTES = 128
LONGEST = 10  # blocks of a prompt
_PROMPTS = 40
_ALPHABET = 5  # so few kinds of blocks that equal ones follow different prefixes

_BASE = Namespace(
    weights=bytes(32),
    config="{}",
    layout="LBHD",
    dtype="bf16",
    scales="none",
    layers=2,
    kv_heads=2,
    head_dim=8,
    block_tokens=BLOCK_TOKENS,
    tp_rank=0,
    tp_size=2,
    pp_rank=0,
    pp_size=1,
    rope="10000",
    adapter="",
    salt="",
)
# Each differs from the first in one field: what an engine, a tenant or a rank may change.
NAMESPACES = (
    _BASE,
    replace(_BASE, weights=bytes([1]) * 32),
    replace(_BASE, dtype="fp8"),
    replace(_BASE, salt="tenant"),
    replace(_BASE, tp_rank=1),
    replace(_BASE, adapter="lora"),
    replace(_BASE, layout="LHBD"),
    replace(_BASE, scales="per-head"),
    replace(_BASE, rope="500000"),
    replace(_BASE, config='{"sliding_window": 8}'),
    replace(_BASE, layers=4),
    replace(_BASE, kv_heads=4),
    replace(_BASE, head_dim=16),
    replace(_BASE, tp_size=4),
    replace(_BASE, pp_size=2),
    replace(_BASE, pp_rank=1, pp_size=2),
)


@dataclass(frozen=True, slots=True)
class Prompt:
    """The full blocks of a prompt under one namespace: their keys and their true bytes."""

    name: str
    namespace: NamespaceId
    keys: Sequence[Key]
    truths: Sequence[bytes]

    def parent(self, position: int) -> Key:
        """The key before that of a position."""
        return self.keys[position - 1] if position else ROOT

    def block(self, position: int, payload: memoryview) -> Block:
        """The block at `position`, to be stored from `payload`."""
        return Block(
            namespace=self.namespace,
            key=self.keys[position],
            parent=self.parent(position),
            depth=position,
            tokens=BLOCK_TOKENS,
            payload=payload,
        )


class World:
    """A pool of prompts that share prefixes, asked for in a Zipf-like way."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._ids = [namespace.digest() for namespace in NAMESPACES]
        self._prompts = _prompts(rng)
        self._made: dict[tuple[int, int], Prompt] = {}
        self._truths: dict[Key, bytes] = {}

    def prompt(self, namespace: int, number: int) -> Prompt:
        """Prompt `number` as an engine of that namespace sees it."""
        known = self._made.get((namespace, number))
        if known is None:
            tokens = self._prompts[number]
            identity = self._ids[namespace]
            known = Prompt(
                name=f"n{namespace}/p{number}",
                namespace=identity,
                keys=chain(identity, tokens, block_tokens=BLOCK_TOKENS),
                truths=[
                    _truth(namespace, tokens[:end])
                    for end in range(BLOCK_TOKENS, len(tokens) + 1, BLOCK_TOKENS)
                ],
            )
            self._made[namespace, number] = known
            self._truths.update(zip(known.keys, known.truths, strict=True))
        return known

    def ask(self, namespace: int) -> Prompt:
        """A prompt as the next request has it: few of them are asked for most of the time."""
        return self.prompt(namespace, int(_PROMPTS * self._rng.random() ** 3))

    def namespace(self) -> int:
        """A namespace for an engine to change to; some are more usual than others."""
        return int(len(NAMESPACES) * self._rng.random() ** 2)

    def truth_of(self, key: Key) -> bytes:
        """The true bytes of a key that some request had, to look at media with; else none."""
        return self._truths.get(key, b"")


def _prompts(rng: random.Random) -> list[list[int]]:
    """Token ids of each prompt; most begin as an earlier one does."""
    made: list[list[int]] = []
    for _ in range(_PROMPTS):
        shared: list[int] = []
        if made and rng.random() < 0.7:
            shared = rng.choice(made)[: BLOCK_TOKENS * rng.randint(1, LONGEST - 2)]
        blocks = rng.randint(2, LONGEST) - len(shared) // BLOCK_TOKENS
        tail = [rng.randrange(_ALPHABET) for _ in range(max(1, blocks))]
        made.append(shared + [token for kind in tail for token in (kind, kind + 7)])
    return made


def _truth(namespace: int, tokens: Sequence[int]) -> bytes:
    """What the KV of the last block of `tokens` is."""
    seed = f"{NAMESPACES[namespace]}{tuple(tokens)}".encode()
    return hashlib.shake_128(seed).digest(BLOCK_BYTES)
