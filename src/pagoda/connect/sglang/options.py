"""What stands in `--hicache-storage-backend-extra-config`, checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pagoda.connect.entries import Entries

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
    entries = Entries(whose=WHOSE, source="--hicache-storage-backend-extra-config", content=entry)
    entries.require_known(_OURS, _SGLANGS)
    return Options(
        settings=entries.tree("settings"),
        config=entries.file("config"),
        salt=entries.text("salt"),
        kv_events=entries.text("kv_events"),
        each_rank_writes=entries.flag("each_rank_writes"),
        in_place=bool(entry.get("interface_v1", 0)),
    )
