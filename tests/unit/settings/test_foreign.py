"""Configurations of LMCache and vLLM, read into settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.core.errors import SettingsError
from pagoda.settings import load_file
from pagoda.settings.foreign import Fate, Translation, import_file
from pagoda.settings.keys import keys_by_name

GIB = 1 << 30


def read(path: Path, content: object) -> Translation:
    """What a file with that content means."""
    file = path / "file"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return import_file(file)


def offloading(**extra: object) -> dict[str, Any]:
    """A kv-transfer-config of vLLM's own offloading."""
    return {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"cpu_bytes_to_use": GIB, **extra},
    }


LMCACHE = """
chunk_size: 256
local_cpu: true
max_local_cpu_size: 20
local_disk: "file:///mnt/nvme/kv/"   # a comment
max_local_disk_size: 100.5
remote_url: "valkey://user:hush@cache.local:6379"
remote_serde: cachegen
blocking_timeout_secs: 5
cache_policy: LFU
enable_p2p: true
enable_blending: false
extra_config: {p2p_socket_recv_timeout_ms: 30000, their_plugin: 1}
frobnicate: 3
"""


def test_lmcache_maps(tmp_path: Path) -> None:
    """Memory, drive and shared store; the password stays out of everything that is shown."""
    found = read(tmp_path, LMCACHE)
    assert found.settings == {
        "host.capacity": "20GiB",
        "host.policy": "lfu",
        "drive.path": "/mnt/nvme/kv/pagoda",
        "drive.capacity": "102912MiB",
        "remote.url": "redis://cache.local:6379",
        "store.restore_deadline": "5s",
    }
    fates = {line.key: line.fate for line in found.lines}
    assert fates["frobnicate"] == fates["extra_config.their_plugin"] == Fate.UNKNOWN
    assert fates["remote_serde"] == fates["enable_p2p"] == Fate.MISSING
    assert fates["enable_blending"] == Fate.NEEDLESS, "nothing is lost by what is off"
    assert fates["max_local_disk_size"] == Fate.CHANGED
    assert "hush" not in json.dumps(found.as_dict()) + found.toml()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("chunk_size: 256", {"host.capacity": "5GiB", "drive.path": "off"}),
        ("local_cpu: false\nmax_local_cpu_size: 7", {"host.capacity": "0B", "drive.path": "off"}),
        ("local_disk: /kv\nmax_local_cpu_size: 1", {"host.capacity": "1GiB", "drive.path": "off"}),
        ('{"max_local_cpu_size": 0.5}', {"host.capacity": "512MiB", "drive.path": "off"}),
        (
            "remote_url: mooncakestore://h:1\nmax_local_cpu_size: 1",
            {"host.capacity": "1GiB", "drive.path": "off"},
        ),
        (
            "remote_url: fs:///mnt/shared\nmax_local_cpu_size: 1",
            {"host.capacity": "1GiB", "drive.path": "off", "remote.url": "file:///mnt/shared"},
        ),
    ],
)
def test_what_lmcache_leaves_unsaid(tmp_path: Path, text: str, expected: dict[str, str]) -> None:
    """Its defaults hold, and tiers that it has not are off; a disk without a size keeps nothing."""
    assert read(tmp_path, text).settings == expected


def test_vllm_tiers_map(tmp_path: Path) -> None:
    """Two directories are one pool; an object store is a URL and an endpoint; secrets stay."""
    store = {
        "bucket": "kv",
        "endpoint_override": "minio:9000",
        "region": "eu",
        "secret_key": "hush",
    }
    tiers = [
        {"type": "fs", "root_dir": "/a", "n_read_threads": 8, "n_write_threads": 4},
        {"type": "fs", "root_dir": "/b/"},
        {"type": "obj", "store_config": store, "prefix": "x/", "io_threads": 6},
        {"type": "p2p", "port": 5710},
    ]
    found = read(
        tmp_path,
        offloading(secondary_tiers=tiers, store_threshold=2, eviction_policy="arc", novel=1),
    )
    assert found.settings == {
        "host.capacity": "1GiB",
        "host.policy": "arc",
        "drive.path": "/a/pagoda,/b/pagoda",
        "drive.io_threads": "12",
        "drive.admission": "twice",
        "remote.url": "s3://kv/x",
        "remote.endpoint": "http://minio:9000",
        "remote.region": "eu",
        "remote.connections": "6",
    }
    assert "hush" not in json.dumps(found.as_dict()) + found.toml()
    assert [line.key for line in found.lines if line.fate is Fate.UNKNOWN] == [
        "kv_connector_extra_config.novel"
    ]


def test_a_drive_without_a_limit_is_told_of_the_default(tmp_path: Path) -> None:
    """In the settings file as a comment that is itself a setting once it is uncommented, and
    beside the key; with nothing on drives, or with a limit, there is none."""
    found = read(tmp_path, offloading(secondary_tiers=[{"type": "fs", "root_dir": "/a"}]))
    key = keys_by_name()["drive.capacity"]
    default = key.format(key.default)
    (line,) = (line for line in found.lines if line.setting == "drive.capacity")
    assert default in line.note
    (tmp_path / "pagoda.toml").write_text(found.toml().replace("# capacity", "capacity"))
    assert load_file(tmp_path / "pagoda.toml").settings.drive.capacity == key.default
    assert f'# capacity = "{default}"' in found.toml()
    for limited in (offloading(), LMCACHE):
        assert "#" not in read(tmp_path, limited).toml()


