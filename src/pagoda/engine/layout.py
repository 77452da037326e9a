"""How KV lies inside a block, and the pool of blocks that the engine computes on.

A block holds 16 tokens of all layers in one run of bytes, so that a tier can read it into
place with one direct I/O:

    block  | layer 0 | layer 1 | … | padding to 4 KiB
    layer  | K of head 0 | K of head 1 | … | V of head 0 | V of head 1 | …

    bf16   K [head_dim/2][16 tokens][2]     V [8 token pairs][head_dim][2]
    fp32   K [head_dim][16 tokens]          V [16 tokens][head_dim]

A 64-byte line of K is thus one dimension (bf16: two) of 16 tokens, and a line of V one
token (bf16: two) of 16 dimensions: products need no sums across a vector register.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch

from pagoda.core.errors import CapacityError
from pagoda.engine.config import ModelConfig
from pagoda.machine.buffers import aligned_buffer, populate

BLOCK_TOKENS: Final = 16
PAGE_BYTES: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockLayout:
    """The layout of one block; offsets in bytes."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype

    @classmethod
    def of(cls, config: ModelConfig, dtype: torch.dtype) -> BlockLayout:
        return cls(
            layers=config.layers, kv_heads=config.kv_heads, head_dim=config.head_dim, dtype=dtype
        )

    @property
    def layer_bytes(self) -> int:
        return 2 * self.kv_heads * self.head_dim * BLOCK_TOKENS * self.dtype.itemsize

    @property
    def block_bytes(self) -> int:
        return -(-self.layers * self.layer_bytes // PAGE_BYTES) * PAGE_BYTES

    @property
    def layout_id(self) -> str:
        """Name of this layout: equal names, interchangeable bytes."""
        kind = "bf16-pairs" if self.dtype == torch.bfloat16 else "fp32"
        return (
            f"pagoda-1/{kind}/tokens={BLOCK_TOKENS}/layers={self.layers}"
            f"/kv_heads={self.kv_heads}/head_dim={self.head_dim}"
        )


class BlockPool:
    """All blocks of the device: one anonymous, page-aligned mapping [blocks, block_bytes].

    Memory is taken from the system as blocks are first written. Raises CapacityError when
    the system refuses the mapping.
    """

    def __init__(self, layout: BlockLayout, num_blocks: int) -> None:
        self.layout = layout
        self.num_blocks = num_blocks
        size_bytes = num_blocks * layout.block_bytes
        try:
            self._map = aligned_buffer(size_bytes)
        except (OSError, OverflowError, ValueError) as error:
            raise CapacityError(
                f"cannot map {size_bytes} bytes for {num_blocks} blocks: {error}",
                tier="device",
                asked_bytes=size_bytes,
                limit_bytes=0,
                remedy="ask for fewer blocks",
            ) from error
        populate(self._map)
        self._bytes = memoryview(self._map)
        self.elements = torch.frombuffer(self._map, dtype=layout.dtype)

    def block_view(self, block: int) -> memoryview:
        """Writable bytes of one block, aligned to PAGE_BYTES."""
        assert 0 <= block < self.num_blocks, f"block {block} of {self.num_blocks}"
        size = self.layout.block_bytes
        return self._bytes[block * size : (block + 1) * size]

    def keys(self, layer: int) -> torch.Tensor:
        """K of a layer: [blocks, kv_heads, head_dim, 16], or in bf16
        [blocks, kv_heads, head_dim/2, 16, 2], as a view of the pool."""
        tokens, dim = BLOCK_TOKENS, self.layout.head_dim
        if self.layout.dtype == torch.bfloat16:
            return self._view((dim // 2, tokens, 2), layer, 0)
        return self._view((dim, tokens), layer, 0)

    def values(self, layer: int) -> torch.Tensor:
        """V of a layer: [blocks, kv_heads, 16, head_dim], or in bf16
        [blocks, kv_heads, 8, head_dim, 2], as a view of the pool."""
        tokens, dim = BLOCK_TOKENS, self.layout.head_dim
        if self.layout.dtype == torch.bfloat16:
            return self._view((tokens // 2, dim, 2), layer, 1)
        return self._view((tokens, dim), layer, 1)

    def _view(self, shape: tuple[int, ...], layer: int, part: int) -> torch.Tensor:
        layout = self.layout
        head = BLOCK_TOKENS * layout.head_dim
        first = layer * layout.layer_bytes // layout.dtype.itemsize + part * layout.kv_heads * head
        inner = [1]
        for size in reversed(shape[1:]):
            inner.insert(0, inner[0] * size)
        strides = (layout.block_bytes // layout.dtype.itemsize, head, *inner)
        return self.elements.as_strided((self.num_blocks, layout.kv_heads, *shape), strides, first)

    def close(self) -> None:
        """Give the memory back; views of blocks that others still hold keep it alive."""
        self.elements = torch.empty(0)
        self._bytes.release()
        try:
            self._map.close()
        except BufferError:  # a caller still holds a block_view: its release frees the mapping
            return
