"""The model runner: owns the block pool and computes segments of sequences on it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pagoda.core.checking import Form
from pagoda.engine import model as decoder
from pagoda.engine.batch import Segment, flatten
from pagoda.engine.kernels import KernelContext, Kernels, TorchKernels
from pagoda.engine.layout import BLOCK_TOKENS, BlockLayout, BlockPool
from pagoda.engine.linear import can_pack
from pagoda.engine.native import NativeKernels, extension
from pagoda.engine.rope import rope_tables
from pagoda.engine.weights import LoadedModel

__all__ = ["Runner", "Segment"]

_WARM_UP_TOKENS = (1, 16, 32, 512)  # decoding, the tail behind a restored prefix, a chunk


class Runner:
    """Computes segments over paged KV. One thread at a time may call it.

    `native`: True demands the C kernels, False forbids them, None takes them if they were
    built. `threads` defaults to torch's count and is set for torch as a whole.
    Raises CapacityError when the pool cannot be mapped, RuntimeError when `native` is True
    and the extension is absent.
    """

    block_tokens = BLOCK_TOKENS

    def __init__(
        self,
        model: LoadedModel,
        *,
        num_blocks: int,
        native: bool | None = None,
        threads: int | None = None,
    ) -> None:
        assert num_blocks > 0, "a pool needs a block"
        if threads is not None:
            torch.set_num_threads(threads)
        self._model = model
        self._pool = BlockPool(BlockLayout.of(model.config, model.dtype), num_blocks)
        self._kernels = self._choose_kernels(native)
        self.num_blocks = num_blocks

    def _choose_kernels(self, native: bool | None) -> Kernels:
        config = self._model.config
        cosines, sines = rope_tables(
            config.rope,
            head_dim=config.head_dim,
            positions=config.max_position,
            dtype=self._model.dtype,
        )
        context = KernelContext(
            config=config,
            pool=self._pool,
            cosines=cosines,
            sines=sines,
            threads=torch.get_num_threads(),
        )
        if native is False or (native is None and extension() is None):
            return TorchKernels(context)
        return NativeKernels(context)

    @property
    def block_bytes(self) -> int:
        """Bytes of one block in the pool and in every tier, a multiple of 4096."""
        return self._pool.layout.block_bytes

    @property
    def layout_id(self) -> str:
        """Name of the bytes' layout inside a block."""
        return self._pool.layout.layout_id

    @property
    def kernel_id(self) -> str:
        """Name of the kernels in use: "native-avx512bf16", "native" or "torch"."""
        return self._kernels.kernel_id

    @property
    def arithmetic(self) -> str:
        """Names all that decides the last bit of what is computed, on one processor."""
        return f"{self.kernel_id}, torch {torch.__version__}"

    @property
    def form(self) -> Form:
        """How blocks are compared: K and V of each layer. To the bit where that is promised, by
        the C kernels with packed products (docs/adr/0006)."""
        layout = self._pool.layout
        return Form(
            dtype=str(layout.dtype).removeprefix("torch."),
            parts=2 * layout.layers,
            part_bytes=layout.layer_bytes // 2,
            exact=isinstance(self._kernels, NativeKernels) and can_pack(layout.dtype),
        )

    def forward(self, segments: Sequence[Segment]) -> torch.Tensor:
        """Compute the segments' tokens and store their KV in their blocks.

        Returns float32 [segments that want logits, vocab]: the logits of each such
        segment's last token, in order.
        """
        batch = flatten(
            segments, num_blocks=self.num_blocks, max_position=self._model.config.max_position
        )
        with torch.inference_mode():
            return decoder.forward(self._model, self._kernels, batch)

    def warm_up(self) -> None:
        """Compute a few batches of common sizes, so that no request pays for first use.

        Overwrites blocks: call it before any block is in use.
        """
        limit = min(self.num_blocks * BLOCK_TOKENS, self._model.config.max_position)
        for tokens in _WARM_UP_TOKENS:
            count = min(tokens, limit)
            blocks = range(-(-count // BLOCK_TOKENS))
            self.forward([Segment([0] * count, 0, blocks, want_logits=True)])

    def block_view(self, block: int) -> memoryview:
        """Writable bytes of one block: all layers, contiguous, aligned to 4 KiB."""
        return self._pool.block_view(block)

    def close(self) -> None:
        """Give the pool's memory back. The runner computes no more."""
        self._pool.close()