def test_the_other_caches_directory_stays_its_own(tmp_path: Path) -> None:
    """Pagoda's is below it, whatever it is, and the note says so."""
    for there in ("/kv", "/", "/kv/", "file:///kv"):
        found = read(tmp_path, {"local_disk": there, "max_local_disk_size": 1})
        path = Path(there.removeprefix("file://"))
        assert Path(found.settings["drive.path"]) == path / "pagoda"
        (line,) = (line for line in found.lines if line.setting == "drive.path")
        assert "pagoda below it" in line.note


def test_connectors_in_a_multiconnector_are_judged_one_by_one(tmp_path: Path) -> None:
    """The engine's own transfer stays the engine's; LMCache's settings lie in its own file."""
    inner = [
        {"kv_connector": "NixlConnector"},
        offloading(),
        {"kv_connector": "LMCacheConnectorV1"},
    ]
    tree = {"kv_connector": "MultiConnector", "kv_connector_extra_config": {"connectors": inner}}
    found = read(tmp_path, tree)
    start = "kv_connector_extra_config.connectors"
    notes = {line.key: line for line in found.lines}
    assert notes[f"{start}[0].kv_connector"].fate is Fate.MISSING
    assert "import that file" in notes[f"{start}[2].kv_connector"].note
    assert found.settings == {"host.capacity": "1GiB", "drive.path": "off"}


def keys_of(tree: object, at: str = "") -> set[str]:
    """Dotted names of all leaves, as a file's reader would call them."""
    if isinstance(tree, dict) and tree:
        parts = [keys_of(value, f"{at}.{key}" if at else key) for key, value in tree.items()]
    elif isinstance(tree, list) and any(isinstance(item, dict) for item in tree):
        parts = [keys_of(value, f"{at}[{index}]") for index, value in enumerate(tree)]
    else:
        return {at}
    return set().union(*parts)


NAMES = st.sampled_from(
    "chunk_size save_decode_cache numa_mode pd_role p2p_host zebra locality spec_name "
    "enable_kv_events kv_rank novel prefix block_size extra".split()
)


@given(
    top=st.dictionaries(NAMES, st.integers(0, 9)),
    extra=st.dictionaries(NAMES, st.integers(0, 9)),
    tier=st.dictionaries(NAMES, st.integers(0, 9)),
    kind=st.sampled_from(["lmcache", "vllm", "nested"]),
)
def test_no_key_is_left_out(
    tmp_path_factory: Any, top: Any, extra: Any, tier: Any, kind: str
) -> None:
    """Known or not, at every depth, each key has its line; the settings are a valid file."""
    if kind == "lmcache":
        tree = {"local_cpu": True, **top, "extra_config": {"x": 1, **extra}}
    else:
        tree = {**top, **offloading(**extra, secondary_tiers=[{"type": "fs", **tier}])}
    if kind == "nested":
        inner = {"connectors": [tree]}
        tree = {"kv_connector": "MultiConnector", "kv_connector_extra_config": inner}
    path = tmp_path_factory.mktemp("foreign")
    found = read(path, tree)
    assert {line.key for line in found.lines if line.value != "(absent)"} == keys_of(tree)
    (path / "pagoda.toml").write_text(found.toml())
    load_file(path / "pagoda.toml")


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("chunk_size: 256\nlocal_cpu: [1\n", 3, "not valid YAML"),
        ("chunk_size: 256\n\tlocal_cpu: 1", 2, "not valid YAML"),
        ("chunk_size: 256\n\nmax_local_cpu_size: lots\n", 3, "max_local_cpu_size is not a number"),
        ("chunk_size: 1\nmax_local_cpu_size: .nan\n", 2, "is not a number"),
        ("chunk_size: 1\nmax_local_cpu_size: -2\n", 2, "is below zero"),
        ("chunk_size: 1\nmax_local_cpu_size: 1e30\n", 2, "larger than any file"),
        ("chunk_size: 1\nlocal_cpu: perhaps\n", 2, "neither true nor false"),
        ("chunk_size: 1\nchunk_size: 2\n", 2, "twice"),
        ('{"kv_connector":\n "OffloadingConnector",\n oops}', 3, "not valid JSON"),
        ('{"kv_connector": "x",\n\t"kv_connector": "y"}', 2, "twice"),
        ('{"kv_connector": "OffloadingConnector",\n "kv_connector_extra_config":\n'
         '  {"cpu_bytes_to_use": "many"}}', 3, "cpu_bytes_to_use is not a number"),
        ("a: 1\n", None, "neither a configuration"),
        ("", 1, "no keys"),
        ("- 1\n", 1, "no keys"),
        ("chunk_size: &a [1]\nx: *a\n", None, "aliases"),
        ("[" * 5000, 1, "not valid YAML"),
        ('{"a":' * 100_000, None, "not valid"),
        ("\x00", None, "not valid YAML"),
    ],
    ids=lambda value: repr(value)[:40],
)  # fmt: skip
def test_a_bad_file_is_told_with_its_line(
    tmp_path: Path, text: str, line: int | None, what: str
) -> None:
    """Whatever is in it, the error is typed and names file and line."""
    with pytest.raises(SettingsError, match=what) as told:
        read(tmp_path, text)
    file = str(tmp_path / "file")
    assert told.value.source == (f"{file}, line {line}" if line else file)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """Absent, a directory, or no text."""
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name in ("absent", ".", "binary"):
        with pytest.raises(SettingsError):
            import_file(tmp_path / name)
