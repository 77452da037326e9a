"""What a sweep replays: a policy over one tier, or over memory and drives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from pagoda.core.admission import REGISTRY
from pagoda.core.residency import Residency
from pagoda.core.trace import Trace
from pagoda.lab.replay.one_tier import Hits, OneTier
from pagoda.lab.replay.policies import make_policy
from pagoda.lab.replay.sweep import Cell, Note
from pagoda.lab.replay.two_tiers import Costs, Flow, Sizes, TwoTiers
from pagoda.lab.replay.writing import Spill, Through, Writing

SAME = "same"  # the policy on drives: that of memory
SPILL = "spill"
WRITES = (SPILL, *REGISTRY)  # to drives: whatever memory evicts, or what an admission takes


@dataclass(frozen=True, slots=True)
class OneTierCell(Cell[Hits]):
    """A policy over a tier of so many blocks."""

    policy: str
    blocks: int

    def replay(self, trace: Trace, note: Note) -> Hits:
        slots = min(self.blocks, _all_blocks(trace))
        policy = make_policy(self.policy, slots, trace)
        tier = OneTier(policy, capacity=slots, block_tokens=trace.block_tokens)
        for _ in tier.run(trace.requests):
            note()
        return tier.hits


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoTierCell(Cell[Flow]):
    """A policy over memory and one over drives, of so many blocks each; `writes` is one of
    WRITES."""

    policy: str
    drive_policy: str
    writes: str
    host_blocks: int
    drive_blocks: int
    costs: Costs

    def replay(self, trace: Trace, note: Note) -> Flow:
        most = _all_blocks(trace)
        host, drive = min(self.host_blocks, most), min(self.drive_blocks, most)
        tiers = TwoTiers(
            make_policy(self.policy, host, trace),
            make_policy(self.drive_policy, drive, trace),
            partial(_writing, self.writes, drive),
            sizes=Sizes(host=host, drive=drive, block_tokens=trace.block_tokens),
            costs=self.costs,
        )
        for _ in tiers.run(trace.requests):
            note()
        return tiers.flow


def _all_blocks(trace: Trace) -> int:
    """No less than a trace has: what a tier holds at most, however large it is."""
    return sum(len(request.prompt) + len(request.generated) for request in trace.requests)


def _writing(writes: str, slots: int, drive: Residency, block_bytes: int) -> Writing:
    if writes == SPILL:
        return Spill(drive, block_bytes=block_bytes, rewrite=True)
    return Through(drive, REGISTRY[writes](slots), block_bytes=block_bytes)
