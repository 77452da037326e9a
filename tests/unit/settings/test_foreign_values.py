"""Values of other caches' configurations: secrets, switches, wrong kinds, and what is off."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pagoda.core.errors import SettingsError
from pagoda.settings.foreign import Fate, Line, Translation, import_file
from pagoda.settings.foreign.lmcache import RULES

SECRET = "hush"


def read(path: Path, content: str) -> Translation:
    """What a file with that content means."""
    (path / "file").write_text(content)
    return import_file(path / "file")


def lines(path: Path, content: str) -> dict[str, Line]:
    """The line of each key, by the last part of its name."""
    return {line.key.rpartition(".")[2]: line for line in read(path, content).lines}


@pytest.mark.parametrize("sign", ["/", "?", "#", "@x/", "/@"])
@pytest.mark.parametrize("scheme", ["redis", "valkey", "s3", "file"])
def test_a_password_that_breaks_its_url_is_told_without_it(
    tmp_path: Path, scheme: str, sign: str
) -> None:
    """What stands behind a sign that ends a host would go into the settings as a path."""
    with pytest.raises(SettingsError, match="remote_url is not a URL") as told:
        read(tmp_path, f'remote_url: "{scheme}://user:12{sign}34{SECRET}@h:1"')
    assert SECRET not in str(told.value)


@pytest.mark.parametrize("address", ["redis://user:hush/x@h", "redis://h:hush", "redis:///hush@h"])
def test_an_address_without_a_host_or_with_a_bad_port_is_not_shown(
    tmp_path: Path, address: str
) -> None:
    """What stands there may be a password; Python's own error would show it."""
    with pytest.raises(SettingsError, match="is not a URL") as told:
        read(tmp_path, f"remote_url: '{address}'")
    assert SECRET not in str(told.value)


@pytest.mark.parametrize(
    "text",
    [
        f"remote_url: 'redis://h:6379/2?password={SECRET}'",
        f"remote_url: 'redis://h:6379/2#password={SECRET}'",
        f"remote_url: user:{SECRET}@h:6379",
        f"remote_url: {SECRET}@h:6379",
        f"remote_url: 'mooncakestore://u:{SECRET}@h,v:{SECRET}@i'",
        f"remote_url: 'redis://u:{SECRET}@h'",
        f"extra_config: {{s3: {{secret_key: {SECRET}}}}}",
        f"extra_config: {{s3: {{name: {{deep: [{{password: {SECRET}}}]}}}}}}",
        f"novel: [{{password: {SECRET}}}]",
        f"novel: [/a@b, '/a,redis://u:{SECRET}@h']",
        f"local_disk: 'redis://u:{SECRET}@h'\nmax_local_disk_size: 1",
        f"novel: 'host=h password={SECRET}, more'",
        f'novel: \'{{"api_key": "{SECRET}"}}\'',
        f"novel: 'Authorization: Bearer {SECRET}'",
        f"novel: {{'redis://u:{SECRET}@h': 1}}",
        *(f"{name}: {SECRET}" for name in ("api_key", "auth_token", "redis_passwd", "ssl-key")),
        *(f"{name}: [{SECRET}]" for name in ("access_key", "tokens.token", "aws_access_key_id")),
        f"aws_credentials: {{profile: {SECRET}}}",
        f"pem: '-----BEGIN PRIVATE KEY----- {SECRET}'",
        f"api_tokens: [{SECRET}]",
        f"password: !!int {SECRET}",
        f"password: !{SECRET}",
        f"password: {{[{SECRET}]: 1}}",
        f"{{? {{password: {SECRET}}} : 2}}",
    ],
)
def test_no_secret_is_shown(tmp_path: Path, text: str) -> None:
    """Told by its name, at any depth, or by the shape of what it stands in."""
    try:
        found = read(tmp_path, f"chunk_size: 1\n{text}" if text[0] != "{" else text)
    except SettingsError as error:
        shown = str(error)
    else:
        shown = json.dumps(found.as_dict()) + found.toml()
        assert "********" in shown
    assert SECRET not in shown


def test_a_numeric_password_is_masked_and_other_values_are_not(tmp_path: Path) -> None:
    """Numbers of tokens, paths with an @ and a separator of blending are no secrets."""
    texts = {"blend_special_str": " # # ", "gds_path": "/mnt/a@b", "x": "fs:///mnt/a@b"}
    tree = {"password": 12345678, "min_retrieve_tokens": 5, **texts}
    found = lines(tmp_path, json.dumps(tree))
    assert found["password"].value == "********"
    assert found["min_retrieve_tokens"].value == "5"
    assert {key: found[key].value for key in texts} == texts


def test_an_object_stores_endpoint_takes_no_password(tmp_path: Path) -> None:
    """It would be copied into remote.endpoint."""
    tier = {"type": "obj", "store_config": {"bucket": "b", "endpoint_override": f"u:{SECRET}@h"}}
    extra = {"secondary_tiers": [tier]}
    tree = {"kv_connector": "OffloadingConnector", "kv_connector_extra_config": extra}
    with pytest.raises(SettingsError, match="endpoint_override") as told:
        read(tmp_path, json.dumps(tree))
    assert SECRET not in str(told.value)


