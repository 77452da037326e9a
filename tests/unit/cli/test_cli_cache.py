"""`pagoda cache` against a server over a fake engine, and offline over a real drive."""

from __future__ import annotations

import io
import json
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from pagoda.cli import cache_prefetch as command
from pagoda.cli.cache_tables import ages, show_holdings
from pagoda.core.durations import human_duration
from pagoda.core.holdings import Cleared, Scanned, Scope, tenant_id
from pagoda.core.identity import ROOT, Key, NamespaceId
from pagoda.machine.buffers import aligned_buffer
from pagoda.seal.header import Seal
from pagoda.serve import ServeConfig, Server
from pagoda.store.catalogue import Catalogue, Origin
from pagoda.store.offline import stored_in
from pagoda.testing.cache import FakeCache
from pagoda.testing.engine import FakeEngine
from pagoda.tiers.drive import DriveConfig, DriveTier
from pagoda.tiers.sealed import SealedTier

TEXT = "x" * 64
IDS = tuple(TEXT.encode())


@dataclass
class Remote:
    """A server's URL, and what reached its engine."""

    url: str
    cache: FakeCache


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> Iterator[Remote]:
    """A server with the key `k`, which the environment holds."""
    monkeypatch.setenv("PAGODA_API_KEY", "k")
    monkeypatch.setattr(command, "_LOOK_EVERY_S", 0.0)
    engine, ready = FakeEngine(), queue.Queue()
    server = Server(engine, ServeConfig(port=0, api_key="k", grace_s=1.0), on_ready=ready.put)
    thread = threading.Thread(target=server.run)
    thread.start()
    yield Remote(ready.get(timeout=10), engine.cache)
    server.stop()
    thread.join(10)


def test_ls_shows_a_table_or_json(pagoda, remote: Remote) -> None:
    """Tiers, tenants, sizes; sums below."""
    shown = pagoda("cache", "ls", "--url", remote.url)
    assert shown.status == 0
    assert "drive: 5 blocks" in shown.out
    lines = json.loads(pagoda("cache", "ls", "--url", remote.url, "--json").out)["holdings"]
    assert [line["blocks"] for line in lines] == [3, 5]


SIZES = st.integers(0, 10**7)
LINES = st.fixed_dictionaries({
    "tier": st.sampled_from(["device", "host", "drive", "drive2", "remote"]),
    "tenant": st.sampled_from(["shared", "unknown", tenant_id("a")]),
    "namespace": st.sampled_from(["ab" * 32, "0f" * 32]),
    "current": st.sampled_from([True, False, None]),
    "blocks": SIZES,
    "size_bytes": st.integers(0, 10**13),
    "tokens": SIZES,
    "longest_chain": SIZES,
    "oldest_s": st.floats(0, 1e9),
    "newest_s": st.floats(1e9, 2e9),
})  # fmt: skip


@given(st.lists(LINES, min_size=1, max_size=5))
def test_a_table_fits_80_columns_a_line_a_holding(lines: list[dict[str, Any]]) -> None:
    """No cell is cut or folded at 80 columns; with --wide all figures are there, in one line."""
    for width, wide in ((80, False), (10_000, True)):
        out = io.StringIO()
        show_holdings(lines, [], Console(file=out, width=width), wide=wide)
        table = out.getvalue().splitlines()[2:]
        for line, shown in zip(lines, table, strict=False):
            space = line["namespace"] if wide else line["namespace"][:8]
            cells = [line["tier"], line["tenant"], space, f"{line['blocks']:,}"]
            assert shown.split()[:4] == cells
            assert not wide or f"{line['longest_chain']:,}" in shown.split()


@given(st.floats(0, 1e8), st.floats(0, 1e8))
def test_ages_are_one_short_unit_each(one_s: float, other_s: float) -> None:
    """The newest first; one when both read alike; never a time to come."""
    newest, oldest = sorted((one_s, other_s))
    told = ages(2e9 - newest, 2e9 - oldest, 2e9).split("–")
    parts = [human_duration(round(age_s), parts=1) for age_s in (newest, oldest)]
    assert told == list(dict.fromkeys(parts))
    assert ages(2e9, 2e9, 1e9) == "0s"


def test_what_is_piped_is_not_cut(pagoda, remote: Remote, monkeypatch) -> None:
    """However narrow the terminal is that the environment tells of."""
    monkeypatch.setenv("COLUMNS", "30")
    shown = pagoda("cache", "ls", "--url", remote.url)
    assert tenant_id("a") in shown.out
    wide = pagoda("cache", "ls", "--wide", "--url", remote.url)
    assert "ab" * 32 in wide.out


@pytest.mark.parametrize(
    ("flags", "blocks"),
    [
        (["--tier", "host"], [3]),
        (["--tenant", "shared"], [3]),
        (["--salt", "a"], [5]),
        (["--salt", "b"], []),
        (["--namespace", "AB"], [3, 5]),
        (["--namespace", "cd"], []),
    ],
)
def test_ls_narrows(pagoda, remote: Remote, flags: list[str], blocks: list[int]) -> None:
    """By tier, tenant, salt and namespace; the salt is not sent."""
    shown = pagoda("cache", "ls", "--url", remote.url, "--json", *flags)
    assert [line["blocks"] for line in json.loads(shown.out)["holdings"]] == blocks
    assert remote.cache.asked == [("holdings", Scope()), ("tiers",)]


