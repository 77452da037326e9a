"""Memory and drives under a trace: two residencies with their policies, as a live store has them.

A request reads the longest prefix of its prompt that both hold together. Then its other blocks
go to memory, new ones and those that it read from drives, as far as the policy there admits
them. What goes to drives, and when, is up to `lab.replay.writing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from pagoda.core.decide import plan_fetches
from pagoda.core.identity import ROOT, Key
from pagoda.core.policy import Ending, Policy, Request
from pagoda.core.residency import Residency
from pagoda.core.state import TierState
from pagoda.core.trace import TraceRequest
from pagoda.lab.replay.one_tier import keys_of
from pagoda.lab.replay.writing import Pairs, Writing

_HOST, _DRIVE = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What a token takes: bytes of KV, and seconds to be read from drives or computed."""

    token_bytes: int = 160 << 10
    drive_bytes_a_second: float = 7e9
    compute_s: float = 1e-4

    def stall_s(self, *, drive_tokens: int, missed_tokens: int) -> float:
        """How long a request waits for the KV of its prompt."""
        read_s = drive_tokens * self.token_bytes / self.drive_bytes_a_second
        return read_s + missed_tokens * self.compute_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Capacities in blocks, and the tokens of one."""

    host: int
    drive: int
    block_tokens: int


@dataclass(slots=True)
class Flow:
    """What came of a trace so far, in tokens of prompts. `seen_tokens` are those that an earlier
    request had: all that a cache without end would have served."""

    requests: int = 0
    input_tokens: int = 0
    host_tokens: int = 0
    drive_tokens: int = 0
    seen_tokens: int = 0
    written_bytes: int = 0
    stalls_s: list[float] = field(default_factory=list)  # one a request
    first_s: float = 0.0  # of all stalls together, for tokens that were not seen before

    @property
    def token_hit_pct(self) -> float:
        """Of all tokens, how many lay in memory or on drives."""
        return _pct(self.host_tokens + self.drive_tokens, self.input_tokens)

    @property
    def host_hit_pct(self) -> float:
        return _pct(self.host_tokens, self.input_tokens)

    @property
    def drive_hit_pct(self) -> float:
        return _pct(self.drive_tokens, self.input_tokens)

    @property
    def mean_stall_s(self) -> float:
        """How long a request waits for the KV of its prompt."""
        return sum(self.stalls_s) / max(1, self.requests)

    @property
    def mean_miss_s(self) -> float:
        """The part of it that a memory without end would spare."""
        return (sum(self.stalls_s) - self.first_s) / max(1, self.requests)

    def stall_s(self, share: float) -> float:
        """The stall that this share of the requests does not exceed."""
        ordered = sorted(self.stalls_s)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0


class TwoTiers:
    """Memory under `host`, drives under `drive`, filled as `writing` has it."""

    def __init__(
        self,
        host: Policy,
        drive: Policy,
        writing: Callable[[Residency, int], Writing],
        *,
        sizes: Sizes,
        costs: Costs | None = None,
    ) -> None:
        self.host = Residency(TierState("host", sizes.host), host)
        self.drive = Residency(TierState("drive", sizes.drive), drive)
        self.flow = Flow()
        self._costs = costs or Costs()
        self.writing = writing(self.drive, sizes.block_tokens * self._costs.token_bytes)
        self._host_policy = host
        self._block_tokens = sizes.block_tokens
        self._seen: set[Key] = set()

    def run(self, requests: Iterable[TraceRequest]) -> Iterator[Flow]:
        """Replay; yields the figures so far after each request."""
        for request in requests:
            self.replay(request)
            yield self.flow

    def replay(self, traced: TraceRequest) -> None:
        """One request, from its look-up to its end."""
        keys, chain = keys_of(traced, self._block_tokens)
        request = Request(keys=keys, at_s=traced.at_s, tokens=traced.input_tokens, hint=traced.hint)
        ending = Ending(keys=chain, at_s=traced.at_s, output_tokens=traced.output_tokens)
        self.host.begin(request)
        self.drive.begin(request)
        held = self._lease(keys)
        self._account(traced, keys, held)
        slots = self._take(self._absent(keys, chain))
        self.host.state.release([*slots, *held[_HOST]])
        self.drive.state.release(held[_DRIVE])
        self.host.end(request, ending)
        self.writing.ended(ending, _pairs(chain))
        self.drive.end(request, ending)
        self._seen.update(keys, chain)
        self.flow.written_bytes = self.writing.written * self.writing.block_bytes

    def _lease(self, keys: list[Key]) -> tuple[list[int], list[int]]:
        """Hold and use the longest prefix that is there: its slots in memory and on drives."""
        tiers = (self.host, self.drive)
        found: tuple[list[int], list[int]] = ([], [])
        states = [tier.state for tier in tiers]
        for fetch in plan_fetches(states, keys, run_blocks=[len(keys)] * len(tiers)):
            found[fetch.tier].extend(fetch.slots)
        for tier, slots in zip(tiers, found, strict=True):
            tier.state.lease(slots)
            tier.touch(slots)
        return found

    def _absent(self, keys: list[Key], chain: list[Key]) -> Pairs:
        """What memory lacks of a request, each with its parent: the whole blocks in prefix
        order, then the prompt's last one if it is not whole."""
        pairs = _pairs(chain)
        if keys and (len(chain) < len(keys) or keys[-1] != chain[len(keys) - 1]):
            pairs.append((keys[-1], keys[-2] if len(keys) > 1 else ROOT))
        return [pair for pair in pairs if self.host.state.slot_of(pair[0]) is None]

    def _take(self, absent: Pairs) -> list[int]:
        """Put blocks in memory as far as they are admitted and room can be made; returns their
        slots."""
        positions = self.host.admits([key for key, _ in absent], [parent for _, parent in absent])
        wanted = [absent[i] for i in positions]
        self.writing.makes_room(self.host, self._host_policy, len(wanted))
        slots = self.host.reserve(len(wanted))
        new = wanted[: len(slots)]
        self.host.publish(slots, [key for key, _ in new], [parent for _, parent in new])
        self.writing.took(new)
        return slots

    def _account(
        self, traced: TraceRequest, keys: list[Key], held: tuple[list[int], list[int]]
    ) -> None:
        flow, tokens = self.flow, traced.input_tokens
        hit = self._tokens(sum(map(len, held)), tokens)
        drive = min(self._tokens(len(held[_DRIVE]), tokens), hit)
        seen = self._tokens(_prefix(keys, self._seen), tokens)
        flow.requests += 1
        flow.input_tokens += tokens
        flow.host_tokens += hit - drive
        flow.drive_tokens += drive
        flow.seen_tokens += seen
        stall_s = self._costs.stall_s(drive_tokens=drive, missed_tokens=tokens - hit)
        flow.stalls_s.append(stall_s)
        flow.first_s += (tokens - seen) * self._costs.compute_s

    def _tokens(self, blocks: int, most: int) -> int:
        return min(blocks * self._block_tokens, most)


def _pairs(chain: list[Key]) -> list[tuple[Key, Key]]:
    return list(zip(chain, [ROOT, *chain], strict=False))


def _prefix(keys: list[Key], among: set[Key]) -> int:
    """How many leading keys are among some."""
    return next((at for at, key in enumerate(keys) if key not in among), len(keys))


def _pct(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0
