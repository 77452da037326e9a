"""Several engines on one host: who has a directory, and what the next one is told."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pagoda.connect.opening import settings_of, store_of
from pagoda.connect.sglang.library import OWNER as SGLANG
from pagoda.connect.sglang.library import placed
from pagoda.core.errors import DirectoryLocked
from pagoda.store.store import Store
from pagoda.tiers.drive import Owner

VLLM = Owner("vLLM")
_CHUNK = 64 << 10

Open = Callable[..., Store]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Opens stores over one directory, as a connector does; below it for a rank of SGLang."""
    stores: list[Store] = []

    def begin(owner: Owner, *, rank: str = "") -> Store:
        drive = {"path": str(tmp_path / "kv"), "capacity": "8MiB", "free_floor": "1MiB"}
        settings = settings_of({"drive": drive}, None, whose="a connector", environ={})
        if rank:
            settings = placed(settings, f"{rank}/kv", 1.0)
        store = store_of(
            settings, owner=owner, chunk_bytes=_CHUNK, chunks=64, observer=lambda event: None
        )
        stores.append(store)
        return store

    yield begin
    for store in stores:
        store.close(flush_s=1)


def _refused(opened: Open, owner: Owner, **more: str) -> str:
    with pytest.raises(DirectoryLocked) as told:
        opened(owner, **more)
    assert told.value.owner in str(told.value)
    assert "its own directory" in told.value.remedy
    return str(told.value)


def test_one_vllm_is_told_of_the_other(opened: Open, tmp_path: Path) -> None:
    """Two replicas with one configuration: kind and process of the first, and its directory."""
    opened(VLLM)
    message = _refused(opened, VLLM)
    assert f"vLLM, process {os.getpid()}" in message
    assert str(tmp_path / "kv") in message


def test_sglang_is_told_of_vllm(opened: Open) -> None:
    """Its ranks' directories would lie inside vLLM's: both would count on the whole drive."""
    opened(VLLM)
    assert f"vLLM, process {os.getpid()}" in _refused(opened, SGLANG, rank="tp-0")


def test_vllm_is_told_of_sglang(opened: Open, tmp_path: Path) -> None:
    """Nor does vLLM lay its slab beside SGLang's ranks."""
    opened(SGLANG, rank="tp-0")
    assert f"SGLang, process {os.getpid()}" in _refused(opened, VLLM)
    assert not list((tmp_path / "kv").glob("*.slab"))


def test_ranks_of_one_sglang_share_its_directory(opened: Open) -> None:
    """Each has its own in it; a second server finds the first one's rank."""
    first = opened(SGLANG, rank="tp-0")
    opened(SGLANG, rank="tp-1")
    assert f"SGLang, process {os.getpid()}" in _refused(opened, SGLANG, rank="tp-0")
    first.close(flush_s=1)
    assert "SGLang" in _refused(opened, VLLM)  # the other rank still has it


def test_a_directory_is_free_once_every_rank_is_gone(opened: Open) -> None:
    """Whoever comes next, of whatever kind."""
    for store in [opened(SGLANG, rank="tp-0"), opened(SGLANG, rank="tp-1")]:
        store.close(flush_s=1)
    assert opened(VLLM).levels()
