"""What stands for PagodaTier in `secondary_tiers`, checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pagoda.connect.entries import Entries

WHOSE = "PagodaTier"
_OURS = ("settings", "config", "salt", "enable_kv_events", "metrics_port")
# What vLLM reads from the same entry, and hands on or not.
_VLLMS = ("type", "module_path", "backpressure")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`settings` is a tree of Pagoda's settings, `config` a file of them, `salt` parts tenants that
    must not share, `kv_events` says that routers are told, and `metrics_port` is where Pagoda's own
    metrics are shown, 0 for nowhere."""

    settings: Mapping[str, object]
    config: str | None
    salt: str
    kv_events: bool
    metrics_port: int


def options_of(entry: Mapping[str, Any]) -> Options:
    """The options in an entry. Raises SettingsError."""
    entries = Entries(whose=WHOSE, source="secondary_tiers", content=entry)
    entries.require_known(_OURS, _VLLMS)
    return Options(
        settings=entries.tree("settings"),
        config=entries.file("config"),
        salt=entries.text("salt"),
        kv_events=entries.flag("enable_kv_events"),
        metrics_port=entries.port("metrics_port"),
    )
