"""vLLM's --kv-transfer-config: its offloading tiers, LMCache's connector, several connectors."""

from __future__ import annotations

from collections.abc import Mapping

from pagoda.settings.foreign import lmcache
from pagoda.settings.foreign.translation import (
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
    no_keys,
    own_directory,
    path_of,
    policy_of,
    size_of_bytes,
)

NAME = "vLLM"
EXTRA = "kv_connector_extra_config"
_TRANSFER = needless("it concerns the transfer between engines")
_OFFLOADING = ("OffloadingConnector",)
_LMCACHE = ("LMCacheConnectorV1", "LMCacheConnector", "LMCacheMPConnector")
_EVENTS = missing("events of the cache are Pagoda's metrics")


def _role(value: object) -> Outcome:
    if value == "kv_both":
        return needless("every engine stores and restores")
    return missing("prefill and decode are not separated here")


_TOP: Mapping[str, Rule] = {
    "kv_role": _role,
    "kv_rank": _TRANSFER,
    "kv_parallel_size": _TRANSFER,
    "kv_buffer_device": _TRANSFER,
    "kv_buffer_size": _TRANSFER,
    "kv_ip": _TRANSFER,
    "kv_port": _TRANSFER,
    "engine_id": needless("a directory's lock tells who uses it"),
    "kv_connector_module_path": needless("it says where the connector's code lies"),
    "kv_load_failure_policy": needless("a block that cannot be loaded is computed, always"),
    "enable_permute_local_kv": _TRANSFER,
    EXTRA: no_keys,
}


def _threshold(value: object) -> Outcome:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("is not a number of uses")
    if value < 2:
        return needless("every block goes to memory")
    note = "there it keeps blocks out of memory, here off drives, and once those are full"
    return changed("drive.admission", "twice", note)


_OFFLOAD: Mapping[str, Rule] = {
    "spec_name": needless("the tiers are those that have a size here"),
    "spec_module_path": needless("it says where the spec's code lies"),
    "cpu_bytes_to_use": lambda value: maps(
        "host.capacity", size_of_bytes(value), "of the whole node, over all workers, there"
    ),
    "block_size": needless("blocks have the engine's size: 16 tokens in `pagoda serve`"),
    "blocks_per_chunk": needless("a block is a unit of its own in every tier"),
    "eviction_policy": policy_of,
    "cache_policy_module_path": missing("policies are part of Pagoda"),
    "store_threshold": _threshold,
    "max_tracker_size": needless("what is remembered of uses grows with the tiers"),
    "offload_prompt_only": lambda value: lmcache.answers(cached=is_off(value)),
    "secondary_tiers": no_keys,
    "self_describing_kv_events": _EVENTS,
}


def _endpoint(value: object) -> Outcome:
    if "@" in _text(value):
        raise ValueError("is not an address: user and password are keys of their own")
    return Outcome(Fate.MAPPED, "in remote.endpoint")


_COMMON: Mapping[str, Rule] = {"enable_kv_events": _EVENTS, "locality": _EVENTS}
_OBJECT_STORE: Mapping[str, Rule] = {
    "bucket": Outcome(Fate.MAPPED, "with prefix, in remote.url"),
    "endpoint_override": _endpoint,
    "scheme": Outcome(Fate.MAPPED, "in remote.endpoint"),
    "region": lambda value: maps("remote.region", _text(value)),
    "ca_bundle": lambda value: maps("remote.ca_file", path_of(value)),
    "access_key": missing("not copied: write it into remote.user, or leave it to AWS_…"),
    "secret_key": missing("not copied: write it into a file that remote.password_file names"),
    "session_token": missing("leave it to the environment: AWS_SESSION_TOKEN"),
}


def is_mine(tree: Mapping[str, object]) -> bool:
    """Whether it is a kv-transfer-config."""
    return "kv_connector" in tree


def translate(tree: Mapping[str, object], out: Translation) -> None:
    """Note every key of a kv-transfer-config, and what follows from keys that are not there.
    Raises BadValue, which names the key."""
    _connector_keys(tree, out, at="")
    _defaults(out)


def _connector_keys(tree: Mapping[str, object], out: Translation, *, at: str) -> None:
    connector = tree.get("kv_connector")
    for key, value in tree.items():
        if key == "kv_connector":
            out.apply(f"{at}{key}", value, _connector(connector))
        elif key == EXTRA and isinstance(value, Mapping) and value:
            _extra(connector, value, out, at=f"{at}{EXTRA}.")
        else:
            out.apply(f"{at}{key}", value, _TOP.get(key, UNKNOWN))


