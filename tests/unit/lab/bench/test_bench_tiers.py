"""`pagoda bench tiers`: both sides move every byte, and the rows add up."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pagoda.cli.main import app
from pagoda.core.errors import SettingsError
from pagoda.lab.bench import tiers
from pagoda.lab.bench.sides import Blocks, PlainFile, PlainMemory, SealedSide
from pagoda.lab.bench.tiers import KIB, MIB, Moved, TierSettings, measure_tiers, row
from pagoda.tiers.host.tier import HostTier
from pagoda.tiers.sealed import SealedTier


def small(directory: Path) -> TierSettings:
    return TierSettings(
        directory=directory, size_bytes=1 * MIB, block_sizes=(96 * KIB,), depths=(2,), runs=2
    )


def test_rows_cover_every_tier_and_direction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each tier is written and read, without a copy for want of alignment, and cleaned up."""
    monkeypatch.setattr(tiers, "SHARED_MEMORY", tmp_path / "absent")
    found = measure_tiers(small(tmp_path), lambda _: None)
    assert [(row["place"], row["what"]) for row in found["rows"]] == [
        ("drive", "write"), ("drive", "read"), ("host", "write"), ("host", "read"),
    ]  # fmt: skip
    assert all(row["alignment_copies"] == 0 for row in found["rows"])
    assert all(row["sealed_gb_per_s"]["runs"] == 2 for row in found["rows"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["sealed", "file", "memory"])
def test_each_side_really_moves_the_bytes(kind: str, tmp_path: Path) -> None:
    """What was written comes back; a side that reads nothing is caught by the check."""
    blocks = Blocks.make(block_bytes=64 * KIB, count=5, seed=1)
    made = {
        "sealed": lambda: SealedSide(SealedTier(HostTier(slots=5, slot_bytes=64 * KIB)), blocks),
        "file": lambda: PlainFile(tmp_path / "plain", blocks),
        "memory": lambda: PlainMemory(blocks),
    }
    side = made[kind]()
    with pytest.raises(AssertionError, match="read back wrong"):
        blocks.check()
    for run in blocks.runs(128 * KIB):
        side.write(run)
    for run in blocks.runs(128 * KIB):
        side.read(run)
    blocks.check()
    blocks.zero_targets()
    with pytest.raises(AssertionError, match="read back wrong"):
        blocks.check()


def test_runs_cover_all_blocks_once() -> None:
    """Runs are neighbours of at most the size asked for, or one block."""
    blocks = Blocks.make(block_bytes=8 * KIB, count=7, seed=0)
    assert [list(run) for run in blocks.runs(24 * KIB)] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [list(run) for run in blocks.runs(1)] == [[block] for block in range(7)]


def test_row_divides_pairs() -> None:
    """Twice the time is half the rate; processor time and the digest's share come from the
    same passes."""
    passes = {
        "sealed read": [Moved(2.0, 1.0), Moved(4.0, 1.0)],
        "plain read": [Moved(1.0, 0.5), Moved(2.0, 0.5)],
        "digest": [Moved(0.25, 0.25), Moved(0.25, 0.25)],
    }
    found = row("read", passes, 10**9)
    assert found["sealed_to_plain"] == {"median": 0.5, "low": 0.5, "high": 0.5, "runs": 2}
    assert found["sealed_gb_per_s"]["high"] == 0.5
    assert found["sealed_cpu_s_per_gb"]["median"] == 1.0
    assert found["digest_share_of_cpu"]["median"] == 0.25


def test_unusable_directory_is_named(tmp_path: Path) -> None:
    """A directory that is not there is a settings error with its path."""
    with pytest.raises(SettingsError, match="absent"):
        measure_tiers(small(tmp_path / "absent"), lambda _: None)


def test_lost_block_fails_the_bench() -> None:
    """A sealed read that is not a hit cannot be timed as one."""
    blocks = Blocks.make(block_bytes=8 * KIB, count=2, seed=0)
    tier = SealedTier(HostTier(slots=2, slot_bytes=8 * KIB))
    with pytest.raises(AssertionError, match="was lost"):
        SealedSide(tier, blocks).read(range(2))


def test_command_writes_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`bench tiers --quick --json` prints the report and nothing else on standard output."""
    monkeypatch.setattr(tiers, "SHARED_MEMORY", tmp_path / "absent")
    args = ["bench", "tiers", "--quick", "--directory", str(tmp_path), "--json"]
    done = CliRunner().invoke(app, args)
    assert done.exit_code == 0
    assert json.loads(done.stdout)["kind"] == "pagoda bench tiers"
