"""The extension refuses bad arguments with typed errors and never crashes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda.engine.native import extension

native = extension()
pytestmark = pytest.mark.skipif(
    native is None, reason="no C extension: pagoda._native is not built"
)

HEADS, KV_HEADS, DIM, BLOCKS, TOKENS = 4, 2, 32, 3, 20
BLOCK_BYTES = 2 * KV_HEADS * DIM * 16 * 4

QKV = torch.randn(TOKENS, (HEADS + 2 * KV_HEADS) * DIM)
OUT = torch.zeros(TOKENS, HEADS * DIM)
POOL = torch.zeros(BLOCKS * BLOCK_BYTES // 4 + 16)
TABLE = torch.ones(64, DIM // 2)
ROWS = torch.zeros(TOKENS, 2 * DIM)
WEIGHT = torch.ones(2 * DIM)
POSITIONS = np.arange(TOKENS, dtype=np.int32)
OFFSETS = np.array([0, TOKENS], np.int32)
STARTS = np.array([0], np.int32)
TABLE_OFFSETS = np.array([0, 2], np.int32)
TABLES = np.array([2, 0], np.int32)


def aligned(tensor: torch.Tensor) -> int:
    """The first 64-byte aligned address inside a tensor."""
    return -(-tensor.data_ptr() // 64) * 64


CACHE = (0, HEADS, KV_HEADS, DIM, aligned(POOL), BLOCKS, BLOCK_BYTES, 0)
VALID = {
    "attend": (
        0,
        2,
        *CACHE,
        1,
        OFFSETS.ctypes.data,
        STARTS.ctypes.data,
        TABLE_OFFSETS.ctypes.data,
        TABLES.ctypes.data,
        TOKENS,
        QKV.data_ptr(),
        OUT.data_ptr(),
    ),
    "rope_store": (
        2,
        *CACHE,
        TOKENS,
        QKV.data_ptr(),
        TABLE.data_ptr(),
        TABLE.data_ptr(),
        64,
        0,
        0,
        1e-5,
        POSITIONS.ctypes.data,
        POSITIONS.ctypes.data,
    ),
    "add_norm": (
        0,
        2,
        TOKENS,
        DIM,
        ROWS.data_ptr(),
        0,
        WEIGHT.data_ptr(),
        1e-5,
        OUT.data_ptr(),
    ),
    "silu_mul": (0, 2, TOKENS, DIM, ROWS.data_ptr(), OUT.data_ptr()),
    "best_isa": (0,),
}
# Values that are wrong wherever they stand: other types, out of every range, not addresses.
WRONG = st.one_of(
    st.none(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.just(float("nan")),
    st.floats(max_value=-1e-9, allow_nan=False),
    st.integers(max_value=-1),
    st.integers(min_value=2**63),
    st.lists(st.integers(), max_size=2),
)


@pytest.mark.parametrize("name", VALID)
def test_valid_arguments_are_taken(name):
    """The arguments that the other tests spoil are fine as they are."""
    result = getattr(native, name)(*VALID[name])
    assert result is None or result in {0, 1, 2}


@pytest.mark.parametrize("name", VALID)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_wrong_argument_is_a_typed_error(name, data):
    """One argument replaced by a wrong value raises TypeError or ValueError."""
    arguments = list(VALID[name])
    arguments[data.draw(st.integers(0, len(arguments) - 1))] = data.draw(WRONG)
    with pytest.raises((TypeError, ValueError)):
        getattr(native, name)(*arguments)


@pytest.mark.parametrize("name", VALID)
@pytest.mark.parametrize("change", [-1, 1])
def test_a_wrong_count_is_a_type_error(name, change):
    """One argument too few or too many raises TypeError that states the counts."""
    arguments = VALID[name][:-1] if change < 0 else (*VALID[name], 0)
    with pytest.raises(TypeError, match=f"{name} takes {len(VALID[name])} arguments"):
        getattr(native, name)(*arguments)


def replaced(name: str, index: int, value: int) -> tuple:
    """Valid arguments with one replaced."""
    arguments = list(VALID[name])
    arguments[index] = value
    return tuple(arguments)


@pytest.mark.parametrize(
    ("index", "value", "message"),
    [
        (0, 3, "isa is out of range"),
        (1, 0, "threads is out of range"),
        (2, 2, "dtype is out of range"),
        (3, 3, "heads is not a multiple"),
        (4, 0, "kv_heads is out of range"),
        (5, 31, "head_dim is odd"),
        (6, aligned(POOL) + 4, "pool is not an address"),
        (7, 2, "a block id is out of range"),
        (8, BLOCK_BYTES - 64, "the layer does not fit"),
        (9, 64, "the layer does not fit"),
        (9, 2, "not aligned to 64 bytes"),
        (11, 8, "offsets is not an address"),
        (15, TOKENS - 1, "offsets do not span the rows"),
        (16, QKV.data_ptr() + 2, "qkv is not an address"),
    ],
)
def test_attention_checks_what_it_is_told(index, value, message):
    """Each inconsistent size, address or isa is named."""
    with pytest.raises(ValueError, match=message):
        native.attend(*replaced("attend", index, value))


@pytest.mark.parametrize(
    ("index", "values", "message"),
    [
        (11, [0, 0], "offsets do not span"),
        (11, [1, TOKENS], "offsets do not span"),
        (12, [-1], "empty or out of range"),
        (12, [13], "a block table is too short"),
        (13, [0, 1], "a block table is too short"),
        (13, [0, -2], "a block table is too short"),
        (14, [0, BLOCKS], "a block id is out of range"),
        (14, [-1, 0], "a block id is out of range"),
    ],
)
def test_attention_checks_the_lists_of_a_batch(index, values, message):
    """A list that would lead out of the pool or the rows is refused."""
    array = np.array(values, np.int32)
    with pytest.raises(ValueError, match=message):
        native.attend(*replaced("attend", index, array.ctypes.data))


@pytest.mark.parametrize(
    ("index", "values", "message"),
    [
        (17, [64], "position"),
        (17, [-1], "position"),
        (18, [16 * BLOCKS], "slot"),
        (18, [-1], "slot"),
    ],
)
def test_storing_checks_positions_and_slots(index, values, message):
    """A token outside the rope table or the pool is refused before anything is written."""
    before = POOL.clone()
    array = np.array(values * TOKENS, np.int32)
    with pytest.raises(ValueError, match=f"a {message} is out of range"):
        native.rope_store(*replaced("rope_store", index, array.ctypes.data))
    assert torch.equal(POOL, before)
