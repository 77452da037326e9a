"""How vLLM's chunks are compared, where they can be: the numbers in them, and their parts."""

from __future__ import annotations

from typing import Any

from pagoda.core.checking import TOLERANCES, Form
from pagoda.core.errors import SettingsError


def form_of(offloading: Any, engine: Any, *, chunk_bytes: int) -> Form:
    """The form of an engine's chunks: `offloading` is its OffloadingConfig, `engine` its
    VllmConfig. Bytes behind the copies of all workers are padding. Raises SettingsError for
    chunks that cannot be compared as numbers."""
    dtype = str(offloading.model.dtype).removeprefix("torch.")
    if engine.cache_config.cache_dtype != "auto" or dtype not in TOLERANCES:
        found = engine.cache_config.cache_dtype
        raise _unfit(f"KV of the type {dtype if found == 'auto' else found}")
    if len(offloading.groups) != 1:
        raise _unfit(f"a model of {len(offloading.groups)} kinds of layers")
    copies = 1 if offloading.replicated_layout else offloading.parallel.world_size
    size = offloading.worker_kv_bytes_per_block * offloading.cache.blocks_per_chunk * copies
    size = min(size, chunk_bytes)
    parts = len(offloading.groups[0].layer_names) * copies
    if size % (parts * 4):  # layers of different sizes, such as a draft model's
        return Form(dtype=dtype, parts=1, part_bytes=size)
    return Form(dtype=dtype, parts=parts, part_bytes=size // parts)


def _unfit(what: str) -> SettingsError:
    return SettingsError(
        f"{what} cannot be checked against what is computed again",
        key="check.rate",
        source="PagodaTier's settings",
        remedy="set check.rate to 0",
    )
