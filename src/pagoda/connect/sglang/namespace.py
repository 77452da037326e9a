"""Names of SGLang's pages (docs/design/identity.md, "Pages of SGLang", is the specification).

SGLang names a page by a chained digest (SHA-256) of its tokens, which begins with what a request
adds to them (`cache_salt`, `extra_key`). Model, weights, layout, ranks and pool are not in it: they
are the namespace's, from which, SGLang's name and the number of a segment a key is made.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pagoda.connect.sglang.served import Rank, Served
from pagoda.core.identity import Key, Namespace, NamespaceId

_KEY_DOMAIN = b"pagoda.sglang.v1\0"


def key_of(namespace: NamespaceId, name: str, segment: int) -> Key:
    """The key of a segment of the page that SGLang calls `name`."""
    text = name.encode()
    head = segment.to_bytes(4, "little") + len(text).to_bytes(4, "little")
    return Key(hashlib.sha256(_KEY_DOMAIN + namespace + head + text).digest())


def namespace_of(  # noqa: PLR0913 - what makes pages interchangeable, by where it is known
    served: Served,
    rank: Rank,
    layout: Mapping[str, Any],
    *,
    weights: bytes,
    salt: str,
    shared: bool,
) -> Namespace:
    """The namespace of the pages of one pool, whose bytes `layout` describes; `shared` says that
    all tensor-parallel ranks have the same."""
    config = {
        "model": served.model,
        "dtype": served.dtype,
        "quantization": served.quantization,
        "draft": served.draft,
        "sglang": served.version,
    }
    parts = {**layout, "cp": rank.cp, "dcp": rank.dcp}
    return Namespace(
        weights=weights,
        config=_canonical(config),
        layout="sglang/" + _canonical(parts),
        dtype=served.kv_dtype,
        scales="none" if served.kv_dtype in ("auto", "bf16", "bfloat16") else "sglang",
        layers=int(layout["layers"]),
        kv_heads=served.kv_heads,
        head_dim=served.head_dim,
        block_tokens=int(layout["tokens"]),
        tp_rank=0 if shared else rank.tp[0],
        tp_size=rank.tp[1],
        pp_rank=rank.pp[0],
        pp_size=rank.pp[1],
        rope="in config",
        adapter="",
        salt=salt,
    )


def _canonical(content: object) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
