"""Names of SGLang's pages: what parts them, byte for byte."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest
from sglang_fakes import Config, HostPool, MHATokenToKVPoolHost, MLATokenToKVPoolHost

from pagoda.connect.sglang.namespace import key_of, namespace_of
from pagoda.connect.sglang.pages import is_shared, layout_of, pages_of
from pagoda.connect.sglang.served import Rank, Served, rank_of
from pagoda.core.identity import NamespaceId

_SERVED = Served(
    version="0.5.23",
    model_path="/models/m",
    model={"hidden_size": 64, "rope_theta": 10000},
    dtype="torch.bfloat16",
    quantization="None",
    kv_dtype="auto",
    kv_heads=2,
    head_dim=64,
)
_RANK = Rank(tp=(0, 2), pp=(0, 1), cp=(0, 1), dcp=(0, 1), replica=0, replicated=False)


def _layout(name: str = "kv", pool: HostPool | None = None) -> dict[str, Any]:
    pool = pool or HostPool([4096, 4096])
    return dict(layout_of(pool, name, pages_of(pool, name)))


def _digest(
    served: Served = _SERVED,
    rank: Rank = _RANK,
    layout: dict[str, Any] | None = None,
    *,
    weights: bytes = bytes(32),
    salt: str = "",
    shared: bool = False,
) -> bytes:
    space = namespace_of(
        served, rank, layout or _layout(), weights=weights, salt=salt, shared=shared
    )
    return space.digest()


def test_keys_are_the_digest_that_is_specified() -> None:
    """Domain, namespace, number of the segment, length and name."""
    space = NamespaceId(bytes(range(32)))
    name = "ab" * 32
    data = b"pagoda.sglang.v1\0" + space + (3).to_bytes(4, "little") + (64).to_bytes(4, "little")
    assert key_of(space, name, 3) == hashlib.sha256(data + name.encode()).digest()
    others = {
        key_of(space, name, 0),
        key_of(space, "cd" * 32, 3),
        key_of(NamespaceId(bytes(32)), name, 3),
    }
    assert len(others | {key_of(space, name, 3)}) == 4


def test_all_that_the_bytes_depend_on_parts_namespaces() -> None:
    """Each change alone makes another namespace."""
    changes = [
        _digest(weights=bytes([1]) * 32),
        _digest(salt="tenant"),
        _digest(replace(_SERVED, version="0.5.24")),
        _digest(replace(_SERVED, model={"hidden_size": 64, "rope_theta": 5000})),
        _digest(replace(_SERVED, dtype="torch.float16")),
        _digest(replace(_SERVED, quantization="fp8")),
        _digest(replace(_SERVED, kv_dtype="fp8_e5m2")),
        _digest(replace(_SERVED, kv_dtype="fp8_e4m3")),
        _digest(replace(_SERVED, draft="EAGLE/00")),
        _digest(rank=replace(_RANK, tp=(1, 2))),
        _digest(rank=replace(_RANK, tp=(0, 4))),
        _digest(rank=replace(_RANK, pp=(0, 2))),
        _digest(rank=replace(_RANK, pp=(1, 2))),
        _digest(rank=replace(_RANK, cp=(1, 2))),
        _digest(rank=replace(_RANK, dcp=(1, 2))),
        _digest(layout=_layout("swa")),
        _digest(layout=_layout(pool=HostPool([8192]))),
        _digest(layout=_layout(pool=HostPool([4096, 4096], tokens=8))),
        _digest(layout=_layout(pool=HostPool([4096, 4096], layout="page_head"))),
        _digest(layout=_layout(pool=MHATokenToKVPoolHost([4096, 4096]))),
        _digest(layout=_layout(pool=HostPool([8192], in_place=False))),
    ]
    assert len({_digest(), *changes}) == len(changes) + 1


def test_what_the_bytes_do_not_depend_on_parts_nothing() -> None:
    """A copy of a server, another directory with the same content, and other pools of memory."""
    assert _digest() == _digest(rank=replace(_RANK, replica=3))
    assert _digest() == _digest(replace(_SERVED, model_path="/elsewhere"))
    assert _digest() == _digest(layout=_layout(pool=HostPool([4096, 4096], pages=32)))
    first, second = (replace(_RANK, tp=(rank, 2), replicated=True) for rank in range(2))
    assert _digest(rank=first, shared=True) == _digest(rank=second, shared=True)


@pytest.mark.parametrize(
    ("kind", "name", "replicated", "expected"),
    [
        (MLATokenToKVPoolHost, "kv", True, True),
        (HostPool, "indexer", True, True),
        (HostPool, "mamba", True, False),
        (MHATokenToKVPoolHost, "draft", True, False),
        (MHATokenToKVPoolHost, "kv", False, False),
    ],
)
def test_ranks_share_what_is_not_cut_up(
    kind: type[HostPool], name: str, replicated: bool, expected: bool
) -> None:
    """Mamba's states and heads of plain attention are each rank's own, beside MLA too."""
    assert is_shared(kind([4096]), name, replicated=replicated) == expected


def test_directories_tell_processes_of_one_machine_apart() -> None:
    """By every rank that there is, and by the replica, which SGLang tells in two places."""
    alone = rank_of(Config({}), object())
    assert alone.directory == "tp-0"
    assert alone.speaks
    config = Config({}, tp_rank=1, tp_size=2, pp_rank=1, pp_size=2, attn_cp_rank=1, attn_cp_size=2)

    class Parallel:
        dp_rank = 3

    assert rank_of(config, Parallel()).directory == "tp-1-pp-1-cp-1-dp-3"
    assert not rank_of(config, Parallel()).speaks
    assert rank_of(Config({}, dp_rank=2), Parallel()).replica == 2
