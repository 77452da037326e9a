"""One frozen tree of settings from defaults, TOML, PAGODA_* variables and flags.

resolved = load(flags={"drive.capacity": "8GiB"})
resolved.settings.drive.capacity        # 8589934592
str(resolved.origins["drive.capacity"]) # "--drive-capacity"
"""

from pagoda.settings.load import Resolved, is_loopback, load, load_file, resolve
from pagoda.settings.sources import Layer, Origin, Rank, mapping_layer
from pagoda.settings.tree import (
    Drive,
    Engine,
    Host,
    Log,
    Model,
    Server,
    Settings,
    Store,
)

__all__ = [
    "Drive",
    "Engine",
    "Host",
    "Layer",
    "Log",
    "Model",
    "Origin",
    "Rank",
    "Resolved",
    "Server",
    "Settings",
    "Store",
    "is_loopback",
    "load",
    "load_file",
    "mapping_layer",
    "resolve",
]
