"""From vLLM's configuration and the tier's own to an open store below vLLM's host memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pagoda.connect.names import NamesFile
from pagoda.connect.opening import below, settings_of, store_of, weights_of
from pagoda.connect.vllm.form import form_of
from pagoda.connect.vllm.namespace import NAME_BYTES, namespace_of
from pagoda.connect.vllm.options import WHOSE
from pagoda.core.events import Observer
from pagoda.core.identity import NamespaceId
from pagoda.settings.storage import check_plan
from pagoda.settings.tree import Settings
from pagoda.store.store import CheckPlan, Store
from pagoda.tiers.drive import Owner


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What is known of an engine: its OffloadingConfig, its VllmConfig and its version, and how
    many chunks its host memory has, of how many bytes."""

    offloading: Any
    config: Any
    version: str
    chunks: int
    chunk_bytes: int

    @property
    def chunk_tokens(self) -> int:
        """Tokens of a chunk."""
        cache = self.offloading.cache
        return int(cache.tokens_per_hash * cache.blocks_per_chunk)

    @property
    def replica(self) -> int:
        """Which data-parallel replica this is. All of them are configured as the first one is."""
        return int(self.offloading.parallel.data_parallel_index)


@dataclass(frozen=True, slots=True, kw_only=True)
class Below:
    """A store, the namespace of an engine's chunks in it, and the settings that it was opened
    with."""

    store: Store
    namespace: NamespaceId
    settings: Settings

    def names(self) -> NamesFile | None:
        """The file of vLLM's names in the first drive's directory, if there is a drive."""
        directories = self.settings.drive.directories(os.environ)
        if not directories:
            return None
        return NamesFile(directories[0], self.namespace, engine="vllm", name_bytes=NAME_BYTES)


def open_below(
    engine: Engine,
    settings: Mapping[str, object],
    config: str | None,
    *,
    salt: str,
    observer: Observer,
) -> Below:
    """Open it. Raises SettingsError, ModelError, UnsupportedModel or TierError."""
    wanted = settings_of(settings, config, whose=WHOSE)
    if engine.replica:
        wanted = below(wanted, f"dp-{engine.replica}")
    namespace = namespace_of(
        engine.offloading,
        engine.config,
        weights=weights_of(wanted, engine.offloading.model.name, whose=WHOSE),
        chunk_bytes=engine.chunk_bytes,
        version=engine.version,
        salt=salt,
    )
    store = store_of(
        wanted,
        owner=Owner("vLLM"),
        chunk_bytes=engine.chunk_bytes,
        chunks=engine.chunks,
        observer=observer,
        check=_check(engine, wanted),
    )
    return Below(store=store, namespace=namespace.digest(), settings=wanted)


def _check(engine: Engine, wanted: Settings) -> CheckPlan | None:
    """How restored chunks are sampled and compared; None where they are not."""
    if not wanted.check.rate:
        return None
    form = form_of(engine.offloading, engine.config, chunk_bytes=engine.chunk_bytes)
    return check_plan(wanted.check, form=form, block_tokens=engine.chunk_tokens)
