"""The work of one forward pass, flattened: segments of sequences, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from pagoda.engine.layout import BLOCK_TOKENS

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of tokens of one sequence to compute.

    `start` is the absolute position of tokens[0]; `blocks` are the device blocks that cover
    positions [0, start + len(tokens)), the KV of [0, start) being in them already.
    `want_logits`: whether the logits of the last token are wanted.
    """

    tokens: Sequence[int]
    start: int
    blocks: Sequence[int]
    want_logits: bool

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Segments laid side by side; T tokens, S segments.

    token_ids int64 tensor [T]; positions, slots int32 [T] (slot = block × 16 + place);
    offsets int32 [S + 1]: segment s owns tokens offsets[s] to offsets[s + 1]; starts int32
    [S]; table_offsets int32 [S + 1] into tables, the segments' block ids one after another;
    logit_rows: the rows whose logits are wanted.
    """

    token_ids: torch.Tensor
    positions: Ints
    slots: Ints
    offsets: Ints
    starts: Ints
    table_offsets: Ints
    tables: Ints
    logit_rows: list[int]

    @property
    def tokens(self) -> int:
        return len(self.positions)

    @property
    def segments(self) -> int:
        return len(self.starts)


def flatten(segments: Sequence[Segment], *, num_blocks: int, max_position: int) -> Batch:
    """Lay segments side by side; violated bounds are the caller's bug and assert."""
    assert segments, "a forward pass needs a segment"
    for segment in segments:
        assert len(segment.tokens) > 0, "an empty segment"
        assert segment.start >= 0, f"a segment at position {segment.start}"
        assert segment.end <= max_position, (
            f"a segment to position {segment.end}, past the context of {max_position}"
        )
        assert len(segment.blocks) * BLOCK_TOKENS >= segment.end, (
            f"{len(segment.blocks)} blocks do not cover {segment.end} tokens"
        )
    lengths = [len(segment.tokens) for segment in segments]
    starts = np.array([segment.start for segment in segments], np.int32)
    offsets = _cumulative(lengths)
    table_offsets = _cumulative([len(segment.blocks) for segment in segments])
    tables = np.concatenate([np.asarray(segment.blocks, np.int32) for segment in segments])
    assert tables.min() >= 0, "a negative block id"
    assert tables.max() < num_blocks, f"block {tables.max()} outside the pool of {num_blocks}"
    positions = np.arange(offsets[-1], dtype=np.int32) + np.repeat(starts - offsets[:-1], lengths)
    entries = np.repeat(table_offsets[:-1], lengths) + positions // BLOCK_TOKENS
    return Batch(
        token_ids=torch.from_numpy(
            np.concatenate([np.asarray(segment.tokens, np.int64) for segment in segments])
        ),
        positions=positions,
        slots=tables[entries] * BLOCK_TOKENS + positions % BLOCK_TOKENS,
        offsets=offsets,
        starts=starts,
        table_offsets=table_offsets,
        tables=tables,
        logit_rows=[
            int(offsets[index + 1]) - 1
            for index, segment in enumerate(segments)
            if segment.want_logits
        ],
    )


def _cumulative(counts: Sequence[int]) -> Ints:
    sums = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=sums[1:])
    return sums
