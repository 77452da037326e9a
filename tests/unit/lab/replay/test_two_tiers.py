"""Two tiers under a trace, against naive models with lists."""

from __future__ import annotations

import random
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda.core.admission import REGISTRY as ADMISSIONS
from pagoda.core.admission import Everything
from pagoda.core.budget import Endurance, WriteBudget, new_account
from pagoda.core.policy import Lru
from pagoda.core.residency import Residency
from pagoda.core.trace import TraceRequest
from pagoda.lab.replay.one_tier import OneTier
from pagoda.lab.replay.two_tiers import Costs, Sizes, TwoTiers
from pagoda.lab.replay.writing import Spill, Through, Writing

BLOCK = 16
COSTS = Costs(token_bytes=100, drive_bytes_a_second=1e6, compute_s=1e-3)


def conversations(seed: int, *, count: int = 60, whole: bool = False) -> list[TraceRequest]:
    """Conversations with a shared head, each turn continuing what was said; `whole` blocks only,
    or with a part of one at the prompts' ends."""
    rng = random.Random(seed)
    said: list[tuple[int, ...]] = []
    made = 1
    requests = []
    for number in range(count):
        chain = rng.choice(said) if said and rng.random() < 0.5 else (0,)
        new, answer, part = rng.randint(1, 3), rng.randint(0, 2), 0 if whole else rng.randint(0, 1)
        prompt = (*chain, *range(made, made + new + part))
        generated = tuple(range(made + new + part, made + new + part + answer))
        made += new + part + answer
        said.append((*prompt[: len(prompt) - part], *generated))
        requests.append(
            TraceRequest(
                at_s=float(number),
                input_tokens=len(prompt) * BLOCK - part * (BLOCK // 2),
                output_tokens=answer * BLOCK,
                prompt=prompt,
                generated=generated,
            )
        )
    return requests


def replayed(requests: list[TraceRequest], writing: object, host: int, drive: int) -> TwoTiers:
    """Two tiers of so many blocks after all requests."""
    tiers = TwoTiers(
        Lru(host),
        Lru(drive),
        writing,  # type: ignore[arg-type]
        sizes=Sizes(host=host, drive=drive, block_tokens=BLOCK),
        costs=COSTS,
    )
    for _ in tiers.run(requests):
        pass
    return tiers


def spill(rewrite: bool, drive: Residency, size: int) -> Writing:
    """Whatever memory evicts."""
    return Spill(drive, block_bytes=size, rewrite=rewrite)


def through(drive: Residency, size: int) -> Writing:
    """Everything."""
    return Through(drive, Everything(), block_bytes=size)


@given(st.integers(0, 10_000), st.integers(4, 40))
@settings(max_examples=60, deadline=None)
def test_without_drives_it_is_one_tier(seed: int, host: int) -> None:
    """Memory above drives without a slot hits what one tier of its size hits."""
    requests = conversations(seed)
    tiers = replayed(requests, through, host, 0)
    one = OneTier(Lru(host), capacity=host, block_tokens=BLOCK)
    for _ in one.run(requests):
        pass
    assert tiers.flow.host_tokens == one.hits.hit_tokens
    assert tiers.flow.drive_tokens == tiers.writing.written == 0


@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_spilling_against_two_lists(seed: int, host: int, drive: int) -> None:
    """Over requests of one block each, memory and drives are two lists, least recently used
    first: what leaves memory goes to drives, and what is used on drives comes back as well."""
    rng = random.Random(seed)
    blocks = [rng.randint(1, rng.choice((5, 25))) for _ in range(300)]
    memory: list[int] = []
    below: list[int] = []
    hits = spilled = rewritten = 0
    for block in blocks:
        hits += block in memory or block in below
        if block in below:
            below.remove(block)
            below.append(block)
        if block not in memory and len(memory) == host:
            victim = memory.pop(0)
            if victim in below:
                below.remove(victim)
                below.append(victim)
                rewritten += 1
            elif drive:
                # What is being read is not evicted.
                free = [b for b in below if b != block]
                if len(below) == drive and free:
                    below.remove(free[0])
                if len(below) < drive:
                    below.append(victim)
                    spilled += 1
        if block in memory:
            memory.remove(block)
        memory.append(block)
        if block in below:
            below.remove(block)
            below.append(block)
    requests = [
        TraceRequest(at_s=0.0, input_tokens=BLOCK, output_tokens=0, prompt=(block,))
        for block in blocks
    ]
    for rewrite in (False, True):
        tiers = replayed(requests, partial(spill, rewrite), host, drive)
        assert tiers.flow.host_tokens + tiers.flow.drive_tokens == hits * BLOCK
        assert tiers.writing.written == spilled + rewritten * rewrite


@given(st.integers(0, 10_000), st.integers(1, 30), st.integers(0, 60))
@settings(max_examples=60, deadline=None)
def test_every_token_is_accounted_for(seed: int, host: int, drive: int) -> None:
    """Whatever is written when: tokens come from memory, drives or computing, none is a hit that
    was not seen before, and stalls are what they cost."""
    requests = conversations(seed)
    writings = [partial(spill, True), partial(spill, False)]
    writings += [
        partial(lambda admission, d, b: Through(d, admission(drive), block_bytes=b), admission)
        for admission in ADMISSIONS.values()
    ]
    for writing in writings:
        tiers = replayed(requests, writing, host, drive)
        flow = tiers.flow
        missed = flow.input_tokens - flow.host_tokens - flow.drive_tokens
        read_s = flow.drive_tokens * COSTS.token_bytes / COSTS.drive_bytes_a_second
        assert flow.host_tokens + flow.drive_tokens <= flow.seen_tokens <= flow.input_tokens
        assert flow.input_tokens == sum(request.input_tokens for request in requests)
        assert sum(flow.stalls_s) == pytest.approx(read_s + missed * COSTS.compute_s)
        assert flow.mean_stall_s * len(requests) == pytest.approx(sum(flow.stalls_s))
        first = flow.input_tokens - flow.seen_tokens
        assert flow.mean_miss_s * len(requests) == pytest.approx(
            sum(flow.stalls_s) - first * COSTS.compute_s, abs=1e-9
        )
        assert flow.stall_s(0.5) <= flow.stall_s(0.99) <= max(flow.stalls_s)
        assert flow.written_bytes == tiers.writing.written * BLOCK * COSTS.token_bytes
        for tier in (tiers.host, tiers.drive):
            tier.check_invariants()
            assert tier.state.lease_count() == 0


@given(st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_with_room_for_all_each_whole_block_is_written_once(seed: int) -> None:
    """Drives that hold everything serve everything that was seen, and nothing is written twice,
    however little memory there is."""
    requests = conversations(seed, whole=True)
    distinct = {block for request in requests for block in request.whole(BLOCK)}
    for host in (1, 1000):
        tiers = replayed(requests, through, host, len(distinct))
        assert tiers.writing.written == len(distinct)
        assert tiers.flow.host_tokens + tiers.flow.drive_tokens == tiers.flow.seen_tokens


def test_what_was_read_from_drives_comes_up() -> None:
    """A prompt that was read from drives lies in memory for the next request."""
    ask = TraceRequest(at_s=0.0, input_tokens=2 * BLOCK, output_tokens=0, prompt=(1, 2))
    other = TraceRequest(at_s=0.0, input_tokens=2 * BLOCK, output_tokens=0, prompt=(3, 4))
    tiers = TwoTiers(
        Lru(2), Lru(8), through, sizes=Sizes(host=2, drive=8, block_tokens=BLOCK), costs=COSTS
    )
    seen = []
    for request in (ask, other, ask, ask):
        tiers.replay(request)
        seen.append((tiers.flow.host_tokens, tiers.flow.drive_tokens))
    assert seen == [(0, 0), (0, 0), (0, 2 * BLOCK), (2 * BLOCK, 2 * BLOCK)]


@pytest.mark.parametrize("admission", sorted(ADMISSIONS))
def test_a_write_budget_holds_in_a_replay(admission: str) -> None:
    """Over any time no more is written than the bucket had and got."""
    requests = conversations(3, count=400)
    size = BLOCK * COSTS.token_bytes
    endurance = Endurance(day_bytes=20 * size)

    def limited(drive: Residency, block_bytes: int) -> Writing:
        budget = WriteBudget(endurance, new_account(endurance, now_ms=0), now_s=0.0, now_ms=0)
        judge = ADMISSIONS[admission](50)
        return Through(drive, judge, block_bytes=block_bytes, budget=budget)

    tiers = replayed(requests, limited, 5, 50)
    assert 0 < tiers.flow.written_bytes <= 20 * size * 1.01


def test_admissions_write_less_and_lose_little() -> None:
    """On conversations of which half go on, what is used twice is most of what is hit."""
    requests = conversations(11, count=3000)
    flows = {
        name: replayed(
            requests,
            partial(lambda judge, d, b: Through(d, judge(300), block_bytes=b), make),
            50,
            300,
        ).flow
        for name, make in ADMISSIONS.items()
    }
    for name in ("twice", "reuse"):
        assert flows[name].written_bytes < 0.7 * flows["all"].written_bytes
        assert flows[name].token_hit_pct > 0.8 * flows["all"].token_hit_pct
