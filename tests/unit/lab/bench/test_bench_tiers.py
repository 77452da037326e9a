"""`pagoda bench tiers`: every side moves every byte, turns alternate, and figures add up."""

from __future__ import annotations

import json
import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pagoda.cli.main import app
from pagoda.core.errors import SettingsError
from pagoda.lab.bench.stats import Spread
from pagoda.lab.bench.tiers import KIB, MIB, TierSettings, measure_tiers, peers
from pagoda.lab.bench.tiers.file_peer import FilePeer
from pagoda.lab.bench.tiers.fio import Fio, find_fio, moved
from pagoda.lab.bench.tiers.lmcache_peer import LMCachePeer, Missing
from pagoda.lab.bench.tiers.pairs import (
    Moved,
    Timed,
    added_cpu,
    alternate,
    at_least,
    at_most,
    row,
    speed_ratio,
)
from pagoda.lab.bench.tiers.sides import Blocks, PlainFile, PlainMemory, SealedSide, mover
from pagoda.tiers.host.tier import HostTier
from pagoda.tiers.sealed import SealedTier


def needs_fio() -> str:
    """The program, or a skip that says what is missing."""
    if shutil.which("fio") is None:
        pytest.skip("fio: not on PATH")
    return find_fio()


def small(directory: Path, **changes: Any) -> TierSettings:
    """Blocks of 64 KiB, one pair."""
    return TierSettings(
        directory=directory,
        memory_directory=directory,
        size_bytes=1 * MIB,
        block_sizes=(64 * KIB,),
        depths=(2,),
        **{"pairs": 1} | changes,
    )


def took(seconds: float, *, cpu_s: float = 0.0) -> Moved:
    """A pass over a gigabyte."""
    return Moved(size_bytes=10**9, wall_s=seconds, cpu_s=cpu_s)


def test_turns_alternate_and_the_first_is_not_counted() -> None:
    """Every second turn runs backwards, so that nobody always comes second."""
    order: list[str] = []

    def side(name: str) -> Callable[[], Moved]:
        def run() -> Moved:
            order.append(name)
            return took(len(order))

        return run

    passes = alternate({"a": side("a"), "b": side("b")}, 2)
    assert order == ["b", "a", "a", "b", "b", "a"]
    assert [moved.wall_s for moved in passes["a"]] == [3, 6]
    assert [moved.wall_s for moved in passes["b"]] == [4, 5]


def test_only_the_work_is_timed_and_always_checked() -> None:
    """Preparation, work, check: in that order, each time."""
    calls: list[str] = []
    timed = Timed(
        work=lambda: calls.append("work"),
        size_bytes=7,
        before=lambda: calls.append("before"),
        after=lambda: calls.append("after"),
    )
    found = timed()
    assert calls == ["before", "work", "after"]
    assert found.size_bytes == 7
    assert found.wall_s >= 0


def test_ratios_are_of_pairs() -> None:
    """Twice the time is half the speed; processor time is per gigabyte."""
    ours, theirs = [took(2.0, cpu_s=1.0), took(4.0, cpu_s=1.0)], [took(1.0, cpu_s=0.5)] * 2
    assert speed_ratio(ours, theirs) == Spread(median=0.375, low=0.25, high=0.5, runs=2)
    assert added_cpu(ours, theirs).median == 0.5
    found = row({"ours": ours}, what="read")
    assert found["what"] == "read"
    assert found["sides"]["ours"]["gb_per_s"]["high"] == 0.5


@pytest.mark.parametrize(("value", "above", "below"), [(0.9, True, False), (0.1, False, True)])
def test_goals_are_floors_or_ceilings(value: float, above: bool, below: bool) -> None:
    """A speed should be at least, a cost at most; what is not judged has no verdict."""
    spread = Spread(median=value, low=value, high=value, runs=9)
    assert at_least("x", spread, 0.5, judged=True).met is above
    assert at_most("x", spread, 0.5, "s", judged=True).met is below
    assert at_least("x", spread, 0.5, judged=False).met is None


