"""Names of blocks: the specification's vectors, and what names must tell apart."""

from __future__ import annotations

import hashlib
import struct
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.core.identity import ROOT, Namespace, NamespaceId, chain

EXAMPLE = Namespace(
    weights=bytes(range(32)),
    config="{}",
    layout="pagoda-1/bf16-pairs/tokens=16/layers=30/kv_heads=3/head_dim=64",
    dtype="bfloat16",
    scales="none",
    layers=30,
    kv_heads=3,
    head_dim=64,
    block_tokens=16,
    tp_rank=0,
    tp_size=1,
    pp_rank=0,
    pp_size=1,
    rope="theta=100000",
    adapter="",
    salt="",
)
NAMESPACE_VECTOR = "68b4f10c4796093b4729851e39426e623db56368c7f7cce3f30bf63017f6daa2"
KEY_VECTORS = (
    "81117c63f3fb0c5af6092fd3a493a475f83f3f8ad053b31c05e8baa51452e26d",
    "24692176e7809bc460ace8b179873fda3c0172640f4e78ef144e0abeff611129",
)

tokens = st.lists(st.integers(0, 2**32 - 1), max_size=70)


def test_namespace_matches_its_vector() -> None:
    """The example of docs/design/identity.md, byte for byte."""
    assert EXAMPLE.digest().hex() == NAMESPACE_VECTOR


def test_keys_match_their_vectors() -> None:
    """Two full blocks of the tokens 0, 1, 2, …; the partial third has no key."""
    keys = chain(EXAMPLE.digest(), range(40), block_tokens=16)
    assert tuple(key.hex() for key in keys) == KEY_VECTORS


def test_a_key_is_made_as_the_specification_says() -> None:
    """An independent encoding of the specification gives the same key."""
    namespace = EXAMPLE.digest()
    data = b"pagoda.block.v1\0" + namespace + bytes(32) + struct.pack("<I", 4)
    data += struct.pack("<4I", 7, 8, 9, 2**32 - 1)
    expected = hashlib.sha256(data).digest()
    assert chain(namespace, [7, 8, 9, 2**32 - 1], block_tokens=4) == [expected]


@given(tokens, tokens)
def test_equal_keys_mean_equal_prefixes(a: list[int], b: list[int]) -> None:
    """Two chains agree exactly as far as their tokens agree in whole blocks."""
    namespace = EXAMPLE.digest()
    keys_a, keys_b = (chain(namespace, t, block_tokens=4) for t in (a, b))
    for i, (x, y) in enumerate(zip(keys_a, keys_b, strict=False)):
        assert (x == y) == (a[: 4 * i + 4] == b[: 4 * i + 4])


@given(tokens, st.integers(0, 15))
def test_a_chain_can_be_continued(whole: list[int], cut: int) -> None:
    """Continuing from a parent gives the keys of the whole chain."""
    namespace = EXAMPLE.digest()
    keys = chain(namespace, whole, block_tokens=4)
    cut = min(cut, len(keys))
    parent = keys[cut - 1] if cut else ROOT
    assert keys[cut:] == chain(namespace, whole[4 * cut :], block_tokens=4, parent=parent)


def test_every_field_separates_namespaces() -> None:
    """Changing any one field changes the namespace, so no setting can be forgotten in it."""
    seen = {EXAMPLE.digest()}
    changed: dict[str, object] = {
        "weights": bytes(32),
        "tp_size": 2,
        "tp_rank": 1,
        "pp_size": 2,
        "pp_rank": 1,
    }
    for name in EXAMPLE.__dataclass_fields__:
        value = getattr(EXAMPLE, name)
        other = changed.get(name, value + 1 if isinstance(value, int) else f"{value}x")
        base = replace(EXAMPLE, tp_size=4, pp_size=4) if name.endswith("rank") else EXAMPLE
        seen.add(replace(base, **{name: other}).digest())
    assert len(seen) == len(EXAMPLE.__dataclass_fields__) + 1


def test_fields_cannot_run_into_each_other() -> None:
    """Moving a character from one text field to its neighbour is another namespace."""
    one = replace(EXAMPLE, adapter="ab", salt="c").digest()
    assert one != replace(EXAMPLE, adapter="a", salt="bc").digest()


def test_names_do_not_depend_on_the_process() -> None:
    """A process with another hash seed makes the same key (a seed once leaked into vLLM's)."""
    program = (
        "from pagoda.core.identity import NamespaceId, chain;"
        "print(chain(NamespaceId(bytes(32)), range(16), block_tokens=16)[0].hex())"
    )
    results = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "random")
    }
    assert results == {chain(NamespaceId(bytes(32)), range(16), block_tokens=16)[0].hex() + "\n"}


@pytest.mark.parametrize("token", [-1, 2**32])
def test_tokens_outside_32_bits_are_refused(token: int) -> None:
    """A token id that does not fit is an error, not another token's name."""
    with pytest.raises(ValueError, match="32-bit"):
        chain(EXAMPLE.digest(), [0, token], block_tokens=2)
