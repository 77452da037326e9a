"""`pagoda verify` against SGLang's own HTTP server: a sound storage, a broken one, and none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from sglang_harness import KEY, Server, pagoda_entry
from verify_command import verify

from pagoda.connect.opening import settings_of, store_of
from pagoda.core.errors import DirectoryLocked
from pagoda.tiers.drive import Owner

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]

_LENGTHS = ("--lengths", "129,257")  # a token a letter: a shorter text has no room for its question


@pytest.fixture(scope="module")
def fault(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that makes the storage wrong, once it is there."""
    return tmp_path_factory.mktemp("fault") / "fault"


@pytest.fixture(scope="module")
def drive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The server's directory."""
    return tmp_path_factory.mktemp("kv")


@pytest.fixture(scope="module")
def server(sglang: Any, tiny_llama: Path, fault: Path, drive: Path) -> Server:
    """A server over PagodaStorage that can be made to serve wrong bytes."""
    entry = pagoda_entry(drive)
    broken = {**entry, "module_path": "broken_storage", "class_name": "BrokenStorage"}
    environment = {"BROKEN_STORAGE": str(fault)}
    started: Server = sglang(model=tiny_llama, entry=broken, environment=environment)
    return started


def test_a_sound_storage_is_equal_and_a_broken_one_differs(server: Server, fault: Path) -> None:
    """PagodaStorage restores what was computed, to the bit. Then it serves other bits, and then
    other pages: the verdict is that answers differ."""
    status, report = verify(server.url, *_LENGTHS, key=KEY)
    assert (status, report["verdict"]) == (0, "equal"), report
    assert report["pushed_out"] == ["/flush_cache"]
    alone = [one for one in report["findings"] if not one["concurrent"]]
    assert [one["restored"] for one in alone] == [128, 256]
    assert [one["difference"] for one in alone] == [0.0, 0.0]
    assert all(set(one["counted_by"]) == {"usage", "metrics"} for one in alone)
    for kind in ("bits", "another"):
        fault.write_text(kind)
        status, report = verify(server.url, *_LENGTHS, key=KEY)
        assert (status, report["verdict"]) == (1, "differs"), (kind, report)
        assert [one["restored"] for one in report["findings"] if not one["concurrent"]] == [
            128,
            256,
        ]
    fault.unlink()


def test_vllm_is_told_that_sglang_has_the_directory(server: Server, drive: Path) -> None:
    """What PagodaTier would open there is refused, and the process named is SGLang's."""
    assert server.url
    own = {"drive": {"path": str(drive), "capacity": "8MiB", "free_floor": "1MiB"}}
    settings = settings_of(own, None, whose="PagodaTier", environ={})
    with pytest.raises(DirectoryLocked, match=r"SGLang, process \d+") as told:
        store_of(
            settings,
            owner=Owner("vLLM"),
            chunk_bytes=1 << 16,
            chunks=64,
            observer=lambda event: None,
        )
    [pid] = re.findall(r"process (\d+)", told.value.owner)
    assert b"sglang" in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_a_storage_that_gives_nothing_back_is_called_so(server: Server) -> None:
    """Drives that refuse to be read: the device cache alone is proven, and the status says so to
    whoever needs more."""
    server.break_drives(error=1.0)
    status, report = verify(server.url, *_LENGTHS, "--need-restored", key=KEY)
    server.break_drives()
    assert (status, report["reason"]) == (3, "nothing was restored"), report