def _defaults(out: Translation) -> None:
    """Tiers that the file does not name are off."""
    if not any(line.key.endswith("kv_connector") and line.value in _OFFLOADING
               for line in out.lines):  # fmt: skip
        return
    if "drive.path" not in out.settings:
        out.settings["drive.path"] = "off"
        out.absent("secondary_tiers", "drive.path", "vLLM keeps nothing on drives then")
    else:
        note = "vLLM's files grow without a limit; say how much each drive may hold"
        out.left_to_default("secondary_tiers[].capacity", "drive.capacity", note)


def _connector(value: object) -> Outcome:
    if value in _OFFLOADING:
        return needless("its tiers are Pagoda's: memory, drives, a shared store")
    if value in _LMCACHE:
        return needless("its settings are in LMCache's own YAML: import that file as well")
    if value == "MultiConnector":
        return needless("each of its connectors is judged below")
    return missing("it is no cache: it moves KV between engines, and stays the engine's")


def _extra(connector: object, extra: Mapping[str, object], out: Translation, *, at: str) -> None:
    if connector in _LMCACHE:
        lmcache.translate(extra, out, at=at)
        return
    offloads = connector in _OFFLOADING
    for key, value in extra.items():
        name = f"{at}{key}"
        if connector == "MultiConnector" and key == "connectors" and isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, Mapping):
                    _connector_keys(item, out, at=f"{name}[{index}].")
                else:
                    out.apply(f"{name}[{index}]", item, UNKNOWN)
        elif offloads and key == "secondary_tiers" and isinstance(value, list) and value:
            for index, tier in enumerate(value):
                _tier(tier, out, at=f"{name}[{index}]")
        else:
            out.apply(name, value, _OFFLOAD.get(key, UNKNOWN) if offloads else UNKNOWN)


def _tier(tier: object, out: Translation, *, at: str) -> None:
    if not isinstance(tier, Mapping):
        out.apply(at, tier, UNKNOWN)
        return
    kind = tier.get("type")
    if kind == "fs":
        _file_tier(tier, out, at=at)
    elif kind == "obj":
        _object_tier(tier, out, at=at)
    else:
        no_tier = missing("there is no tier of that type")
        for key, value in tier.items():
            out.apply(f"{at}.{key}", value, no_tier)


def _file_tier(tier: Mapping[str, object], out: Translation, *, at: str) -> None:
    """Directories add up to a pool, as drives do; threads read and write here."""

    def directory(value: object) -> Outcome:
        path = path_of(value)
        if not path or "," in path:
            raise ValueError("is not a directory without commas in its name")
        known = [p for p in out.settings.get("drive.path", "").split(",") if p not in ("", "off")]
        note = f"a directory {OWN} below it: vLLM's files stay as they are; none is read"
        return maps("drive.path", ",".join([*known, own_directory(path)]), note)

    def threads(value: object) -> Outcome:
        count = _count(value) + int(out.settings.get("drive.io_threads", "0"))
        note = "here one number for reads and writes together"
        return changed("drive.io_threads", str(max(1, min(256, count))), note)

    rules: dict[str, Rule] = {
        "type": needless("a directory in drive.path"),
        "root_dir": directory,
        "n_read_threads": threads,
        "n_write_threads": threads,
        **_COMMON,
    }
    for key, value in tier.items():
        out.apply(f"{at}.{key}", value, rules.get(key, UNKNOWN))


def _object_tier(tier: Mapping[str, object], out: Translation, *, at: str) -> None:
    rules: dict[str, Rule] = {
        "type": needless("the scheme of remote.url"),
        "prefix": Outcome(Fate.MAPPED, "in remote.url"),
        "io_threads": lambda value: maps(
            "remote.connections", str(max(1, min(256, _count(value))))
        ),
        **_COMMON,
    }
    for key, value in tier.items():
        if key == "store_config" and isinstance(value, Mapping):
            for name, inner in value.items():
                out.apply(f"{at}.{key}.{name}", inner, _OBJECT_STORE.get(name, UNKNOWN))
        else:
            out.apply(f"{at}.{key}", value, rules.get(key, UNKNOWN))
    store = tier.get("store_config")
    bucket = store.get("bucket") if isinstance(store, Mapping) else None
    if isinstance(store, Mapping) and isinstance(bucket, str) and bucket:
        prefix = str(tier.get("prefix") or "").strip("/")
        out.settings["remote.url"] = f"s3://{bucket}{f'/{prefix}' if prefix else ''}"
        if endpoint := store.get("endpoint_override"):
            out.settings["remote.endpoint"] = f"{store.get('scheme') or 'http'}://{endpoint}"


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("is not a text")  # noqa: TRY004 - a bad value of a file
    return value


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("is not a number of threads")
    return value
