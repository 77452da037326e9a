"""One tier under a trace: `core.residency` and a policy, as a live tier has them.

A request looks up the longest resident prefix of its prompt, then puts its other blocks there,
prompt and answer, as far as the policy admits them. It is over before the next one comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pagoda.core.identity import DIGEST_BYTES, ROOT, Key
from pagoda.core.policy import Ending, Policy, Request
from pagoda.core.residency import Residency
from pagoda.core.state import TierState
from pagoda.core.trace import TraceRequest


@dataclass(slots=True)
class Hits:
    """What came of a trace so far: of all tokens of prompts, how many were resident."""

    requests: int = 0
    input_tokens: int = 0
    hit_tokens: int = 0
    accesses: int = 0  # of blocks: looked up or inserted
    inserted: int = 0
    evicted: int = 0

    @property
    def token_hit_pct(self) -> float:
        return 100 * self.hit_tokens / self.input_tokens if self.input_tokens else 0.0


class OneTier:
    """A tier of `capacity` blocks."""

    def __init__(self, policy: Policy, *, capacity: int, block_tokens: int) -> None:
        self.residency = Residency(TierState("replay", capacity), policy)
        self.hits = Hits()
        self._block_tokens = block_tokens

    def run(self, requests: Iterable[TraceRequest]) -> Iterator[Hits]:
        """Replay; yields the figures so far after each request."""
        for request in requests:
            self.replay(request)
            yield self.hits

    def replay(self, traced: TraceRequest) -> int:
        """One request; returns how many of its prompt's tokens were resident."""
        residency, state, hits = self.residency, self.residency.state, self.hits
        keys, chain = keys_of(traced, self._block_tokens)
        request = Request(keys=keys, at_s=traced.at_s, tokens=traced.input_tokens, hint=traced.hint)
        residency.begin(request)
        held = residency.lease_prefix(keys)
        fresh = self._missing(keys, chain, len(held))
        slots = self._insert(fresh)
        state.release(slots)
        state.release(held)
        residency.end(
            request, Ending(keys=chain, at_s=traced.at_s, output_tokens=traced.output_tokens)
        )
        hit_tokens = min(len(held) * self._block_tokens, traced.input_tokens)
        hits.requests += 1
        hits.input_tokens += traced.input_tokens
        hits.hit_tokens += hit_tokens
        hits.accesses += len(keys) + len(traced.generated)
        hits.inserted += len(slots)
        hits.evicted = residency.evicted
        return hit_tokens

    def _insert(self, fresh: list[tuple[Key, Key]]) -> list[int]:
        """Put blocks there, each with its parent, as far as they are admitted and room can be
        made; returns their slots."""
        keys, parents = [key for key, _ in fresh], [parent for _, parent in fresh]
        admitted = self.residency.admits(keys, parents)
        slots = self.residency.reserve(len(admitted))
        new = admitted[: len(slots)]
        self.residency.publish(slots, [keys[i] for i in new], [parents[i] for i in new])
        return slots

    def _missing(self, keys: list[Key], chain: list[Key], held: int) -> list[tuple[Key, Key]]:
        """What the tier lacks of a request, each with its parent: the whole blocks in prefix
        order, then the prompt's last one if it is not whole."""
        state = self.residency.state
        pairs = list(zip(chain, [ROOT, *chain], strict=False))[held:]
        if len(keys) > held and (len(chain) < len(keys) or keys[-1] != chain[len(keys) - 1]):
            pairs.append((keys[-1], keys[-2] if len(keys) > 1 else ROOT))
        return [pair for pair in pairs if state.slot_of(pair[0]) is None]


def keys_of(traced: TraceRequest, block_tokens: int) -> tuple[list[Key], list[Key]]:
    """The keys of a prompt's blocks, and of the chain of whole blocks that it leaves."""
    prompt = [key_of(block) for block in traced.prompt]
    whole = len(traced.whole(block_tokens)) - len(traced.generated)
    return prompt, prompt[:whole] + [key_of(block) for block in traced.generated]


def key_of(block: int) -> Key:
    """A traced block's id as a key; none of them is `identity.ROOT`."""
    return Key((block + 1).to_bytes(DIGEST_BYTES, "big"))
