"""From a tier's entry in vLLM's configuration to an open store.

    {"type": "PagodaTier", "module_path": "pagoda.connect.vllm",
     "settings": {"drive": {"path": "/mnt/nvme0/pagoda", "capacity": "200GiB"}}}

Settings come from where they always come from: a file (`config` names one), PAGODA_* variables,
and, stronger than both, `settings`. The tier in memory is left out: vLLM's own stands there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from pagoda.core.errors import PagodaError, SettingsError
from pagoda.core.events import Observer
from pagoda.settings.load import resolve
from pagoda.settings.sources import (
    Origin,
    Rank,
    environment_layer,
    file_layer,
    find_file,
    mapping_layer,
)
from pagoda.settings.storage import store_plan
from pagoda.settings.tree import Settings, user_directory
from pagoda.store.executor import Runtime, ThreadExecutor
from pagoda.store.fingerprint import weights_fingerprint
from pagoda.store.open import open_store
from pagoda.store.store import Store
from pagoda.watch.tell import telling

_STORE_THREADS = 1  # each tier writes one run at a time


def settings_of(
    own: Mapping[str, object], config: str | None, environ: Mapping[str, str] = os.environ
) -> Settings:
    """The settings of a tier. Raises SettingsError."""
    origin = Origin(Rank.FLAG, "PagodaTier's settings")
    found = find_file(config, environ=environ, directory=Path.cwd())
    layers = [file_layer(*found)] if found else []
    settings = resolve([*layers, environment_layer(environ), mapping_layer(own, origin)]).settings
    if not settings.drive.directories(environ) and not settings.remote.url:
        raise SettingsError(
            "PagodaTier has neither a drive nor a shared store",
            key="drive.path",
            source=str(origin),
            remedy="set drive.path to a directory, or remote.url to a shared store",
        )
    without = settings.host.model_copy(update={"capacity": 0})
    return settings.model_copy(update={"host": without})


def weights_of(settings: Settings, served: str) -> bytes:
    """The fingerprint of the weights that vLLM serves as `served`. Raises ModelError, or
    SettingsError where that names no directory: a name on a hub says nothing of its content."""
    directory = Path(settings.model.path or served).expanduser()
    if not directory.is_dir():
        raise SettingsError(
            f"the weights of {served} cannot be told from others: it is no directory",
            key="model.path",
            source="PagodaTier",
            remedy="serve a local directory, or name the one it is loaded from as model.path",
        )
    cache = user_directory("XDG_CACHE_HOME", ".cache", os.environ) / "pagoda" / "fingerprints"
    return weights_fingerprint(directory, mode=settings.model.fingerprint, fallback=cache).digest


def store_of(settings: Settings, *, chunk_bytes: int, chunks: int, observer: Observer) -> Store:
    """Open the tiers. Raises TierError, such as DirectoryLocked when another engine has one."""
    executor = ThreadExecutor(load_threads=settings.drive.io_threads, store_threads=_STORE_THREADS)
    runtime = Runtime(executor=executor, observer=telling(observer))
    plan = store_plan(settings, block_bytes=chunk_bytes, device_blocks=chunks)
    return open_store(plan, runtime)


def engine_config() -> Any:
    """The VllmConfig of the connector that is being built: a tier is given a digest of it that
    lacks what the model's arithmetic depends on. Raises PagodaError when nobody above has it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        found = frame.f_locals.get("vllm_config")
        if hasattr(found, "model_config") and hasattr(found, "cache_config"):
            return found
        frame = frame.f_back
    raise PagodaError(
        "PagodaTier was not built by an OffloadingConnector: vLLM's configuration is not known",
        remedy="use it as a secondary tier of OffloadingConnector",
    )