@pytest.mark.parametrize("kind", ["sealed", "file", "memory", "vllm"])
def test_each_side_really_moves_the_bytes(kind: str, tmp_path: Path) -> None:
    """What was written comes back; a side that reads nothing is caught by the check."""
    blocks = Blocks.make(block_bytes=64 * KIB, count=5, seed=1)
    with pytest.raises(AssertionError, match="read back wrong"):
        blocks.check()
    if kind == "vllm":
        peer = FilePeer(tmp_path / "peer", blocks, direct=False)
        peer.write()
        peer.drop()
        peer.read()
        peer.close()
    else:
        made = {
            "sealed": lambda: SealedSide(SealedTier(HostTier(slots=5, slot_bytes=65_536)), blocks),
            "file": lambda: PlainFile(tmp_path / "plain", blocks),
            "memory": lambda: PlainMemory(blocks),
        }
        side = made[kind]()
        with mover(2, blocks) as each:
            each(side.write)
            each(side.read)
    blocks.check()
    blocks.zero_targets()
    with pytest.raises(AssertionError, match="read back wrong"):
        blocks.check()


def test_the_file_peer_writes_anew_only_what_was_forgotten(tmp_path: Path) -> None:
    """It skips files that are there, as its model does; the bench has to delete them first."""
    blocks = Blocks.make(block_bytes=4 * KIB, count=2, seed=1)
    peer = FilePeer(tmp_path / "peer", blocks, direct=False)
    peer.write()
    (first, *_) = (path for path in (tmp_path / "peer").rglob("*.bin"))
    before = first.stat().st_ino
    peer.write()
    assert first.stat().st_ino == before
    peer.forget()
    assert not (tmp_path / "peer").exists()
    peer.write()
    assert len(list((tmp_path / "peer").rglob("*.bin"))) == 2
    peer.close()


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("block_bytes", [MIB, 8 * MIB])
def test_a_mover_calls_with_every_block_once(depth: int, block_bytes: int) -> None:
    """Alone or in threads, in runs of at most 4 MiB or a block."""
    blocks = Blocks.make(block_bytes=block_bytes, count=6, seed=0)
    seen: list[range] = []
    with mover(depth, blocks) as each:
        each(seen.append)
    assert sorted(block for run in seen for block in run) == list(range(6))
    assert max(map(len, seen)) == (4 if block_bytes == MIB else 1)


def test_lost_block_fails_the_bench() -> None:
    """A sealed read that is not a hit cannot be timed as one."""
    blocks = Blocks.make(block_bytes=8 * KIB, count=2, seed=0)
    tier = SealedTier(HostTier(slots=2, slot_bytes=8 * KIB))
    with pytest.raises(AssertionError, match="was lost"):
        SealedSide(tier, blocks).read(range(1))


def test_fio_is_asked_for_the_same_size_depth_and_promise(tmp_path: Path) -> None:
    """O_DIRECT, each thread in its own part, and writes made durable one by one."""
    fio = Fio(program="fio", path=tmp_path / "f", size_bytes=1 * MIB, block_bytes=65_536, depth=4)
    write, read = fio.command("write"), fio.command("read")
    for flag in ("--direct=1", "--bs=65536", "--numjobs=4", f"--size={MIB // 4}"):
        assert flag in write
        assert flag in read
    assert "--fdatasync=1" in write
    assert "--fdatasync=1" not in read


def test_fio_figures_are_read_from_its_json() -> None:
    """Milliseconds and percentages, after whatever it warns of."""
    part = {"io_bytes": 2 * 10**9, "runtime": 500}
    report = {"jobs": [{"read": part, "usr_cpu": 10.0, "sys_cpu": 15.0, "job_runtime": 2000}]}
    found = moved("fio: this is a warning\n" + json.dumps(report), "read")
    assert found == Moved(size_bytes=2 * 10**9, wall_s=0.5, cpu_s=0.5)


def test_a_missing_fio_is_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """How to get it, for people and for exit code 2."""
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SettingsError, match="fio is not installed") as caught:
        find_fio()
    assert "apt-get install fio" in caught.value.remedy


