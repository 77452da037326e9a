"""`pagoda inspect`: finds the drives by itself, and needs no key to verify them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from seal_samples import ENVELOPES, kv_like, seal_for

from pagoda.core.identity import Key
from pagoda.seal.header import pack
from pagoda.tiers.drive import DriveConfig, DriveTier

Pagoda = Callable[..., Any]
SLOT_BYTES = 8192


def make_drive(directory: Path, *, blocks: int, envelope: str = "plain") -> None:
    """A drive with blocks as an engine stores them."""
    tier = DriveTier(
        DriveConfig(
            directory=directory, capacity_bytes=5 << 20, slot_bytes=SLOT_BYTES, free_floor_bytes=0
        )
    )
    for slot in range(blocks):
        payload = kv_like(SLOT_BYTES, seed=slot)
        seal = replace(seal_for(payload), key=Key(slot.to_bytes(32, "big")))
        sealed, stored = ENVELOPES[envelope].wrap(seal, payload)
        tier.reserve([slot])
        tier.write([slot], [stored])
        tier.commit([slot], [pack(sealed, slot=slot, slab_id=tier.identity)])
    tier.close()


def flip_payload(directory: Path) -> None:
    """Change one byte of the first block."""
    with (directory / "slab.pagoda").open("r+b") as file:
        file.seek((4 << 20) + 100)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))


def reports(out: str) -> list[dict[str, Any]]:
    """What `--json` printed, a line a drive."""
    return [json.loads(line) for line in out.splitlines()]


def test_without_an_argument_it_looks_where_a_server_stores(pagoda: Pagoda, tmp_path: Path) -> None:
    """A newcomer typed `pagoda inspect` after the first start, and was asked for a directory that
    no message had named."""
    home = tmp_path / "cache" / "pagoda" / "kv"
    make_drive(home / "blocks-of-8192", blocks=3)
    found = reports(pagoda("inspect", "--json").out)
    assert [report["path"] for report in found] == [str(home / "blocks-of-8192" / "slab.pagoda")]
    assert found[0]["blocks"] == 3


def test_the_settings_path_is_followed(
    pagoda: Pagoda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All drives of PAGODA_DRIVE_PATH; with the tier off there is nothing to look into."""
    for name in ("one", "two"):
        make_drive(tmp_path / name, blocks=1)
    monkeypatch.setenv("PAGODA_DRIVE_PATH", f"{tmp_path / 'one'},{tmp_path / 'two'}")
    assert len(reports(pagoda("inspect", "--json").out)) == 2
    monkeypatch.setenv("PAGODA_DRIVE_PATH", "off")
    refused = pagoda("inspect")
    assert refused.status == 2
    assert "drive.path is off" in refused.err


def test_a_directory_of_drives_stands_for_all_of_them(pagoda: Pagoda, tmp_path: Path) -> None:
    """`pagoda inspect ~/.cache/pagoda/kv` lists what is inside, and passes by what is no drive."""
    make_drive(tmp_path / "kv" / "a", blocks=1)
    make_drive(tmp_path / "kv" / "b", blocks=2)
    (tmp_path / "kv" / "notes").mkdir()
    found = reports(pagoda("inspect", str(tmp_path / "kv"), "--json").out)
    assert [report["blocks"] for report in found] == [1, 2]
    shown = pagoda("inspect", str(tmp_path / "kv"))
    assert shown.status == 0
    assert shown.out.count("slots of 8,192 bytes in use") == 2


def test_a_directory_without_a_drive_is_told_with_a_remedy(pagoda: Pagoda, tmp_path: Path) -> None:
    """Neither a traceback nor an empty report."""
    refused = pagoda("inspect", str(tmp_path))
    assert refused.status == 2
    assert "holds no slab.pagoda" in refused.err
    assert "drive.path" in refused.err


def test_encrypted_blocks_are_verified_without_their_key(pagoda: Pagoda, tmp_path: Path) -> None:
    """Seals are digests of what is stored: whoever looks after a drive needs no key for them."""
    pytest.importorskip("cryptography", reason="needs the package cryptography")
    make_drive(tmp_path / "kv", blocks=4, envelope="encrypted")
    (report,) = reports(pagoda("inspect", str(tmp_path / "kv"), "--verify", "--json").out)
    assert (report["verified"], report["corrupt"]) == (4, [])
    (space,) = report["namespaces"]
    assert (space["encrypted"], space["key_ids"]) == (4, [2])
    assert "4 blocks are encrypted, with key 2" in pagoda("inspect", str(tmp_path / "kv")).out
    flip_payload(tmp_path / "kv")
    damaged = pagoda("inspect", str(tmp_path / "kv"), "--verify", "--json")
    assert damaged.status == 1
    assert reports(damaged.out)[0]["corrupt"] == [0]


def test_a_damaged_drive_is_told_whatever_the_others_are(pagoda: Pagoda, tmp_path: Path) -> None:
    """Status 1 if any of them is damaged, and all are reported."""
    make_drive(tmp_path / "kv" / "a", blocks=2)
    make_drive(tmp_path / "kv" / "b", blocks=2)
    flip_payload(tmp_path / "kv" / "a")
    ran = pagoda("inspect", str(tmp_path / "kv"), "--verify", "--json")
    assert ran.status == 1
    assert [report["corrupt"] for report in reports(ran.out)] == [[0], []]
    plain = reports(ran.out)[0]["namespaces"][0]
    assert (plain["encrypted"], plain["key_ids"]) == (0, [])
