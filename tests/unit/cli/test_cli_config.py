"""`pagoda config`: values with sources, secrets masked, files checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pagoda.settings import Settings
from pagoda.settings.keys import all_keys


def test_each_key_has_value_and_source(pagoda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal, lines of key, value and source, one for each key in order."""
    monkeypatch.setenv("PAGODA_DRIVE_CAPACITY", "8192MiB")
    lines = [line.split("\t") for line in pagoda("config").out.splitlines()]
    assert [line[0] for line in lines] == [key.name for key in all_keys()]
    assert ["drive.capacity", "8GiB", "PAGODA_DRIVE_CAPACITY"] in lines


def test_json_holds_parsed_values(pagoda: Any) -> None:
    """A program gets bytes and seconds as well as the text."""
    rows = {row["key"]: row for row in json.loads(pagoda("config", "--json").out)}
    assert rows["drive.capacity"]["value"] == Settings().drive.capacity
    assert rows["drive.capacity"]["text"] == "4GiB"
    assert rows["store.restore_deadline"]["value"] == 2.0
    assert {row["source"] for row in rows.values()} == {"default"}


@pytest.mark.parametrize("key", [key for key in all_keys() if key.flag], ids=lambda key: key.name)
def test_every_setting_has_its_flag(pagoda: Any, key: Any, tmp_path: Path) -> None:
    """Each flag of the settings tree is one of `pagoda config`, and the source it shows."""
    (tmp_path / "file").write_text("hush")
    samples = {"size": "3MiB", "duration": "7s", "integer": "128", "number": "0.125", "text": "::1"}
    value = key.choices[-1] if key.choices else samples[key.kind]
    value = str(tmp_path / "file") if key.name.endswith("_file") else value
    value = "redis://127.0.0.1" if key.name == "remote.url" else value
    rows = json.loads(pagoda("config", "--json", key.flag, value).out)
    (row,) = (row for row in rows if row["key"] == key.name)
    assert (row["text"], row["source"]) == (value, key.flag)


@pytest.mark.parametrize("args", [["config"], ["config", "--json"]])
def test_a_secret_is_masked(pagoda: Any, monkeypatch: pytest.MonkeyPatch, args: list[str]) -> None:
    """The key is shown as set, not as what it is."""
    monkeypatch.setenv("PAGODA_SERVER_API_KEY", "hush-hush")
    out = pagoda(*args).out
    assert "hush-hush" not in out
    assert "********" in out


def test_a_bad_flag_is_named(pagoda: Any) -> None:
    """A bad value in a flag is status 2 and names flag, key and value."""
    result = pagoda("config", "--drive-capacity", "4G")
    assert result.status == 2
    assert "--drive-capacity: drive.capacity = '4G' is ambiguous" in result.err


def test_check_judges_a_good_file(
    pagoda: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A valid file is status 0, even where the environment would be refused."""
    monkeypatch.setenv("PAGODA_NONSENSE", "1")
    path = tmp_path / "good.toml"
    path.write_text('[drive]\ncapacity = "8GiB"\n[log]\nlevel = "debug"\n')
    result = pagoda("config", "--check", str(path))
    assert (result.status, result.out) == (0, f"{path}: 2 settings, all valid\n")


def test_check_judges_a_bad_file(
    pagoda: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An invalid one is status 2 with the key, the file and the nearest valid name."""
    monkeypatch.setenv("PAGODA_NONSENSE", "1")
    path = tmp_path / "bad.toml"
    path.write_text('[drive]\ncapcity = "8GiB"\n')
    result = pagoda("config", "--check", str(path))
    assert result.status == 2
    assert result.err.splitlines() == [
        f"pagoda: {path}: unknown setting 'drive.capcity'",
        "  did you mean drive.capacity?",
    ]


def test_flags_appear_in_help_by_section(pagoda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Help names every flag of the tree."""
    monkeypatch.setenv("COLUMNS", "200")
    out = pagoda("config", "--help").out
    assert [key.flag for key in all_keys() if key.flag and key.flag not in out] == []
    assert "--server-api-key " not in out


def test_an_empty_flag_overrides_too(pagoda: Any, tmp_path: Path) -> None:
    """`--drive-path ""` takes back what a file says: no one gives a flag by accident."""
    (tmp_path / "pagoda.toml").write_text('[drive]\npath = "/mnt/kv"\n')
    rows = {
        row["key"]: row for row in json.loads(pagoda("config", "--json", "--drive-path", "").out)
    }
    assert (rows["drive.path"]["text"], rows["drive.path"]["source"]) == ("", "--drive-path")


def test_an_empty_drive_path_shows_what_it_stands_for(pagoda: Any, tmp_path: Path) -> None:
    """People see the directories; JSON keeps the value as it is written; off stays off."""
    lines = pagoda("config").out.splitlines()
    assert f"drive.path\t{tmp_path}/cache/pagoda/kv/blocks-of-*\tdefault" in lines
    rows = {row["key"]: row for row in json.loads(pagoda("config", "--json").out)}
    assert rows["drive.path"]["text"] == ""
    assert "drive.path\toff\t" in pagoda("config", "--drive-path", "off").out
