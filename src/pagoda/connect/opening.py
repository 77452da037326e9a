"""From a connector's entry in an engine's configuration to an open store.

Settings come from where they always come from: a file (`config` names one), PAGODA_* variables,
and, stronger than both, what stands in the engine's own configuration. The tier in memory is left
out: the engine's own stands there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from pagoda.core.errors import SettingsError
from pagoda.core.events import Observer
from pagoda.settings.load import resolve
from pagoda.settings.sources import (
    DEFAULT,
    Origin,
    Rank,
    environment_layer,
    file_layer,
    find_file,
    mapping_layer,
)
from pagoda.settings.storage import store_plan
from pagoda.settings.tree import Settings, user_directory
from pagoda.store.executor import Kind, Lane, Runtime, ThreadExecutor
from pagoda.store.fingerprint import weights_fingerprint
from pagoda.store.open import open_store
from pagoda.store.store import CheckPlan, Store
from pagoda.tiers.drive import PAGODA, Owner
from pagoda.watch.tell import telling

_STORE_THREADS = 1  # each tier writes one run at a time
_ADMISSION = "all"
# Of engines whose bits depend on what else they compute: who checks them has decided to. And none
# tells which requests have ended with which blocks, from which the other admissions would learn.
_DEFAULTS = {"check": {"rate": 0.0}, "drive": {"admission": _ADMISSION}}


def all_settings_of(
    own: Mapping[str, object],
    config: str | None,
    *,
    whose: str,
    environ: Mapping[str, str] = os.environ,
) -> Settings:
    """All that is set for a connector, called `whose` in messages. Raises SettingsError."""
    origin = Origin(Rank.FLAG, f"{whose}'s settings")
    found = find_file(config, environ=environ, directory=Path.cwd())
    layers = [mapping_layer(_DEFAULTS, DEFAULT), *([file_layer(*found)] if found else [])]
    return resolve([*layers, environment_layer(environ), mapping_layer(own, origin)]).settings


def settings_of(
    own: Mapping[str, object],
    config: str | None,
    *,
    whose: str,
    environ: Mapping[str, str] = os.environ,
) -> Settings:
    """The settings of the store below an engine's memory. Raises SettingsError, also when there
    is no tier to open."""
    settings = all_settings_of(own, config, whose=whose, environ=environ)
    if not settings.drive.directories(environ) and not settings.remote.url:
        raise SettingsError(
            f"{whose} has neither a drive nor a shared store",
            key="drive.path",
            source=f"{whose}'s settings",
            remedy="set drive.path to a directory, or remote.url to a shared store",
        )
    if settings.drive.admission != _ADMISSION:
        raise SettingsError(
            f"{whose} is not told which requests use a block: by drive.admission = "
            f"{settings.drive.admission} a full drive would take no other",
            key="drive.admission",
            source=f"{whose}'s settings",
            remedy=f"leave it out, or set it to {_ADMISSION} for this engine",
        )
    without = settings.host.model_copy(update={"capacity": 0})
    return settings.model_copy(update={"host": without})


def below(
    settings: Settings, directory: str, *, environ: Mapping[str, str] = os.environ
) -> Settings:
    """The settings with `directory` below each of the drives' paths."""
    paths = [str(path / directory) for path in settings.drive.directories(environ)]
    drive = settings.drive.model_copy(update={"path": ",".join(paths) if paths else "off"})
    return settings.model_copy(update={"drive": drive})


def weights_of(settings: Settings, served: str, *, whose: str) -> bytes:
    """The fingerprint of the weights that an engine serves as `served`. Raises ModelError, or
    SettingsError where that names no directory: a name on a hub says nothing of its content."""
    directory = Path(settings.model.path or served).expanduser()
    if not directory.is_dir():
        raise SettingsError(
            f"the weights of {served} cannot be told from others: it is no directory",
            key="model.path",
            source=whose,
            remedy="serve a local directory, or name the one it is loaded from as model.path",
        )
    cache = user_directory("XDG_CACHE_HOME", ".cache", os.environ) / "pagoda" / "fingerprints"
    return weights_fingerprint(directory, mode=settings.model.fingerprint, fallback=cache).digest


def store_of(  # noqa: PLR0913 - one keyword for each thing that an engine brings
    settings: Settings,
    *,
    owner: Owner = PAGODA,
    chunk_bytes: int,
    chunks: int,
    observer: Observer,
    wake: Callable[[], None] = lambda: None,
    check: CheckPlan | None = None,
) -> Store:
    """Open the tiers below an engine's memory of `chunks`, to be checked as planned; I/O threads
    call `wake` when there is something to take in. Raises TierError, such as DirectoryLocked when
    another engine has a directory: its message names that `owner`."""
    executor = ThreadExecutor(load_threads=settings.drive.io_threads, store_threads=_STORE_THREADS)
    runtime = Runtime(executor=executor, observer=telling(observer), wake=wake)
    plan = store_plan(
        settings, block_bytes=chunk_bytes, device_blocks=chunks, owner=owner, check=check
    )
    store = open_store(plan, runtime)
    for level in store.levels():  # a thread's start takes milliseconds: not in an engine's step
        for kind in (Kind.LOAD, Kind.STORE):
            executor.submit(Lane(level.name, kind), _nothing)
    return store


def _nothing() -> None:
    """The first job of a lane: its threads start with it."""
