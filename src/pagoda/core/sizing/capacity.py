"""What a pool of KV memory holds under vLLM's allocator.

Rules (vLLM V1, kv_cache_utils and kv_cache_interface; read 2026-12):

    one kind of layer   blocks = available // (sum of the layers' block bytes)
    several kinds       every layer's block must have one page size: a smaller one
                        gets more tokens a block, or is padded; with state layers
                        the attention block is enlarged to hold a state
                        group = the fewest layers of a kind (the most, when that is
                        less than 1.5 times as many); each kind fills ceil(n / group)
                        groups, the last one padded; all groups draw on one pool:
                        blocks = available // page // group
                        tokens = blocks // groups * block
    a request needs     full: ceil(len / block) blocks a group; window:
                        ceil(min(window - 1 + batch, len) / block) + 1; state: 1 plus
                        the speculative tokens, and one more with prefix caching
    concurrency         blocks / blocks of a request at max_model_len

Since 2026 vLLM logs tokens = concurrency * max_model_len instead
(`Capacity.tokens_by_concurrency`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from pagoda.core.errors import SettingsError
from pagoda.core.sizing.dtypes import KvDtype
from pagoda.core.sizing.layers import KvShape, Parallel, StateLayers

StateMode = Literal["none", "align"]

_KERNEL_TOKENS = 16
"""Attention kernels want blocks of a multiple of so many tokens."""

_WIDE_GROUP_RATIO = 1.5
"""Below this ratio of the most to the fewest layers of a kind, padding beats splitting."""


def ceil_div(value: int, by: int) -> int:
    """Return `value` / `by`, rounded up."""
    return -(-value // by)


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Memory for KV on one rank, and the settings that decide how it is divided.

    `max_batched_tokens` is the scheduler's step size (it bounds what a window layer
    holds while a prompt is computed); `state_mode` "align" keeps a second state for
    prefix caching, "none" does not.
    """

    available_bytes: int
    block_tokens: int
    max_model_len: int
    max_batched_tokens: int = 8192
    speculative_tokens: int = 0
    state_mode: StateMode = "align"

    def __post_init__(self) -> None:
        for key in ("block_tokens", "max_model_len", "max_batched_tokens"):
            if getattr(self, key) < 1:
                raise SettingsError(f"{key} must be at least 1", key=key, source="budget")
        if self.available_bytes < 0:
            raise SettingsError(
                f"available memory is negative ({self.available_bytes} B): "
                "weights and reserve exceed the GPU",
                key="available_bytes",
                source="budget",
                remedy="more ranks, smaller weights, or a larger GPU",
            )


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """What one rank's pool holds.

    `blocks` of `block_tokens` tokens, `tokens` in all, `concurrency` requests of
    max_model_len. `bytes_per_token` is pool bytes divided by pool tokens (padding
    included); `growth_bytes` what one more token of a long context adds;
    `request_bytes` what one request of max_model_len takes.
    """

    blocks: int
    block_tokens: int
    tokens: int
    concurrency: float
    bytes_per_token: int
    growth_bytes: int
    request_bytes: int
    max_model_len: int
    assumptions: tuple[str, ...] = ()

    @property
    def tokens_by_concurrency(self) -> int:
        """Tokens as vLLM logs them since 2026: concurrency times max_model_len."""
        return int(self.concurrency * self.max_model_len)


@dataclass(frozen=True, kw_only=True)
class _Bucket:
    """Layers of one kind: equal bytes, equal window."""

    layers: int
    unit_bytes: int  # a token's, or a whole state's
    window: int | None
    state: bool

    def request_blocks(self, budget: Budget, block: int) -> int:
        if self.state:
            return 1 + budget.speculative_tokens + (budget.state_mode == "align")
        if self.window is None:
            return ceil_div(budget.max_model_len, block)
        held = min(self.window - 1 + budget.max_batched_tokens, budget.max_model_len)
        # one more: a window need not start at a block's first token
        return ceil_div(held, block) + 1


_BucketKey: TypeAlias = tuple[int, int | None, bool]


def _key(unit_bytes: int, *, window: int | None, state: bool) -> _BucketKey:
    return unit_bytes, window, state


def _buckets(shape: KvShape, dtype: KvDtype, tp: int, speculative: int) -> list[_Bucket]:
    counts: dict[_BucketKey, int] = {}
    for group in shape.groups:
        if isinstance(group, StateLayers):
            key = _key(group.request_bytes(tp, speculative), window=None, state=True)
        else:
            key = _key(group.token_bytes(dtype, tp), window=group.window, state=False)
        counts[key] = counts.get(key, 0) + group.layers
    return [
        _Bucket(layers=n, unit_bytes=unit, window=window, state=state)
        for (unit, window, state), n in counts.items()
    ]


def vllm_capacity(shape: KvShape, dtype: KvDtype, parallel: Parallel, budget: Budget) -> Capacity:
    """Return what vLLM's allocator makes of `budget` on the fullest rank."""
    staged = shape.stage(parallel.pp)
    buckets = _buckets(staged, dtype, parallel.tp, budget.speculative_tokens)
    growth = shape.growth_bytes(dtype, parallel)
    if len({(b.window, b.state) for b in buckets}) == 1 and not buckets[0].state:
        return _one_kind(buckets, budget, growth)
    if all(b.state for b in buckets):
        return _states_only(buckets, budget)
    return _several_kinds(buckets, budget, growth)