def test_what_fio_says_is_passed_on(tmp_path: Path) -> None:
    """It ends with an error: its words are in ours."""
    program = tmp_path / "fio"
    program.write_text("#!/bin/sh\necho 'no such engine' >&2\nexit 3\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    fio = Fio(
        program=str(program), path=tmp_path / "f", size_bytes=MIB, block_bytes=65_536, depth=1
    )
    with pytest.raises(SettingsError, match="no such engine"):
        fio.run("read")


def test_a_missing_lmcache_is_told_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be imported, and how to get it."""
    for name in ("LMCACHE_TRACK_USAGE", "LMCACHE_LOG_LEVEL"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "lmcache", None)
    blocks = Blocks.make(block_bytes=4 * KIB, count=1, seed=0)
    with pytest.raises(Missing, match="pip install --no-deps"):
        LMCachePeer(tmp_path / "x", blocks, direct=False, package=tmp_path)


def test_the_drive_is_compared_with_fio(tmp_path: Path) -> None:
    """Both directions, four sides, no copy for want of alignment; nothing is left behind."""
    needs_fio()
    report = measure_tiers(small(tmp_path), lambda _: None, only=["drive"])
    part = report["parts"]["drive"]
    assert [row["what"] for row in part["rows"]] == ["write", "read"]
    for found in part["rows"]:
        assert list(found["sides"]) == ["sealed", "plain", "fio", "fio in huge pages"]
        assert found["alignment_copies"] == 0
    assert all(figure["met"] is None for figure in part["figures"])
    assert list(tmp_path.iterdir()) == []


def test_memory_and_ceiling_have_their_figures(tmp_path: Path) -> None:
    """Against numpy, and without the digest; the host tier at both of its sizes."""
    report = measure_tiers(small(tmp_path), lambda _: None, only=["host", "ceiling"])
    names = [f["name"] for part in report["parts"].values() for f in part["figures"]]
    assert sum("numpy" in name for name in names) >= 3
    assert any("without the digest" in name for name in names)
    assert list(tmp_path.iterdir()) == []


def test_peers_are_compared_cold_and_warm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of the buffered peer take part in the warm comparison, those past the page cache do
    not; each pair has a figure."""
    monkeypatch.setattr(peers, "_BLOCK", 64 * KIB)
    monkeypatch.setattr(peers, "LMCachePeer", absent)
    part = measure_tiers(small(tmp_path), lambda _: None, only=["peers"])["parts"]["peers"]
    sides = {row["what"]: set(row["sides"]) for row in part["rows"]}
    assert "vLLM fs tier, O_DIRECT" in sides["read cold"]
    assert "vLLM fs tier, O_DIRECT" not in sides["read warm"]
    assert "pagoda host tier" in sides["read warm"]
    unmeasured = [f for f in part["figures"] if f["value"] == "not measured"]
    assert len(unmeasured) == 2
    assert all("absent" in figure["detail"]["why"] for figure in unmeasured)


def absent(*_: object, **__: object) -> LMCachePeer:
    """An LMCache that is not installed."""
    raise Missing("absent here")


def test_unknown_parts_and_unusable_directories_are_named(tmp_path: Path) -> None:
    """Settings errors, before anything is made."""
    with pytest.raises(SettingsError, match="speed"):
        measure_tiers(small(tmp_path), lambda _: None, only=["speed"])
    with pytest.raises(SettingsError, match="absent"):
        measure_tiers(small(tmp_path / "absent"), lambda _: None, only=["host"])


def test_command_writes_json(tmp_path: Path) -> None:
    """`bench tiers --quick --json` prints the report and nothing else on standard output; the
    tables have every figure."""
    args = ["bench", "tiers", "--quick", "--only", "ceiling", "--directory", str(tmp_path)]
    args += ["--tmpfs", str(tmp_path)]
    done = CliRunner().invoke(app, [*args, "--json"])
    assert done.exit_code == 0
    report = json.loads(done.stdout)
    assert (report["schema"], report["kind"]) == (2, "pagoda bench tiers")
    shown = CliRunner().invoke(app, args, env={"COLUMNS": "200"})
    assert "without the digest" in shown.stdout
    assert "not judged" in shown.stdout
