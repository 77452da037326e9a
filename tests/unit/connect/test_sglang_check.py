"""The sampled check in PagodaStorage, on fakes of SGLang: pages that are there and not told of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sglang_fakes import HostPool
from sglang_host import Host, entry, hosts, model_in, name_of

from pagoda.core.errors import SettingsError

Build = Callable[..., Host]
_NAMES = [name_of(number) for number in range(6)]


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Build]:
    """Builds a host over the drive in tmp_path that checks a share of look-ups."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with hosts(tmp_path, model_in(tmp_path / "model")) as make:

        def begin(
            rate: float | None, sizes: tuple[int, ...] = (8192, 8192), dtype: Any = torch.bfloat16
        ) -> Host:
            pool = HostPool(sizes)
            pool.dtype = dtype
            config = entry(tmp_path / "kv")
            config["settings"] |= {} if rate is None else {"check": {"rate": rate, "tokens": 16}}
            made: Host = make(config, {"kv": pool})
            return made

        yield begin


def pages_of(seed: int, size: int = 16384, noise: float = 0.0) -> list[bytes]:
    """Six pages of bf16 numbers; `noise` is how far, relative, they are from `seed`'s own."""
    rng, pages = np.random.default_rng(seed), []
    for _ in _NAMES:
        numbers = rng.normal(size=size // 2).astype("<f4") * np.float32(1 + noise)
        pages.append((numbers.view("<u4") >> 16).astype("<u2").tobytes())
    return pages


def metric(host: Host, name: str, **labels: str) -> float:
    """A counter over all its series that have these labels."""
    counts = host.storage._backend.counts.take()
    return sum(
        count
        for (one, values), count in counts.items()
        if one == name and {*labels.values()} <= {*values}
    )


@pytest.mark.parametrize("sizes", [(8192, 8192), (12288, 4096)])
@pytest.mark.parametrize(("noise", "verdict"), [(0.0, "equal"), (0.02, "close")])
def test_the_last_pages_that_are_there_are_computed_again(
    build: Build, sizes: tuple[int, ...], noise: float, verdict: str
) -> None:
    """A look-up is told of those before them; what SGLang then backs up is held against what is
    stored, in whatever stores its segments lie, and accuses nobody."""
    host = build(1.0, sizes)
    first = pages_of(1)
    assert host.save(_NAMES, first)
    host.storage._backend.counts.take()
    assert host.storage.batch_exists(_NAMES) == 2  # of six: 16 tokens are four pages
    assert host.save(_NAMES[2:], pages_of(1, noise=noise)[2:])
    assert metric(host, "pagoda_checked_segments", verdict=verdict) == 4 * len(sizes)
    host.storage.close()
    plain = build(None, sizes)
    assert plain.storage.batch_exists(_NAMES) == len(_NAMES)
    assert plain.load(_NAMES) == first


def test_pages_of_other_numbers_are_served_to_nobody(build: Build) -> None:
    """Not by this server, and not by the next one over the same drive."""
    host = build(1.0)
    host.save(_NAMES, pages_of(1))
    assert host.storage.batch_exists(_NAMES) == 2
    assert not host.save(_NAMES[2:], pages_of(2)[2:])
    assert host.storage.batch_exists(_NAMES) == 0
    assert host.load(_NAMES) == [None] * len(_NAMES)
    host.storage.close()
    plain = build(0.0)
    assert plain.storage.batch_exists(_NAMES) == 0
    assert not plain.save([name_of(77)], pages_of(3)[:1])


def test_what_cannot_be_compared_is_refused_at_the_start(build: Build) -> None:
    """A check that could only guess is none; without it the server starts."""
    with pytest.raises(SettingsError, match="check"):
        build(0.5, dtype=torch.uint8)
    build(0.0, dtype=torch.uint8)
