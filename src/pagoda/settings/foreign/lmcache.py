"""LMCache's configuration (its YAML, or JSON of the same keys), key by key."""

from __future__ import annotations

from collections.abc import Mapping

from pagoda.settings.foreign.translation import (
    OFF,
    UNKNOWN,
    Fate,
    Outcome,
    Rule,
    Translation,
    changed,
    is_off,
    maps,
    missing,
    needless,
)
from pagoda.settings.foreign.values import (
    OWN,
    is_on,
    no_keys,
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
_STATISTICS = missing("metrics count hits and evictions, not the unique blocks that were asked for")
_LOOKUP = needless("look-ups need no process of their own; a shared store has remote.deadline")
_PINS = needless("a block is held only while it is read or written")
_PLUGIN = missing("a tier of your own implements Pagoda's tier port")
_PLACE = missing("blocks go to every tier that has a size, and come from the fastest that has them")
_HIDDEN = missing("only keys and values are cached")
_MARU = missing("there is no tier in CXL memory")


def _local_cpu(value: object) -> Outcome:
    if is_on(value):
        return needless("memory is a tier unless host.capacity is 0")
    return maps("host.capacity", "0B", "no tier in memory")


def _disk(value: object) -> Outcome:
    if is_off(value):
        return maps("drive.path", "off", "no tier on drives")
    paths = [path_of(one) for one in (value.split(",") if isinstance(value, str) else [value])]
    if not all(paths):
        raise ValueError("is not a path")
    note = f"a directory {OWN} below it, so that LMCache's own files stay as they are; none is read"
    return maps("drive.path", ",".join(map(own_directory, paths)), note)


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


def answers(*, cached: bool) -> Outcome:
    """Of a switch that says whether answers are cached there."""
    note = "answers are cached as prompts are"
    return needless(note) if cached else Outcome(Fate.CHANGED, f"{note}, there they are not")


_PD_SWITCHES = ("enable_pd", "enable_xpyd")
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
    "save_decode_cache": lambda value: answers(cached=not is_off(value)),
    "save_unfull_chunk": missing("only whole blocks are stored"),
    "use_layerwise": missing("a block holds all layers"),
    "pre_caching_hash_algorithm": needless("blocks are named by SHA-256, no process has a seed"),
    "blocking_timeout_secs": _timeout,
    "py_enable_gc": needless("garbage collection is Python's own"),
    "cache_policy": policy_of,
    "numa_mode": missing("memory is placed by the operating system: use numactl"),
    "external_lookup_client": missing("look-ups go to the tiers themselves"),
    "priority_limit": lambda _: missing("requests have no priority"),  # 0 is a limit, too
    "min_retrieve_tokens": missing("every whole block that is found is used"),
    "gds_path": _DIRECT,
    "maru_path": _MARU,
    "reserve_local_cpu_size": needless("host.capacity is taken and nothing else"),
    "storage_plugins": _PLUGIN,
    "remote_storage_plugins": _PLUGIN,
    "external_backends": _PLUGIN,
    "pipelined_backend": needless("reads of several blocks run side by side"),
    "weka_path": missing("name the mounted directory as file:// in remote.url"),
    "lmcache_instance_id": needless("a directory's lock tells who uses it"),
    "enable_blending": _BLENDING,
    "enable_p2p": _P2P,
    "enable_controller": _CONTROLLER,
    "enable_pd": _PD,
    "enable_xpyd": _PD,
    "enable_nixl": _NIXL,
    "enable_nixl_storage": _NIXL,
    "enable_chunk_statistics": _STATISTICS,
    "enable_hidden_state_cache": _HIDDEN,
    "enable_kv_events": missing("events of the cache are Pagoda's metrics"),
    "lookup_timeout_ms": _LOOKUP,
    "lookup_server_worker_ids": _LOOKUP,
    "enable_scheduler_bypass_lookup": _LOOKUP,
    "pin_timeout_sec": _PINS,
    "pin_check_interval_sec": _PINS,
    "store_location": _PLACE,
    "retrieve_locations": _PLACE,
    "local_disk_path_sharding": needless("the drives are one pool"),
    "local_cpu_use_hugepages": needless("huge pages are asked for where the system has them"),
    "use_odirect": needless("O_DIRECT is used where the file system can"),
    "save_only_first_rank": needless("a block is stored once"),
    "extra_config": no_keys,
    "error_handling": needless("a block that is not well is computed"),
    "save_chunk_meta": needless("a block's header lies beside it"),
    "enable_async_loading": needless("blocks are read in threads of their own"),
}
# By how a key begins: its rule, and the switches of its feature, one of which must be on.
_BEGINNINGS: Mapping[str, tuple[Rule, tuple[str, ...]]] = {
    "enable_lazy_memory": (_LAZY, ()),
    "lazy_memory": (_LAZY, ()),
    "internal_api_server": (_API, ()),
    "histogram_bucket_": (needless("buckets of the metrics are fixed"), ()),
    "blend_": (_BLENDING, ("enable_blending",)),
    "p2p_": (_P2P, ("enable_p2p",)),
    "peer_": (_P2P, ("enable_p2p",)),
    "lookup_url": (_P2P, ("enable_p2p",)),
    "distributed_url": (_P2P, ("enable_p2p",)),
    "transfer_channel": (_P2P, ("enable_p2p", *_PD_SWITCHES)),
    "controller_": (_CONTROLLER, ("enable_controller",)),
    "lmcache_worker_": (_CONTROLLER, ("enable_controller",)),
    "pd_": (_PD, _PD_SWITCHES),
    "nixl_": (_NIXL, ("enable_nixl", "enable_nixl_storage", *_PD_SWITCHES)),
    "gds_": (_DIRECT, ("gds_path",)),
    "use_gds": (_DIRECT, ("gds_path",)),
    "cufile_": (_DIRECT, ("gds_path",)),
    "maru_": (_MARU, ("maru_path",)),
    "chunk_statistics_": (_STATISTICS, ("enable_chunk_statistics",)),
    "hidden_state": (_HIDDEN, ("enable_hidden_state_cache",)),
    "max_hidden_state": (_HIDDEN, ("enable_hidden_state_cache",)),
}


