"""`pagoda lab crash` in short: the drive keeps its promises, and the lab sees it break them.

Each mutation takes one step out of the order of writes (docs/design/format.md) or one check
out of reading; the lab has to find it with the very run that the sound code passes.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pagoda.cli.lab import app
from pagoda.lab.crash.check import Findings
from pagoda.lab.crash.cuts import Kind, cut_power
from pagoda.lab.crash.kills import kill_at, points
from pagoda.lab.crash.run import record, spread
from pagoda.lab.crash.tap import Moment
from pagoda.lab.crash.workload import Plan
from pagoda.lab.progress import silent
from pagoda.seal.header import EMPTY
from pagoda.tiers.drive import slab
from pagoda.tiers.drive.tier import DriveTier
from pagoda.tiers.sealed import SealedTier


def cut_everywhere(directory: Path, *, seed: int, steps: int) -> dict[Kind, Findings]:
    """Record a workload, cut its power everywhere and restart."""
    recording = record(Plan(directory=directory, seed=seed, steps=steps))
    return cut_power(recording, rng=random.Random(seed), scrambled=1, tell=silent)


def test_a_power_cut_anywhere_loses_and_mixes_up_nothing(tmp_path: Path) -> None:
    """Every synced block is back, no other byte is served, and the drive works on. The images
    are not idle: they hold blocks that nothing promised, and some that the digest refuses.

    With this seed a block came back that had been cleared: its slot had been given to a block
    whose source was then gone, so that nothing was written over its header."""
    found = cut_everywhere(tmp_path, seed=15, steps=30)
    assert [line for findings in found.values() for line in findings.failures] == []
    assert all(findings.kept and findings.owed > 100 for findings in found.values())
    assert sum(findings.extra for findings in found.values()) > 50
    assert found[Kind.WRITTEN].refused == found[Kind.TORN].refused == 0
    assert found[Kind.PAGES].refused + found[Kind.SECTORS].refused > 0


def test_a_kill_anywhere_loses_nothing_that_was_committed(tmp_path: Path) -> None:
    """A process dies by SIGKILL before, within and after writes and syncs, from the first
    superblock to the last header; the next one finds every committed block, whole."""
    plan = Plan(directory=tmp_path, seed=3, steps=12)
    whole = Plan(directory=tmp_path / "whole", seed=plan.seed, steps=plan.steps)
    everywhere = points(record(whole).log, random.Random(3))
    assert {kill.moment for kill in everywhere} == set(Moment)
    findings = kill_at(spread(everywhere, 40), plan, silent)
    assert findings.failures == []
    assert findings.crashes == 40
    assert findings.refused == 0
    assert findings.owed > 100


def headers_before_their_payloads_are_durable(patch: pytest.MonkeyPatch) -> None:
    """Steps 3 and 4 the other way round."""

    def commit(drive: DriveTier, slots: Sequence[int], headers: Sequence[bytes]) -> None:
        drive._write_headers(slots, headers)
        drive._sync()

    patch.setattr(DriveTier, "commit", commit)


def no_sync(patch: pytest.MonkeyPatch) -> None:
    """Step 3 left out."""
    patch.setattr(DriveTier, "commit", DriveTier._write_headers)


def old_headers_stay(patch: pytest.MonkeyPatch) -> None:
    """Step 1 left out."""
    patch.setattr(DriveTier, "reserve", lambda drive, slots: None)


def erased_headers_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    """What was cleared comes back with the power."""
    patch.setattr(DriveTier, "free", DriveTier.reserve)


def payloads_are_not_checked(patch: pytest.MonkeyPatch) -> None:
    """Whatever the drive returns is a hit."""
    patch.setattr(SealedTier, "_judge", lambda sealed, *arrived: sealed._hit)


def headers_in_the_next_slot(patch: pytest.MonkeyPatch) -> None:
    """A misdirected write of the table."""
    write = DriveTier._write_headers

    def beside(drive: DriveTier, slots: Sequence[int], headers: Sequence[bytes]) -> None:
        shift = 0 if headers and headers[0] == EMPTY else 1
        write(drive, [(slot + shift) % drive.geometry.slots for slot in slots], headers)

    patch.setattr(DriveTier, "_write_headers", beside)


def a_slab_gets_its_name_before_its_content(patch: pytest.MonkeyPatch) -> None:
    """Renamed first, written then."""
    write = slab._write_superblocks

    def early(file: slab.SlabFile, layout: slab.Layout) -> None:
        unnamed = file._path  # type: ignore[attr-defined]
        unnamed.rename(unnamed.with_name(slab.SLAB_NAME))
        write(file, layout)
        unnamed.with_name(slab.SLAB_NAME).rename(unnamed)

    patch.setattr(slab, "_write_superblocks", early)


@pytest.mark.parametrize(
    ("mutate", "kind"),
    [
        (headers_before_their_payloads_are_durable, "broken"),
        (no_sync, "broken"),
        (old_headers_stay, "broken"),
        (erased_headers_are_not_synced, "wrong"),
        (payloads_are_not_checked, "wrong"),
        (headers_in_the_next_slot, "lost"),
        (a_slab_gets_its_name_before_its_content, "broken"),
    ],
)
def test_a_step_that_is_left_out_is_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mutate: Callable[[pytest.MonkeyPatch], None],
    kind: str,
) -> None:
    """The lab can fail, and says how."""
    mutate(monkeypatch)
    found = cut_everywhere(tmp_path, seed=2, steps=16)
    assert sum(getattr(findings, kind) for findings in found.values()) > 0
    told = [line for findings in found.values() for line in findings.failures]
    assert any(line.startswith(f"{kind}: cut after operation") for line in told)


def test_the_command_reports_what_it_tried(tmp_path: Path) -> None:
    """As JSON: how many places there are, how many were tried, and that every promise was kept."""
    args = ["crash", "--steps", "3", "--kills", "4", "--seed", "5", "--directory", str(tmp_path)]
    ran = CliRunner().invoke(app, [*args, "--json"])
    assert ran.exit_code == 0, ran.output
    report = json.loads(ran.stdout)
    assert report["kept"] is True
    assert report["kills"] == report["rows"]["kill -9"]["crashes"] == 4 < report["kill_points"]
    cuts = [row for name, row in report["rows"].items() if name != "kill -9"]
    assert sum(row["crashes"] for row in cuts) == report["images"] > report["operations"]
    assert list(tmp_path.iterdir()) == []
