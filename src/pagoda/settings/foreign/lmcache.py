"""LMCache's configuration (its YAML, or JSON of the same keys), key by key."""

from __future__ import annotations

from collections.abc import Mapping

from pagoda.settings.foreign.translation import (
    UNKNOWN,
    Outcome,
    Rule,
    Translation,
    changed,
    maps,
    missing,
    needless,
)
from pagoda.settings.foreign.values import (
    OWN,
    is_on,
    own_directory,
    path_of,
    policy_of,
    remote_of,
    seconds_of,
    size_of_gib,
)

NAME = "LMCache"
_P2P = missing("nodes share blocks through a store (remote.url), not among themselves")
_PD = missing("prefill and decode are not separated here; keep the engine's own connector for it")
_BLENDING = missing("only prefixes are reused: blended text would change answers")
_LAZY = needless("memory is taken when it is first used")
_CONTROLLER = missing("there is no controller: `pagoda cache` asks each server")
_API = needless("`pagoda serve` has /cache and /metrics, behind the same API key")
_STAGING = missing("local_cpu is off, and LMCache only stages blocks in so much memory")
_DIRECT = missing("GPUDirect Storage is not used: blocks go through memory")
_NIXL = missing("NIXL is not used")


def _local_cpu(value: object) -> Outcome:
    if is_on(value):
        return needless("memory is a tier unless host.capacity is 0")
    return maps("host.capacity", "0B", "no tier in memory")


def _disk(value: object) -> Outcome:
    path = path_of(value)
    if not path:
        return maps("drive.path", "off", "no tier on drives")
    note = f"a directory {OWN} below it, so that LMCache's own files stay as they are; none is read"
    return maps("drive.path", own_directory(path), note)


def _serde(value: object) -> Outcome:
    if value in (None, "naive"):
        return needless("blocks are stored as they are unless remote.codec says otherwise")
    return missing("lossy compression would change answers; remote.codec = lossless compresses")


def _disk_size(value: object) -> Outcome:
    text = size_of_gib(value)
    if text == "0B":
        return needless("0 there means that nothing is kept")
    return changed(
        "drive.capacity", text, "the slab of each drive is never larger, and is kept over restarts"
    )


def _timeout(value: object) -> Outcome:
    note = "there it bounds any blocking call, here how long a block may take to come back"
    return changed("store.restore_deadline", seconds_of(value), note)


def _when_on(outcome: Outcome) -> Rule:
    """What becomes of a switch: nothing is lost by one that is off."""
    return lambda value: outcome if is_on(value) else needless("it is off")


RULES: Mapping[str, Rule] = {
    "chunk_size": needless("blocks have the engine's size: 16 tokens in `pagoda serve`"),
    "local_cpu": _local_cpu,
    "max_local_cpu_size": lambda value: maps(
        "host.capacity", size_of_gib(value), "GB there is 1024³ bytes"
    ),
    "local_disk": _disk,
    "max_local_disk_size": _disk_size,
    "remote_url": remote_of,
    "remote_serde": _serde,
    "save_decode_cache": needless("answers are cached as prompts are"),
    "save_unfull_chunk": _when_on(missing("only whole blocks are stored")),
    "use_layerwise": _when_on(missing("a block holds all layers")),
    "pre_caching_hash_algorithm": needless("blocks are named by SHA-256, no process has a seed"),
    "blocking_timeout_secs": _timeout,
    "py_enable_gc": needless("garbage collection is Python's own"),
    "cache_policy": policy_of,
    "numa_mode": missing("memory is placed by the operating system: use numactl"),
    "external_lookup_client": missing("look-ups go to the tiers themselves"),
    "priority_limit": missing("requests have no priority"),
    "min_retrieve_tokens": missing("every whole block that is found is used"),
    "gds_path": _DIRECT,
    "cufile_buffer_size": _DIRECT,
    "reserve_local_cpu_size": needless("host.capacity is taken and nothing else"),
    "storage_plugins": missing("a tier of your own implements Pagoda's tier port"),
    "pipelined_backend": needless("reads of several blocks run side by side"),
    "weka_path": missing("name the mounted directory as file:// in remote.url"),
    "lmcache_instance_id": needless("a directory's lock tells who uses it"),
    "controller_url": _CONTROLLER,
    "lmcache_worker_port": _CONTROLLER,
    "lookup_url": _P2P,
    "distributed_url": _P2P,
    "peer_init_ports": _P2P,
    "peer_lookup_ports": _P2P,
    "transfer_channel": _P2P,
    "error_handling": needless("a block that is not well is computed"),
    "save_chunk_meta": needless("a block's header lies beside it"),
    "enable_async_loading": needless("blocks are read in threads of their own"),
}
_BEGINNINGS: Mapping[str, Rule] = {
    "enable_lazy_memory": _LAZY,
    "lazy_memory": _LAZY,
    "enable_blending": _when_on(_BLENDING),
    "blend_": _BLENDING,
    "enable_p2p": _when_on(_P2P),
    "p2p_": _P2P,
    "enable_controller": _when_on(_CONTROLLER),
    "enable_pd": _when_on(_PD),
    "pd_": _PD,
    "nixl_": _NIXL,
    "enable_nixl": _when_on(_NIXL),
    "internal_api_server": _API,
    "histogram_bucket_": needless("buckets of the metrics are fixed"),
}


def is_mine(tree: Mapping[str, object]) -> bool:
    """Whether any key is LMCache's."""
    return any(rule_of(key) is not UNKNOWN for key in tree)


def rule_of(key: str) -> Rule:
    """What becomes of a key."""
    if key in RULES:
        return RULES[key]
    found = (rule for start, rule in _BEGINNINGS.items() if key.startswith(start))
    return next(found, UNKNOWN)


def translate(tree: Mapping[str, object], out: Translation) -> None:
    """Note every key of a configuration. Raises BadValue, which names the key."""
    for key, value in tree.items():
        if key == "extra_config" and isinstance(value, Mapping):
            for name, inner in value.items():
                out.apply(f"extra_config.{name}", inner, rule_of(str(name)))
        elif key == "max_local_cpu_size" and not is_on(tree.get("local_cpu", True)):
            out.apply(key, value, _STAGING)
        else:
            out.apply(key, value, rule_of(key))
    _defaults(out)


def _defaults(out: Translation) -> None:
    """What follows from keys that are not there."""
    if "host.capacity" not in out.settings:
        out.settings["host.capacity"] = "5GiB"
        out.absent("max_local_cpu_size", "host.capacity", "LMCache's default is 5 GB")
    if "drive.path" not in out.settings:
        out.settings["drive.path"] = "off"
        out.absent("local_disk", "drive.path", "LMCache has no tier on drives then")
    elif out.settings["drive.path"] != "off" and "drive.capacity" not in out.settings:
        out.settings["drive.path"] = "off"
        note = "without a size above 0 LMCache keeps nothing on the drive"
        out.absent("max_local_disk_size", "drive.path", note)