def test_drain_names_a_tier_and_ls_shows_it(pagoda, remote: Remote) -> None:
    """What takes no more is told below the sums, whoever sees to it; a wrong name is refused."""
    assert "drive is" not in pagoda("cache", "ls", "--url", remote.url).out
    shown = pagoda("cache", "drain", "drive", "--url", remote.url)
    assert (shown.status, shown.out) == (0, "drive is draining: it holds 5 blocks\n")
    assert "drive is draining" in pagoda("cache", "ls", "--url", remote.url).out
    only = pagoda("cache", "ls", "--tier", "host", "--url", remote.url)
    assert "drive is" not in only.out
    listed = json.loads(pagoda("cache", "ls", "--json", "--url", remote.url).out)["tiers"]
    assert {one["tier"]: one["standing"] for one in listed} == {
        "host": "serving",
        "drive": "draining",
    }
    wrong = pagoda("cache", "drain", "drive7", "--url", remote.url)
    assert wrong.status == 2
    assert "drive7" in wrong.err


def test_lookup_takes_text_files_ids_and_chats(pagoda, remote: Remote, tmp_path: Path) -> None:
    """The same prompt by every way reaches the engine alike."""
    (tmp_path / "p.txt").write_text(TEXT)
    (tmp_path / "p.json").write_text(json.dumps(list(IDS)))
    (tmp_path / "m.json").write_text(json.dumps([{"role": "user", "content": "hi"}]))
    (tmp_path / "salt").write_text("s\n")
    for arguments in ([TEXT], ["--file", "p.txt"], ["--file", "p.json"]):
        shown = pagoda("cache", "lookup", "--url", remote.url, *arguments, "--salt-file", "salt")
        assert "32 of 64 prompt tokens" in shown.out
    for arguments in (["hi", "--chat"], ["--file", "m.json"]):
        assert pagoda("cache", "lookup", "--url", remote.url, *arguments).status == 0
    chat = tuple(b"user: hi\n")
    assert [call[1:] for call in remote.cache.asked] == [(IDS, "s")] * 3 + [(chat, "")] * 2


def test_clear_sends_its_conditions_and_says_what_was_verified(pagoda, remote: Remote) -> None:
    """Age with a unit, tenant by salt, both together."""
    shown = pagoda("cache", "clear", "--url", remote.url, "--salt", "s", "--older-than", "2h")
    assert remote.cache.asked == [("clear", Scope(salt="s", older_than_s=7200))]
    assert "verified: nothing of the salt's tenant older than 2h is left" in shown.out
    assert "7 headers read back, 0 of them" in shown.out
    everything = pagoda("cache", "clear", "--url", remote.url, "--all")
    assert everything.status == 0
    assert "verified: nothing is left" in everything.out
    shown = pagoda("cache", "clear", "--url", remote.url, "--older-than", "30d")
    assert "verified: nothing older than 30d is left" in shown.out
    shown = pagoda("cache", "clear", TEXT, "--url", remote.url, "--namespace", "ab")
    assert "nothing in namespace ab of the prompt and what continues it is left" in shown.out
    assert remote.cache.asked[1] == ("clear", Scope())


def test_clear_that_left_something_is_status_1(pagoda, remote: Remote, monkeypatch) -> None:
    """And says so."""
    left = Cleared(
        dropped={}, erased=0, verified=False,
        scans=(
            Scanned(tier="drive", headers=2, left=2, newer=0),
            Scanned(tier="remote", headers=None, left=None, newer=0),
        ),
    )  # fmt: skip
    monkeypatch.setattr("pagoda.testing.cache.cleared", lambda: left)
    shown = pagoda("cache", "clear", "--url", remote.url, "--all")
    assert shown.status == 1
    assert "NOT VERIFIED" in shown.out
    assert "remote: what is left is unknown" in shown.out


@pytest.mark.parametrize(
    "arguments",
    [
        ["clear"],
        ["clear", "--all", "--tenant", "ab"],
        ["clear", "--older-than", "soon"],
        ["clear", "text", "--file", "p.txt"],
        ["clear", "--salt", "a", "--salt-file", "p.txt"],
        ["lookup"],
        ["lookup", "--file", "absent.txt"],
        ["lookup", "--file", "bad.json"],
        ["lookup", "--file", "deep.json"],
        ["lookup", "--file", "/dev/zero"],
        ["clear", "--salt-file", "empty"],
        ["clear", "--salt-file", "/dev/zero"],
        ["ls", "--api-key-file", "/dev/zero"],
        ["ttl", "-1s"],
        ["ls", "--offline", "absent"],
    ],
)
def test_what_cannot_be_meant_is_never_sent(pagoda, tmp_path: Path, arguments: list[str]) -> None:
    """Refused with a remedy before a server is looked for: here there is none."""
    (tmp_path / "p.txt").write_text(TEXT)
    (tmp_path / "bad.json").write_text('{"a": 1}')
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "empty").write_text("\n")  # the salt of those who have none
    shown = pagoda("cache", *arguments, "--url", "http://127.0.0.1:9")
    assert shown.status == 2
    assert "nothing answers" not in shown.err