def is_mine(tree: Mapping[str, object]) -> bool:
    """Whether any key is LMCache's."""
    return any(_rule(key, {}) is not UNKNOWN for key in tree)


def translate(tree: Mapping[str, object], out: Translation, *, at: str = "") -> None:
    """Note every key of a configuration, whose names begin with `at` in the file; in vLLM's they
    may begin with "lmcache." as well. Raises BadValue, which names the key."""
    given = {_own(key): value for key, value in tree.items() if value is not None}
    extra = given.get("extra_config")
    switches = {**extra, **given} if isinstance(extra, Mapping) else given
    for key, value in tree.items():
        if _own(key) == "extra_config" and isinstance(value, Mapping) and value:
            for name, inner in value.items():
                out.apply(f"{at}{key}.{name}", inner, _rule(str(name), switches))
        else:
            out.apply(f"{at}{key}", value, _rule(_own(key), switches))
    if is_mine(given):
        _defaults(given, out)


def _own(key: object) -> str:
    return str(key).removeprefix("lmcache.")


def _rule(key: str, given: Mapping[str, object]) -> Rule:
    """What becomes of a key, beside those that are given."""
    if key == "max_local_cpu_size" and is_off(given.get("local_cpu", True)):
        return _STAGING
    if key in RULES:
        return RULES[key]
    for start, (rule, switches) in _BEGINNINGS.items():
        if key.startswith(start):
            return OFF if switches and all(is_off(given.get(one)) for one in switches) else rule
    return UNKNOWN


def _defaults(given: Mapping[str, object], out: Translation) -> None:
    """What follows from keys that are not there."""
    if "host.capacity" not in out.settings:
        out.settings["host.capacity"] = "5GiB"
        out.absent("max_local_cpu_size", "host.capacity", "LMCache's default is 5 GB")
    if "drive.path" not in out.settings:
        out.settings["drive.path"] = "off"
        out.absent("local_disk", "drive.path", "LMCache has no tier on drives then")
    elif not is_off(given.get("local_disk")) and "drive.capacity" not in out.settings:
        out.settings["drive.path"] = "off"
        note = "without a size above 0 LMCache keeps nothing on the drive"
        out.absent("max_local_disk_size", "drive.path", note)
