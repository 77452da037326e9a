"""PagodaStorage on real slabs and fakes of SGLang."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sglang_fakes import HostPool
from sglang_host import Host, entry, hosts, model_in, pool_of

_RANKS = ("tp_rank", "tp_size", "pp_rank", "pp_size", "is_mla_model", "dp_rank", "tp_lcm_size")


@pytest.fixture
def sglang_model(tmp_path: Path) -> str:
    """A model's directory."""
    return model_in(tmp_path / "model")


@pytest.fixture
def build(
    tmp_path: Path, sglang_model: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Host]]:
    """Builds a host over the drive in tmp_path."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with hosts(tmp_path, sglang_model) as make:

        def begin(pools: dict[str, HostPool] | None = None, **own: Any) -> Host:
            config = {key: own.pop(key) for key in list(own) if key in _RANKS}
            made: Host = make(
                entry(own.pop("directory", tmp_path / "kv"), **own),
                pools or {"kv": pool_of()},
                **config,
            )
            return made

        yield begin
