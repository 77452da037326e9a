"""Names of vLLM's chunks: everything that parts them is in the namespace."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest

from pagoda.connect.vllm.namespace import key_of, namespace_of
from pagoda.core.errors import UnsupportedModel
from pagoda.core.identity import NamespaceId


def _offloading(**changes: Any) -> Any:
    parallel = SimpleNamespace(world_size=1, tp_size=1, pp_size=1, pcp_size=1, dcp_size=1, rank=0)
    group = SimpleNamespace(group_id=0, tokens_per_block=16, layer_names=("a", "b"))
    base = {
        "groups": (group,),
        "worker_kv_bytes_per_block": 4096,
        "cache": SimpleNamespace(tokens_per_hash=16, blocks_per_chunk=2),
        "model": SimpleNamespace(name="/models/one", dtype="bfloat16"),
        "parallel": parallel,
        "replicated_layout": False,
        "canonical_layout": False,
        "kv_cache_layout": "HND",
    }
    return SimpleNamespace(**(base | changes))


def _engine(*, theta: float = 1e4, algorithm: str = "sha256", lora: object = None) -> Any:
    config = {"rope_theta": theta, "_name_or_path": object(), "transformers_version": "5"}
    return SimpleNamespace(
        model_config=SimpleNamespace(
            model="/models/one",
            hf_config=SimpleNamespace(to_dict=lambda: config),
            dtype="torch.bfloat16",
            quantization=None,
            get_total_num_kv_heads=lambda: 2,
            get_head_size=lambda: 64,
        ),
        cache_config=SimpleNamespace(prefix_caching_hash_algo=algorithm, cache_dtype="auto"),
        lora_config=lora,
    )


def _digest(offloading: Any = None, engine: Any = None, **changes: Any) -> bytes:
    more = {"weights": bytes(32), "chunk_bytes": 8192, "version": "1", "salt": ""} | changes
    return namespace_of(offloading or _offloading(), engine or _engine(), **more).digest()


def test_a_key_is_the_digest_of_namespace_and_name() -> None:
    """As docs/design/identity.md writes it."""
    namespace = NamespaceId(bytes(range(32)))
    name = b"a chunk's name"
    text = b"pagoda.vllm.v1\0" + namespace + len(name).to_bytes(4, "little") + name
    assert key_of(namespace, name) == hashlib.sha256(text).digest()
    assert key_of(namespace, name) != key_of(NamespaceId(bytes(32)), name)


def test_whatever_parts_chunks_makes_another_namespace() -> None:
    """Weights, shapes, layouts, ranks, arithmetic, versions and salts, one at a time."""
    cache = SimpleNamespace(tokens_per_hash=16, blocks_per_chunk=4)
    wide = SimpleNamespace(**(vars(_offloading().parallel) | {"tp_size": 2, "world_size": 2}))
    digests = [
        _digest(),
        _digest(weights=bytes([1]) * 32),
        _digest(chunk_bytes=4096),
        _digest(version="2"),
        _digest(salt="tenant"),
        _digest(_offloading(kv_cache_layout="NHD")),
        _digest(_offloading(cache=cache)),
        _digest(_offloading(parallel=wide)),
        _digest(_offloading(canonical_layout=True)),
        _digest(_offloading(groups=_offloading().groups * 2)),
        _digest(_offloading(model=SimpleNamespace(name="/models/one", dtype="fp8"))),
        _digest(engine=_engine(theta=2e4)),
        _digest(engine=_engine(algorithm="sha256_cbor")),
    ]
    assert len(set(digests)) == len(digests)


def test_the_models_name_is_not_in_it() -> None:
    """The same weights from another directory are the same namespace."""
    other = SimpleNamespace(name="/elsewhere", dtype="bfloat16")
    assert _digest(_offloading(model=other)) == _digest()
    space = namespace_of(
        _offloading(), _engine(), weights=bytes(32), chunk_bytes=1, version="1", salt=""
    )
    assert "/models/one" not in str(asdict(space))


def test_names_that_do_not_tell_enough_apart_are_refused() -> None:
    """A hash that can be made to collide, and adapters that go by name."""
    with pytest.raises(UnsupportedModel, match="xxhash"):
        _digest(engine=_engine(algorithm="xxhash"))
    with pytest.raises(UnsupportedModel, match="LoRA"):
        _digest(engine=_engine(lora=object()))
