"""The connector in the real SGLang 0.5.23 on a CPU, over each way that host memory is laid out.

`direct` and `kernel` are how SGLang moves pages between device and host; a page_first layout has
only kernels, for which tests/engines/sglang/copies.py stands in.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sglang_checks import CACHED_TOKENS, RESTORED, STORED, ask_until_stored, prompt_of, restore
from sglang_harness import Server, pagoda_entry
from slab_damage import change_payloads

from pagoda.tiers.drive import slab

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]

_TWO_RANKS: dict[str, Any] = {
    "arguments": ("--tp-size", "2"),
    "environment": {"SGLANG_CPU_OMP_THREADS_BIND": "0|0"},  # processors of the first, the second
}
_LLAMA_BYTES, _DEEPSEEK_BYTES = 1024, 768  # of keys and values, a token


def _entry(directory: Path, **more: Any) -> dict[str, Any]:
    # Scrubbing would take changed bytes out of service before anybody asks.
    return pagoda_entry(directory, {"store": {"scrub_rate": "0"}}, **more)


def _prove(server: Server, directory: Path, *, token_bytes: int) -> None:
    """What is restored is the device hit's to the bit, and is not once bytes are changed below a
    seal that nobody checks."""
    _, local = ask_until_stored(server, prompt_of(1), token_bytes=token_bytes)
    restored = restore(server, prompt_of(1))
    assert restored == local
    assert restored.stored == CACHED_TOKENS
    server.wait_for(RESTORED, CACHED_TOKENS * token_bytes)
    assert change_payloads(directory) > 0
    server.break_drives(unsealed=True)
    wrong = restore(server, prompt_of(1))
    assert wrong.stored == CACHED_TOKENS
    server.wait_for(RESTORED, 2 * CACHED_TOKENS * token_bytes)
    assert wrong.tokens != local.tokens


@pytest.mark.parametrize(
    ("layout", "io", "in_place"), [("page_first", "kernel", 1), ("layer_first", "direct", 0)]
)
def test_a_layout_restores_to_the_bit(  # noqa: PLR0917 - fixtures and parameters
    sglang: Any, tiny_llama: Path, tmp_path: Path, layout: str, io: str, in_place: int
) -> None:
    """In place by addresses, and by tensors where a page lies in many pieces."""
    server = sglang(
        model=tiny_llama,
        entry=_entry(tmp_path, interface_v1=in_place),
        layout=layout,
        io=io,
    )
    _prove(server, tmp_path, token_bytes=_LLAMA_BYTES)
    server.close()


def test_latent_attention_restores_to_the_bit(
    sglang: Any, tiny_deepseek: Path, tmp_path: Path
) -> None:
    """MLA: a page is one piece, of one latent vector and the rotated keys a token."""
    server = sglang(model=tiny_deepseek, entry=_entry(tmp_path))
    _prove(server, tmp_path, token_bytes=_DEEPSEEK_BYTES)
    server.close()


def test_two_ranks_keep_their_pages_apart(sglang: Any, tiny_llama: Path, tmp_path: Path) -> None:
    """Tensor parallelism: each rank has its heads of every page, in a directory of its own."""
    server = sglang(model=tiny_llama, entry=_entry(tmp_path), **_TWO_RANKS)
    _prove(server, tmp_path, token_bytes=_LLAMA_BYTES)
    slabs = list(tmp_path.rglob(slab.SLAB_NAME))
    assert len(slabs) == 2
    assert len({path.parents[1] for path in slabs}) == 2
    for rank in ("0", "1"):
        half = CACHED_TOKENS * _LLAMA_BYTES / 2
        assert server.total(STORED, tp_rank=rank) == half
    server.clear_storage()
    assert restore(server, prompt_of(1)).cached == 0
    server.close()


def test_two_ranks_that_hold_the_same_may_each_store_it(
    sglang: Any, tiny_deepseek: Path, tmp_path: Path
) -> None:
    """MLA under tensor parallelism, with nothing shared: every rank writes and reads its own."""
    entry = _entry(tmp_path, each_rank_writes=True)
    server = sglang(model=tiny_deepseek, entry=entry, **_TWO_RANKS)
    _prove(server, tmp_path, token_bytes=2 * _DEEPSEEK_BYTES)
    server.close()
