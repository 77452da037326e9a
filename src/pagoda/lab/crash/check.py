"""After a crash: open the drive as an engine would, read every block, hold it to the ledger."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from pathlib import Path

from pagoda.core.errors import TierError
from pagoda.core.identity import Key
from pagoda.core.outcome import Corrupt, Hit, Outcome
from pagoda.lab.crash.blocks import NOBODYS, is_whole, key_of, version_of
from pagoda.lab.crash.ledger import Ledger
from pagoda.lab.crash.workload import CHAINS, LONGEST, Machine, all_keys, drive_in
from pagoda.store.inspect import DriveInspector
from pagoda.tiers.drive.tier import DriveTier

_LATER_MS = 10**12  # after every block of a workload
_NEW_CHAIN = CHAINS  # which no workload stores
_NEW_VERSION = 2**32 + 1


@dataclass(slots=True)
class Findings:
    """What came back, in blocks, over all crashes of one kind.

    `owed` had to be there; `back` were, `extra` of them without a promise; `refused` broke their
    seals. Three break the promise: what was `lost`, what was served `wrong`, and what was
    `broken`: a payload damaged that nothing had been written over, or a store that did not
    work. `failures` tells of the first of them.
    """

    crashes: int = 0
    owed: int = 0
    back: int = 0
    extra: int = 0
    refused: int = 0
    lost: int = 0
    wrong: int = 0
    broken: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def kept(self) -> bool:
        """Whether the promise was kept every time."""
        return not (self.lost or self.wrong or self.broken)

    def fail(self, kind: str, what: str) -> None:
        """Count a broken promise of a kind, and tell of it if it is among the first."""
        setattr(self, kind, getattr(self, kind) + 1)
        if len(self.failures) < 20:
            self.failures.append(f"{kind}: {what}")


def examine(directory: Path, ledger: Ledger, findings: Findings, *, label: str) -> None:
    """Restart over what a crash left in `directory`, and add up what is found."""
    findings.crashes += 1
    drive: DriveTier | None = None
    try:
        drive = drive_in(directory)
        machine = _machine(drive)
        for key in all_keys():
            _judge(key, machine.read(key), ledger, findings, label)
        _use(machine)
        machine.close()
        _inspect(directory)
    except (TierError, AssertionError) as error:
        findings.fail("broken", f"{label}: {type(error).__name__}: {error}")
    finally:
        if drive is not None:
            drive.close()


def _machine(drive: DriveTier) -> Machine:
    return Machine(
        [drive],
        rng=random.Random(0),  # noqa: S311 - an order, no secret
        now_ms=itertools.count(_LATER_MS),
    )


def _judge(
    key: Key, found: tuple[Outcome, memoryview], ledger: Ledger, findings: Findings, label: str
) -> None:
    """Hold one block to the ledger."""
    outcome, payload = found
    owed = ledger.owed(key)
    what = f"{label}: block {key.hex()[:8]}"
    findings.owed += owed is not None
    if isinstance(outcome, Hit):
        version = version_of(payload)
        findings.back += 1
        findings.extra += owed is None
        if version not in ledger.allowed(key) or not is_whole(key, payload):
            findings.fail("wrong", f"{what}: version {version} is not what was stored")
        return
    if owed is not None:
        findings.fail("lost", f"{what}: version {owed}, {outcome}")
    if payload.tobytes().strip(NOBODYS):
        findings.fail("wrong", f"{what}: bytes in the buffer of a block that is {outcome}")
    if isinstance(outcome, Corrupt):
        findings.refused += 1
        if not ledger.refusable(key):
            findings.fail("broken", f"{what}: damaged, and nothing was written over it")


def _use(machine: Machine) -> None:
    """The store takes new blocks and gives them back."""
    machine.save(_NEW_CHAIN, LONGEST, _NEW_VERSION)
    machine.settle()
    for depth in range(LONGEST):
        key = key_of(_NEW_CHAIN, depth)
        outcome, payload = machine.read(key)
        assert isinstance(outcome, Hit), f"a new block does not come back: {outcome}"
        assert is_whole(key, payload), "a new block comes back with other bytes"
    machine.store.check_invariants()


def _inspect(directory: Path) -> None:
    """Whatever was damaged is gone for good."""
    left = DriveInspector(directory).report(verify=True, progress=_quietly)
    assert not left.corrupt, f"payloads in slots {left.corrupt} stay broken"
    assert not left.damaged_headers, f"headers of {left.damaged_headers} stay damaged"


def _quietly(done: int, total: int) -> None:
    """Nobody waits for the inspection."""
    del done, total