def test_ttl_is_set_shown_and_removed(pagoda, remote: Remote) -> None:
    """`off` removes; without a time the list is shown."""
    pagoda("cache", "ttl", "30d", "--url", remote.url)
    pagoda("cache", "ttl", "1h", "--salt", "s", "--url", remote.url)
    shown = pagoda("cache", "ttl", "--url", remote.url).out
    assert [line.split() for line in shown.splitlines()] == [
        ["everybody", "else", "30d"],
        [tenant_id("s"), "1h"],
    ]
    assert pagoda("cache", "ttl", "off", "--url", remote.url).status == 0
    left = json.loads(pagoda("cache", "ttl", "--json", "--url", remote.url).out)
    assert left == {"ttls": [{"tenant": tenant_id("s"), "seconds": 3600.0}]}


def test_prefetch_waits_until_it_is_done(pagoda, remote: Remote) -> None:
    """Or does not, when told so."""
    shown = pagoda("cache", "prefetch", TEXT, "--url", remote.url)
    assert shown.out == "done: 3 of 3 blocks brought up; 1 were there\n"
    shown = pagoda("cache", "prefetch", TEXT, "--no-wait", "--json", "--url", remote.url)
    assert json.loads(shown.out)["state"] == "running"


def test_a_server_that_refuses_or_is_not_there_is_told(pagoda, remote: Remote, tmp_path) -> None:
    """A wrong key is a matter of settings (2); silence is a failure (1). Both have a remedy."""
    (tmp_path / "key").write_text("wrong")
    refused = pagoda("cache", "ls", "--url", remote.url, "--api-key-file", "key")
    assert (refused.status, "--api-key-file" in refused.err) == (2, True)
    silent = pagoda("cache", "ls", "--url", "http://127.0.0.1:9")
    assert (silent.status, "pagoda serve" in silent.err) == (1, True)


def drive_with_blocks(directory: Path) -> None:
    """Two blocks of a known tenant, written at 1,000 s, and one of nobody's at 5,000 s."""
    size = 4096
    tier = SealedTier(
        DriveTier(
            DriveConfig(
                directory=directory, capacity_bytes=5 << 20, slot_bytes=size, free_floor_bytes=0
            )
        )
    )
    for slot, (space, created_s) in enumerate([(1, 1000), (1, 1000), (2, 5000)]):
        payload = memoryview(aligned_buffer(size))[:size]
        seal = Seal(
            namespace=NamespaceId(bytes([space]) * 32), key=Key(bytes([slot]) * 32), parent=ROOT,
            depth=slot, tokens=16, generation=0, raw_bytes=size, stored_bytes=size,
            payload_digest=bytes(16), created_ms=created_s * 1000,
        )  # fmt: skip
        tier.store([slot], [seal], [payload])
    tier.close()
    catalogue = Catalogue([directory])
    catalogue.meet(NamespaceId(bytes([1]) * 32), Origin(tenant_id("a"), "g"))
    assert catalogue.write(catalogue.text())


def test_ls_offline_reads_a_drive_without_a_server(pagoda, tmp_path: Path) -> None:
    """Namespaces with their tenants, and nothing is written."""
    drive_with_blocks(tmp_path / "kv")
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "kv").iterdir()}
    shown = pagoda("cache", "ls", "--offline", "kv", "--json")
    lines = json.loads(shown.out)["holdings"]
    assert [(line["tenant"], line["blocks"], line["current"]) for line in lines] == [
        (tenant_id("a"), 2, None),
        ("unknown", 1, None),
    ]
    assert (lines[0]["longest_chain"], lines[0]["oldest_s"]) == (2, 1000)
    assert pagoda("cache", "ls", "--offline", "kv").status == 0
    mine = pagoda("cache", "ls", "--offline", "kv", "--salt", "a", "--json")
    assert len(json.loads(mine.out)["holdings"]) == 1
    assert {p.name: p.stat().st_mtime_ns for p in (tmp_path / "kv").iterdir()} == before
    assert [one.blocks for one in stored_in(tmp_path / "kv", before_s=3000)] == [2]
    assert stored_in(tmp_path / "kv", before_s=1000) == []


def test_ls_offline_takes_what_drive_path_names(pagoda, tmp_path: Path) -> None:
    """A server has its slab right below `drive.path`, which is the directory that people know."""
    drive_with_blocks(tmp_path / "kv" / "blocks-of-4096")
    above, below = (
        pagoda("cache", "ls", "--offline", path, "--json") for path in ("kv", "kv/blocks-of-4096")
    )
    assert above.status == 0
    assert above.out == below.out