KINDS = (
    *"null|0|1|-1|true|''|x|[]|[1]|{}|{a: 1}|{2020-01-01: 1}|2020-01-01|.inf|1e308".split("|"),
    *"'://'|[{}]|redis://|'redis://[::1'|!!set {a}|!!binary aGk=|'/a,'".split("|"),
    "1" + "0" * 400,
    "'1" + "0" * 400 + "'",
    "0x" + "f" * 5000,
)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[:20])
def test_a_value_of_any_kind_is_read_or_told(tmp_path: Path, kind: str) -> None:
    """For every key, of LMCache's and of vLLM's: nothing but a SettingsError is raised."""
    vllm = "kv_connector: OffloadingConnector\nkv_connector_extra_config: "
    files = [f"novel: 1\n{key}: {kind}" for key in [*RULES, "frobnicate"]]
    files += [f"kv_connector: {kind}", f"{vllm}{kind}", f"{vllm}{{secondary_tiers: {kind}}}"]
    for key in ("type", "root_dir", "n_read_threads", "io_threads", "prefix", "store_config"):
        for type_ in ("fs", "obj"):
            files.append(f"{vllm}{{secondary_tiers: [{{type: {type_}, {key}: {kind}}}]}}")
    for key in ("cpu_bytes_to_use", "store_threshold", "eviction_policy", "offload_prompt_only"):
        files.append(f"{vllm}{{{key}: {kind}}}")
    files.append(f"kv_connector: LMCacheConnectorV1\nkv_connector_extra_config: {kind}")
    for text in files:
        try:
            read(tmp_path, text)
        except SettingsError:
            continue


@pytest.mark.parametrize("value", ["1" + "0" * 400, "0x" + "f" * 400, "1e99", ".inf"])
@pytest.mark.parametrize(
    "key", ["max_local_cpu_size", "max_local_disk_size", "blocking_timeout_secs"]
)
def test_a_number_beyond_all_bounds_names_its_key(tmp_path: Path, key: str, value: str) -> None:
    """Whether Python can make a float of it or not."""
    with pytest.raises(SettingsError, match=f"line 2: {key} is ") as told:
        read(tmp_path, f"chunk_size: 1\n{key}: {value}")
    assert told.value.key == key


def test_keys_that_are_no_text_are_shown(tmp_path: Path) -> None:
    """A date, a number and null, in a mapping that is a value."""
    found = lines(tmp_path, "chunk_size: 1\nfrobnicate: {2020-01-01: 3, 1: 2, null: 0}")
    assert json.loads(found["frobnicate"].value) == {"2020-01-01": 3, "1": 2, "None": 0}


@pytest.mark.parametrize("text", ["!!bool 7", "!!int ''", "!!timestamp x", "{[1]: 2}"])
def test_a_value_that_yaml_cannot_make_is_told(tmp_path: Path, text: str) -> None:
    """Whatever its reader raises."""
    with pytest.raises(SettingsError, match="is not valid YAML"):
        read(tmp_path, f"chunk_size: {text}")


@pytest.mark.parametrize("on", ["1", "'1'", "true", "yes", "'on'", "'True'"])
@pytest.mark.parametrize("off", ["0", "'0'", "false", "no", "'off'", "'False'", "''"])
def test_switches(tmp_path: Path, on: str, off: str) -> None:
    """However LMCache's users write them."""
    assert read(tmp_path, f"local_cpu: {on}").settings["host.capacity"] != "0B"
    assert read(tmp_path, f"local_cpu: {off}").settings["host.capacity"] == "0B"
    assert lines(tmp_path, f"enable_p2p: {on}")["enable_p2p"].fate is Fate.MISSING
    assert lines(tmp_path, f"enable_p2p: {off}")["enable_p2p"].fate is Fate.NEEDLESS


@pytest.mark.parametrize(
    "keys",
    [
        {"local_cpu": False, "max_local_cpu_size": 20, "local_disk": "/kv"},
        {"max_local_cpu_size": 20, "local_disk": "/kv", "local_cpu": "off"},
        {"local_disk": "/kv", "max_local_disk_size": 3},
        {"remote_url": "redis://h"},
        {"extra_config": {"use_odirect": True}},
    ],
    ids=str,
)
def test_lmcaches_keys_mean_the_same_in_vllms_file(tmp_path: Path, keys: dict[str, object]) -> None:
    """Whether they stand in LMCache's own file or behind "lmcache." in its connector's."""
    extra = {f"lmcache.{key}": value for key, value in keys.items()}
    tree = {"kv_connector": "LMCacheConnectorV1", "kv_connector_extra_config": extra}
    own, there = read(tmp_path, json.dumps(keys)), read(tmp_path, json.dumps(tree))
    assert there.settings == own.settings
    fates = [[line.fate for line in found.lines if line.value != "LMCacheConnectorV1"]
             for found in (own, there)]  # fmt: skip
    assert fates[0] == fates[1]


