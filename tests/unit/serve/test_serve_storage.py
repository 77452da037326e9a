"""From settings to the plan of a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagoda.core.errors import SettingsError
from pagoda.settings import Origin, Rank, Settings, mapping_layer, resolve
from pagoda.settings.storage import store_plan
from pagoda.store.open import StorePlan

BLOCK = 1 << 16
MIB = 1 << 20


def settings(**sections: dict[str, object]) -> Settings:
    """A tree from a file."""
    return resolve([mapping_layer(sections, Origin(Rank.FILE, "pagoda.toml"))]).settings


def plan(**sections: dict[str, object]) -> StorePlan:
    """For 64 KiB blocks of a pool of 100."""
    return store_plan(settings(**sections), block_bytes=BLOCK, device_blocks=100)


def key_file(directory: Path) -> str:
    """One key that nobody else may read."""
    path = directory / "keys"
    path.write_text(f"1:{'ab' * 32}\n")
    path.chmod(0o600)
    return str(path)


def test_each_directory_is_a_drive_with_the_same_bounds() -> None:
    """Capacity, floor and budget are a drive's, not the pool's."""
    made = plan(
        drive={
            "path": ["/mnt/a", "/mnt/b"],
            "capacity": "8GiB",
            "free_floor": "1GiB",
            "writes_per_day": 0.5,
            "total_writes": "1TiB",
        }
    )
    assert [drive.directory for drive in made.drives] == [Path("/mnt/a"), Path("/mnt/b")]
    assert {drive.capacity_bytes for drive in made.drives} == {8 << 30}
    assert {drive.free_floor_bytes for drive in made.drives} == {1 << 30}
    assert (made.endurance.writes_per_day, made.endurance.total_bytes) == (0.5, 1 << 40)


def test_the_default_directory_has_one_slab_for_each_size_of_block() -> None:
    """Models with blocks of different sizes can take turns; a named directory is taken as it is."""
    assert plan().drives[0].directory.name == f"blocks-of-{BLOCK}"
    assert plan(drive={"path": "off"}).drives == ()


@pytest.mark.parametrize("host", [0, 64 * MIB])
def test_what_waits_may_hold_half_of_the_devices_pool_at_most(host: int) -> None:
    """What waits for a stuck drive may be device blocks: memory need not take every block."""
    assert plan(host={"capacity": host}).config.queue_bytes == 50 * BLOCK


def test_blocks_lie_on_drives_as_the_settings_say(tmp_path: Path) -> None:
    """Plain, or encrypted with the file's keys; a file that others may read is refused."""
    assert plan().envelope.cipher is None
    keys = key_file(tmp_path)
    assert plan(drive={"key_file": keys}).envelope.cipher is not None
    Path(keys).chmod(0o644)
    with pytest.raises(SettingsError) as caught:
        plan(drive={"key_file": keys})
    assert caught.value.key == "drive.key_file"


def test_a_shared_store_is_protected_as_the_settings_say(tmp_path: Path) -> None:
    """Encrypted or signed with its keys, or as it is; its bounds come along."""
    url = tmp_path.as_uri()
    assert plan().shared is None
    remote: dict[str, object] = {"url": url, "probe_deadline": "100ms", "queue": "1MiB"}
    plain = plan(remote=remote).shared
    assert plain is not None
    assert (plain.config.block_bytes, plain.config.probe_deadline_s) == (BLOCK, 0.1)
    assert plain.config.queue_bytes == MIB
    keys = key_file(tmp_path)
    for protection in ("encrypt", "sign"):
        shared = plan(remote=remote | {"key_file": keys, "protection": protection}).shared
        assert shared is not None
        assert (shared.sealed._envelope.cipher is not None) == (protection == "encrypt")
        assert (shared.sealed._signer is not None) == (protection == "sign")


@pytest.mark.parametrize("url", ["redis://h/no-number", "redis://[::1/0", "file://host/x", "s3://"])
def test_an_address_that_is_none_is_a_bad_setting(url: str) -> None:
    """As a bad value is: status 2 for the command line."""
    pytest.importorskip("redis")
    pytest.importorskip("obstore")
    with pytest.raises(SettingsError) as info:
        plan(remote={"url": url})
    assert info.value.remedy
