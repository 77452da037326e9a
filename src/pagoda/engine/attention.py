"""Causal attention over paged KV in plain torch, for machines without the C kernels.

Keys are taken in groups of 64 from position 0 with a running softmax, and queries in tiles
of 16 rows that begin at multiples of 16, padded where tokens are missing. Every product so
has the same shape however a prompt was cut into chunks, and gives the same bits. A segment
of one token (decode) is a tile of its own row: its bits may differ from a prefill's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from pagoda.engine.batch import Batch
from pagoda.engine.layout import BLOCK_TOKENS, BlockPool

GROUP_TOKENS: Final = 64
TILE_TOKENS: Final = 16
_NOTHING_YET: Final = -1e30  # finite, so that a row that has seen no key yields no NaN


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles:
    """Query tiles and the KV they look at, in float32.

    queries [N, kv_heads, R, head_dim]; positions [N, R], ascending over N;
    keys [N or 1, kv_heads, head_dim, T], values [N or 1, kv_heads, T, head_dim], T a
    multiple of GROUP_TOKENS, values zero wherever no query may look.
    """

    queries: torch.Tensor
    positions: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor


def attend(tiles: Tiles) -> torch.Tensor:
    """Softmax-weighted values, float32 [N, kv_heads, R, head_dim]."""
    queries = tiles.queries * tiles.queries.shape[-1] ** -0.5
    top = torch.full((*queries.shape[:-1], 1), _NOTHING_YET)
    total = torch.zeros_like(top)
    mixed = torch.zeros_like(queries)
    shared = len(tiles.keys) == 1
    last = tiles.positions.amax(dim=1)
    for group in range(0, tiles.keys.shape[-1], GROUP_TOKENS):
        # Tiles that share their keys ascend, so those that see this group are a suffix.
        first = int((last < group).sum()) if shared else 0
        if first == len(queries):
            break
        places = slice(group, group + GROUP_TOKENS)
        scores = torch.matmul(queries[first:], tiles.keys[..., places])
        hidden = torch.arange(group, group + GROUP_TOKENS) > tiles.positions[first:, None, :, None]
        scores = scores.masked_fill_(hidden, -torch.inf)
        peak = torch.maximum(top[first:], scores.amax(dim=-1, keepdim=True))
        weights = torch.exp(scores - peak)
        fade = torch.exp(top[first:] - peak)
        top[first:] = peak
        total[first:] = total[first:] * fade + weights.sum(dim=-1, keepdim=True)
        mixed[first:] = mixed[first:] * fade + torch.matmul(weights, tiles.values[..., places, :])
    return mixed / total


def attend_batch(queries: torch.Tensor, pool: BlockPool, layer: int, batch: Batch) -> torch.Tensor:
    """Attention of a flattened batch whose KV is in the pool already.

    queries [T, heads, head_dim] in the pool's dtype; returns the same shape and dtype.
    """
    output = torch.empty_like(queries)
    lengths = np.diff(batch.offsets)
    for index in np.flatnonzero(lengths > 1):
        rows = slice(int(batch.offsets[index]), int(batch.offsets[index + 1]))
        output[rows] = _attend_run(queries[rows], pool, layer, batch, int(index))
    single = np.flatnonzero(lengths == 1)
    if len(single):
        rows_of = torch.from_numpy(batch.offsets[single].astype(np.int64))
        output[rows_of] = _attend_singles(queries[rows_of], pool, layer, batch, single)
    return output


def _attend_run(
    queries: torch.Tensor, pool: BlockPool, layer: int, batch: Batch, index: int
) -> torch.Tensor:
    tokens, heads, dim = queries.shape
    kv_heads = pool.layout.kv_heads
    start = int(batch.starts[index])
    skipped = start % TILE_TOKENS
    count = -(-(skipped + tokens) // TILE_TOKENS)
    padded = torch.zeros(count * TILE_TOKENS, heads, dim)
    padded[skipped : skipped + tokens] = queries
    group = heads // kv_heads
    tiled = padded.view(count, TILE_TOKENS, kv_heads, group, dim).transpose(1, 2)
    positions = start - skipped + torch.arange(count * TILE_TOKENS).view(count, TILE_TOKENS)
    tables = batch.tables[batch.table_offsets[index] : batch.table_offsets[index + 1]]
    keys, values = _gather(pool, layer, tables[None], np.array([start + tokens]))
    mixed = attend(
        Tiles(
            queries=tiled.reshape(count, kv_heads, TILE_TOKENS * group, dim),
            positions=positions.repeat_interleave(group, dim=1),
            keys=keys,
            values=values,
        )
    )
    rows = mixed.view(count, kv_heads, TILE_TOKENS, group, dim).transpose(1, 2)
    return rows.reshape(count * TILE_TOKENS, heads, dim)[skipped : skipped + tokens].to(
        queries.dtype
    )


def _attend_singles(
    queries: torch.Tensor, pool: BlockPool, layer: int, batch: Batch, single: np.ndarray
) -> torch.Tensor:
    tokens, heads, dim = queries.shape
    kv_heads = pool.layout.kv_heads
    ends = batch.starts[single] + 1
    tables = np.zeros((tokens, int(-(-ends.max() // BLOCK_TOKENS))), np.int32)
    for row, index in enumerate(single):
        used = -(-int(ends[row]) // BLOCK_TOKENS)
        first = batch.table_offsets[index]
        tables[row, :used] = batch.tables[first : first + used]
    keys, values = _gather(pool, layer, tables, ends)
    mixed = attend(
        Tiles(
            queries=queries.float().view(tokens, kv_heads, heads // kv_heads, dim),
            positions=torch.from_numpy(ends - 1)[:, None].expand(tokens, heads // kv_heads),
            keys=keys,
            values=values,
        )
    )
    return mixed.reshape(tokens, heads, dim).to(queries.dtype)


def _gather(
    pool: BlockPool, layer: int, tables: np.ndarray, ends: np.ndarray
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys [N, kv_heads, head_dim, T] and values [N, kv_heads, T, head_dim] in float32 of
    block tables [N, n]; T is padded to a group, values at and after `ends` [N] are zero."""
    n, kv_heads, dim = len(tables), pool.layout.kv_heads, pool.layout.head_dim
    blocks = torch.from_numpy(tables.astype(np.int64)).flatten()
    keys, values = pool.keys(layer)[blocks].float(), pool.values(layer)[blocks].float()
    if keys.dim() == 5:  # pairs: [.., dim/2, 16, 2] and [.., 8, dim, 2]
        keys, values = keys.transpose(-1, -2).flatten(2, 3), values.transpose(-1, -2).flatten(2, 3)
    used = tables.shape[1] * BLOCK_TOKENS
    keys = keys.view(n, -1, kv_heads, dim, BLOCK_TOKENS).permute(0, 2, 3, 1, 4).flatten(3)
    values = values.view(n, -1, kv_heads, BLOCK_TOKENS, dim).transpose(1, 2).flatten(2, 3)
    beyond = torch.arange(used) >= torch.from_numpy(ends.astype(np.int64))[:, None]
    values = values.masked_fill(beyond[:, None, :, None], 0.0)
    missing = -used % GROUP_TOKENS
    return (
        torch.nn.functional.pad(keys, (0, missing)),
        torch.nn.functional.pad(values, (0, 0, 0, missing)),
    )