def test_another_connectors_drive_is_left_alone(tmp_path: Path) -> None:
    """LMCache's defaults, in either order, take no drive from vLLM's own tiers."""
    tiers = [{"type": "fs", "root_dir": "/a"}]
    own = {"kv_connector": "OffloadingConnector",
           "kv_connector_extra_config": {"secondary_tiers": tiers}}  # fmt: skip
    other = {"kv_connector": "LMCacheConnectorV1",
             "kv_connector_extra_config": {"lmcache.max_local_cpu_size": 1}}  # fmt: skip
    for connectors in ([own, other], [other, own]):
        inner = {"connectors": connectors}
        tree = {"kv_connector": "MultiConnector", "kv_connector_extra_config": inner}
        assert read(tmp_path, json.dumps(tree)).settings["drive.path"] == "/a/pagoda"


@pytest.mark.parametrize(
    ("there", "here"),
    [
        ("redis://[::1]:6379", "redis://[::1]:6379"),
        ("valkey://u:p@[fe80::1]/2", "redis://[fe80::1]/2"),
        ("REDIS://h:0", "redis://h:0"),
        ("fs:///mnt/a@b", "file:///mnt/a@b"),
    ],
)
def test_addresses_keep_what_they_are_made_of(tmp_path: Path, there: str, here: str) -> None:
    """Brackets, a port and a path."""
    assert read(tmp_path, f"remote_url: '{there}'").settings["remote.url"] == here


def test_each_of_several_directories_has_pagodas_below_it(tmp_path: Path) -> None:
    """A comma parts directories, there and here."""
    found = read(tmp_path, "local_disk: '/a,/b/'\nmax_local_disk_size: 1")
    assert found.settings["drive.path"] == "/a/pagoda,/b/pagoda"
    with pytest.raises(SettingsError, match="local_disk is not a path"):
        read(tmp_path, "local_disk: '/a,'")


OFF = """
enable_blending: false
blend_recompute_ratios: 0.15
pd_bidirectional: false
pd_role: null
p2p_host: h
transfer_channel: nixl
gds_path: null
use_gds: true
gds_buffer_size: 9
numa_mode: null
storage_plugins: []
priority_limit: null
min_retrieve_tokens: 0
nixl_buffer_size: 0
controller_pull_url: h:1
lmcache_worker_ports: [1]
max_local_cpu_size: null
remote_url: null
extra_config: null
"""


def test_what_is_off_or_null_is_not_missing(tmp_path: Path) -> None:
    """Nothing is lost by it, nor by the keys of a feature whose switch is off or absent."""
    found = [line for line in read(tmp_path, OFF).lines if line.value != "(absent)"]
    assert {line.key: line.fate for line in found if line.fate is not Fate.NEEDLESS} == {}
    assert lines(tmp_path, f"{OFF}\nnovel: null")["novel"].fate is Fate.UNKNOWN
    assert lines(tmp_path, "priority_limit: 0")["priority_limit"].fate is Fate.MISSING


@pytest.mark.parametrize(
    ("switch", "key"),
    [
        ("enable_blending: true", "blend_recompute_ratios: 0.15"),
        ("enable_xpyd: 1", "pd_role: sender"),
        ("enable_p2p: 'on'", "p2p_host: h"),
        ("enable_controller: true", "controller_pull_url: h"),
        ("gds_path: /a", "gds_buffer_size: 9"),
        ("extra_config: {enable_nixl_storage: true}", "nixl_backends: [POSIX]"),
    ],
)
def test_what_is_on_is_missing_with_its_switch(tmp_path: Path, switch: str, key: str) -> None:
    """In any order."""
    for text in (f"{switch}\n{key}", f"{key}\n{switch}"):
        found = [line for line in read(tmp_path, text).lines if line.value != "(absent)"]
        assert {line.fate for line in found} == {Fate.MISSING}


def test_what_is_cached_of_answers_is_told_to_change(tmp_path: Path) -> None:
    """Where the other cache kept none of them."""
    for value, fate in (("false", Fate.CHANGED), ("true", Fate.NEEDLESS)):
        assert lines(tmp_path, f"save_decode_cache: {value}")["save_decode_cache"].fate is fate
    start = "kv_connector: OffloadingConnector\nkv_connector_extra_config: {offload_prompt_only: "
    for value, fate in (("true", Fate.CHANGED), ("false", Fate.NEEDLESS)):
        assert lines(tmp_path, f"{start}{value}}}")["offload_prompt_only"].fate is fate


def test_keys_that_lmcache_has_are_known(tmp_path: Path) -> None:
    """Each with a reason."""
    extra = {"use_odirect": True, "save_only_first_rank": True}
    names = (
        "lookup_timeout_ms controller_pull_url lmcache_worker_ports enable_xpyd pin_timeout_sec "
        "local_cpu_use_hugepages use_gds gds_buffer_size remote_storage_plugins store_location "
        "enable_kv_events enable_chunk_statistics"
    ).split()
    found = lines(tmp_path, json.dumps({**dict.fromkeys(names, 1), "extra_config": extra}))
    for name in [*names, *extra]:
        assert found[name].fate in (Fate.NEEDLESS, Fate.MISSING)
        assert found[name].note
