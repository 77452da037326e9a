"""What stands in `--hicache-storage-backend-extra-config`, checked once."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pagoda.core.errors import SettingsError

WHOSE = "PagodaStorage"
_OURS = ("settings", "config", "salt", "kv_events", "each_rank_writes")
# What SGLang reads from the same entry, or has put there.
_SGLANGS = (
    "backend_name",
    "module_path",
    "class_name",
    "interface_v1",
    "allocator",
    "file_storage_path",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`settings` is a tree of Pagoda's settings, `config` a file of them, `salt` parts tenants that
    must not share, `kv_events` is the address that events of pages are published at, and with
    `each_rank_writes` ranks that hold the same KV all store it; `in_place` says that SGLang hands
    over addresses, not tensors."""

    settings: Mapping[str, object] = field(default_factory=dict)
    config: str | None = None
    salt: str = ""
    kv_events: str = ""
    each_rank_writes: bool = False
    in_place: bool = False


def options_of(entry: Mapping[str, Any] | None) -> Options:
    """The options in an extra configuration. Raises SettingsError."""
    entry = entry or {}
    for name in entry:
        if name not in _OURS + _SGLANGS:
            near = difflib.get_close_matches(name, _OURS, n=1)
            raise _bad(
                f"unknown entry {name!r}",
                name,
                f"did you mean {near[0]}?" if near else f"there is {', '.join(_OURS)}",
            )
    settings, config = entry.get("settings", {}), entry.get("config")
    if not isinstance(settings, Mapping):
        raise _bad("settings is no tree", "settings", 'write {"drive": {"path": …}}')
    if config is not None and not isinstance(config, str):
        raise _bad("config is no path", "config", "name a file of settings")
    each = entry.get("each_rank_writes", False)
    if not isinstance(each, bool):
        raise _bad("each_rank_writes is neither true nor false", "each_rank_writes", "write true")
    return Options(
        settings=settings,
        config=config,
        salt=_text(entry, "salt"),
        kv_events=_text(entry, "kv_events"),
        each_rank_writes=each,
        in_place=bool(entry.get("interface_v1", 0)),
    )


def _text(entry: Mapping[str, Any], name: str) -> str:
    value = entry.get(name, "")
    if not isinstance(value, str):
        raise _bad(f"{name} is no text", name, "put it in quotation marks")
    return value


def _bad(message: str, name: str, remedy: str) -> SettingsError:
    return SettingsError(
        f"{WHOSE}: {message}",
        key=name,
        source="--hicache-storage-backend-extra-config",
        remedy=remedy,
    )