def uniform_capacity(
    shape: KvShape, dtype: KvDtype, parallel: Parallel, budget: Budget
) -> Capacity:
    """Return the capacity where every token layer keeps every token.

    vLLM V0, and V1 with --disable-hybrid-kv-cache-manager. State layers are refused.
    """
    if shape.state_groups:
        raise SettingsError(
            "an allocator without groups cannot hold state layers",
            key="allocator",
            source="allocator",
            remedy="use the vllm or sglang allocator",
        )
    unit = shape.token_bytes(dtype, parallel)
    bucket = _Bucket(layers=1, unit_bytes=unit, window=None, state=False)
    found = _one_kind([bucket], budget, unit)
    notes = tuple(
        f"{g.layers} window layers are kept in full (no hybrid allocator)"
        for g in shape.token_groups
        if g.window is not None
    )
    return replace(found, assumptions=found.assumptions + notes)


def _one_kind(buckets: list[_Bucket], budget: Budget, growth: int) -> Capacity:
    token_bytes = sum(b.layers * b.unit_bytes for b in buckets)
    block_bytes = token_bytes * budget.block_tokens
    blocks = budget.available_bytes // block_bytes
    needed = buckets[0].request_blocks(budget, budget.block_tokens)
    notes: tuple[str, ...] = ()
    if buckets[0].window is not None:
        notes = (
            f"every layer slides over {buckets[0].window} tokens: a request takes one block more "
            "than its length, and no more than the window plus one scheduler step "
            f"({budget.max_batched_tokens} tokens)",
        )
    return Capacity(
        blocks=blocks,
        block_tokens=budget.block_tokens,
        tokens=blocks * budget.block_tokens,
        concurrency=blocks / needed,
        bytes_per_token=token_bytes,
        growth_bytes=growth,
        request_bytes=needed * block_bytes,
        max_model_len=budget.max_model_len,
        assumptions=notes,
    )


def _states_only(buckets: list[_Bucket], budget: Budget) -> Capacity:
    """Return the capacity of a model without attention: a request is its states."""
    page = max(b.unit_bytes for b in buckets)
    layers = sum(b.layers for b in buckets)
    blocks = budget.available_bytes // (page * layers)
    needed = buckets[0].request_blocks(budget, budget.max_model_len)
    return Capacity(
        blocks=blocks,
        block_tokens=budget.max_model_len,
        tokens=blocks // needed * budget.max_model_len,
        concurrency=blocks / needed,
        bytes_per_token=0,
        growth_bytes=0,
        request_bytes=needed * page * layers,
        max_model_len=budget.max_model_len,
        assumptions=("no layer grows with tokens: tokens are requests times max_model_len",),
    )


def _several_kinds(buckets: list[_Bucket], budget: Budget, growth: int) -> Capacity:
    base, block_notes = _base_block(buckets, budget)
    page, blocks_of = _pages(buckets, base)
    size = _group_size([b.layers for b in buckets])
    groups = [ceil_div(b.layers, size) for b in buckets]
    pool = budget.available_bytes // (page * size)
    smallest = min(blocks_of[b] for b in buckets if not b.state)
    needed = sum(
        n * b.request_blocks(budget, blocks_of.get(b, base))
        for n, b in zip(groups, buckets, strict=True)
    )
    return Capacity(
        blocks=pool,
        block_tokens=smallest,
        tokens=pool // sum(groups) * smallest,
        concurrency=pool / needed,
        bytes_per_token=page * size * sum(groups) // smallest,
        growth_bytes=growth,
        request_bytes=needed * page * size,
        max_model_len=budget.max_model_len,
        assumptions=block_notes + _group_notes(buckets, groups, size, budget),
    )


def _base_block(buckets: list[_Bucket], budget: Budget) -> tuple[int, tuple[str, ...]]:
    """Return the attention block, enlarged until it holds a state."""
    states = [b.unit_bytes for b in buckets if b.state]
    if not states:
        return budget.block_tokens, ()
    # page of the widest attention layer: the narrower ones are scaled to it afterwards
    widest = max(b.unit_bytes for b in buckets if not b.state)
    step = max(_KERNEL_TOKENS, budget.block_tokens)
    block = step * ceil_div(max(states), widest * step)
    note = (
        f"attention blocks are enlarged from {budget.block_tokens} to {block} tokens so that "
        f"one holds a state of {max(states):,} B"
    )
    return block, (note,) if block != budget.block_tokens else ()


def _pages(buckets: list[_Bucket], base: int) -> tuple[int, dict[_Bucket, int]]:
    """Return the common page size and each attention bucket's tokens a block."""
    page = max(b.unit_bytes * (1 if b.state else base) for b in buckets)
    tokens = {}
    for bucket in buckets:
        if not bucket.state:
            own = bucket.unit_bytes * base
            tokens[bucket] = base * (page // own) if page % own == 0 else base
    return page, tokens


def _group_size(counts: list[int]) -> int:
    fewest, most = min(counts), max(counts)
    return most if most < fewest * _WIDE_GROUP_RATIO else fewest


def _group_notes(
    buckets: list[_Bucket], groups: list[int], size: int, budget: Budget
) -> tuple[str, ...]:
    padded = sum(n * size - b.layers for n, b in zip(groups, buckets, strict=True))
    notes = [
        f"vLLM's hybrid allocator: {sum(groups)} groups of {size} layers share one pool"
        + (f", {padded} padding layers" if padded else ""),
    ]
    if any(b.window is not None for b in buckets):
        notes.append(f"window layers hold one scheduler step of {budget.max_batched_tokens} tokens")
    if any(b.state for b in buckets):
        states = next(b for b in buckets if b.state).request_blocks(budget, 1)
        notes.append(f"a request holds {states} states a layer (mode {budget.state_mode})")
    return tuple(notes)
