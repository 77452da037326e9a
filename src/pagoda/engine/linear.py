"""A linear layer whose weights are packed once for this processor.

With oneDNN's packed weights, a row of the product does not depend on how many other rows
are computed beside it, as long as there are at least two: the engine's answers rest on
that, and tests/unit/engine assert it. Without oneDNN the plain product is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch
from torch.nn import functional

MIN_ROWS: Final = 2  # one row takes a matrix-vector kernel, which sums in another order
_PACK_ROWS: Final = 512  # the batch that the packed layout is chosen for


class Linear:
    """y = x Wᵀ + b for x [rows, inputs], rows ≥ MIN_ROWS; y has x's dtype."""

    def __init__(
        self, weight: torch.Tensor, bias: torch.Tensor | None = None, *, pack: bool = True
    ) -> None:
        self._bias = bias
        self.packed = pack and can_pack(weight.dtype)
        self._weight = (
            _mkldnn("_reorder_linear_weight")(weight, _PACK_ROWS) if self.packed else weight
        )
        self._product: Callable[..., torch.Tensor] = (
            _mkldnn("_linear_pointwise") if self.packed else functional.linear
        )

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        if self.packed:
            return self._product(rows, self._weight, self._bias, "none", [], "")
        return self._product(rows, self._weight, self._bias)


def can_pack(dtype: torch.dtype) -> bool:
    """Whether this build of torch, on this processor, has packed products for `dtype`."""
    if not torch.backends.mkldnn.is_available() or not hasattr(
        torch.ops.mkldnn, "_reorder_linear_weight"
    ):
        return False
    return dtype == torch.float32 or bool(_mkldnn("_is_mkldnn_bf16_supported")())


def _mkldnn(name: str) -> Callable[..., torch.Tensor]:
    operation: Callable[..., torch.Tensor] = getattr(torch.ops.mkldnn, name)
    return operation
