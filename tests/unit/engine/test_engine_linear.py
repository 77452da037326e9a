"""A row of a packed product does not depend on the rows beside it."""

from __future__ import annotations

import pytest
import torch

from pagoda.engine.linear import MIN_ROWS, Linear, can_pack, padded_rows

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])


@DTYPES
@pytest.mark.parametrize(("outputs", "inputs"), [(960, 576), (576, 1536), (199, 96), (100, 200)])
@pytest.mark.parametrize("bias", [False, True])
def test_rows_do_not_depend_on_their_number(dtype, outputs, inputs, bias):
    """The first rows of a product are the same bits in batches of any size from two up."""
    if not can_pack(dtype):
        pytest.skip("no packed products: this build of torch lacks oneDNN for the dtype")
    generator = torch.Generator().manual_seed(inputs)
    weight = torch.randn(outputs, inputs, generator=generator).to(dtype)
    layer = Linear(weight, torch.randn(outputs, generator=generator).to(dtype) if bias else None)
    rows = torch.randn(300, inputs, generator=generator).to(dtype)
    whole = layer(rows)
    for count in (MIN_ROWS, 3, 5, 8, 15, 16, 17, 31, 33, 64, 65, 100, 257):
        assert torch.equal(layer(rows[-count:].contiguous()), whole[-count:])


@DTYPES
@pytest.mark.parametrize("pack", [True, False])
def test_the_product_is_right(dtype, pack):
    """Packed or not, y = x Wᵀ + b to the precision of the dtype."""
    generator = torch.Generator().manual_seed(0)
    weight, bias, rows = (
        torch.randn(size, generator=generator).to(dtype) for size in ((70, 500), (70,), (9, 500))
    )
    expected = rows.double() @ weight.double().T + bias.double()
    found = Linear(weight, bias, pack=pack)(rows).double()
    torch.testing.assert_close(found, expected, rtol=torch.finfo(dtype).eps, atol=1e-4)


def test_fp32_sums_are_as_good_as_the_plain_product():
    """Packed fp32 products err no more than torch's own, over 1,536 inputs."""
    generator = torch.Generator().manual_seed(0)
    weight, rows = (torch.randn(size, generator=generator) for size in ((64, 1536), (64, 1536)))
    exact = rows.double() @ weight.double().T
    plain = (torch.nn.functional.linear(rows, weight) - exact).pow(2).mean().sqrt()
    packed = (Linear(weight)(rows) - exact).pow(2).mean().sqrt()
    assert packed < 1.3 * plain


def test_row_counts_come_in_few_steps() -> None:
    """Padding never drops a row, wastes little, and leaves few shapes to build programs for."""
    padded = {rows: padded_rows(rows) for rows in range(1, 1025)}
    assert all(padded[rows] >= max(rows, MIN_ROWS) for rows in padded)
    assert all(padded[rows] <= 2 * rows for rows in padded if rows > 1)
    assert all(padded[rows] - rows < 32 for rows in padded)
    assert len(set(padded.values())) < 40
