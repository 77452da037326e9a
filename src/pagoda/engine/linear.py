"""A linear layer whose weights are packed once for this processor.

With oneDNN's packed weights, a row of the product does not depend on how many other rows
are computed beside it, as long as there are at least two: the engine's answers rest on
that, and tests/unit/engine assert it. Without oneDNN the plain product is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch.nn import functional

MIN_ROWS: Final = 2  # one row takes a matrix-vector kernel, which sums in another order
_FINE_ROWS, _COARSE_ROWS = 16, 32  # steps of the number of rows, up to 64 rows and above
_PACK_ROWS: Final = 512  # the batch that the packed layout is chosen for
# oneDNN adds the products of a row one after another. In fp32 that costs digits: such sums
# are cut into parts of this length, which are added to each other.
_FP32_PART: Final = 192

Operation = Callable[..., torch.Tensor]


def padded_rows(rows: int) -> int:
    """How many rows to compute instead of `rows`: 2, 4, 8, then multiples of 16, then of 32.

    oneDNN builds and keeps a program for every number of rows it meets. Batches come in all
    sizes, so without steps it would build for ever, and keep tens of megabytes of them.
    """
    for small in (MIN_ROWS, 4, 8):
        if rows <= small:
            return small
    step = _FINE_ROWS if rows <= 4 * _FINE_ROWS else _COARSE_ROWS
    return -(-rows // step) * step


class Linear:
    """y = x Wᵀ + b for x [rows, inputs], rows ≥ MIN_ROWS; y has x's dtype."""

    def __init__(
        self, weight: torch.Tensor, bias: torch.Tensor | None = None, *, pack: bool = True
    ) -> None:
        self._bias = bias
        self._plain = None if pack and can_pack(weight.dtype) else weight
        self._parts = [] if self._plain is not None else _packed_parts(weight)

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        if self._plain is not None:
            return functional.linear(rows, self._plain, self._bias)
        product: Any = torch.ops.mkldnn._linear_pointwise
        if len(self._parts) == 1:
            return product(rows, self._parts[0], self._bias, "none", [], "")  # type: ignore[no-any-return]
        columns = torch.split(rows, _FP32_PART, dim=1)
        total = product(columns[0].contiguous(), self._parts[0], self._bias, "none", [], "")
        for part, weight in zip(columns[1:], self._parts[1:], strict=True):
            total = product.binary(part.contiguous(), total, weight, None, "add")
        return total  # type: ignore[no-any-return]


def can_pack(dtype: torch.dtype) -> bool:
    """Whether this build of torch, on this processor, has packed products for `dtype`."""
    if not torch.backends.mkldnn.is_available() or not hasattr(  # type: ignore[no-untyped-call]
        torch.ops.mkldnn, "_reorder_linear_weight"
    ):
        return False
    return dtype == torch.float32 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _packed_parts(weight: torch.Tensor) -> list[torch.Tensor]:
    length = _FP32_PART if weight.dtype == torch.float32 else weight.shape[1]
    pack: Operation = torch.ops.mkldnn._reorder_linear_weight
    return [pack(part.contiguous(), _PACK_ROWS) for part in torch.split(weight, length, dim=1)]
