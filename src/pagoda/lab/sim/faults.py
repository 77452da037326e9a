"""The fault model.

| fault | how it shows |
|---|---|
| bit flip at rest | a bit of a stored payload changes, for good; or of a header |
| bit flip on read | a bit changes on the way into the buffer |
| short read | fewer bytes arrive than asked for; the rest of the buffer stays as it was |
| lost, torn, misdirected write | nothing, a part, or another slot's place is written |
| EIO, ENOSPC, read-only, ETIMEDOUT | the operation raises the typed error |
| stuck I/O | queued orders do not run, for as long as it lasts |
| slow drive | an operation lasts seconds; the owner goes on meanwhile |
| process kill | in the middle of any operation; memory is gone, media keep what was written |
| power cut | a kill that also takes part of what was not synced |
| clock jump | hours pass at once; the wall clock jumps either way |
| an ailing drive | its file system is full, or SMART says that it fails; its account is not kept |
| a drive that does not come up | neither headers nor space can be read at a start; later they can |
| a shared store that lies | another block's value, an old, cut or flipped one, false presence |
| a drive replaced | an empty medium in its place |
| an engine that computes otherwise | a checked block differs from what is stored of it by a bit |

Not modelled: the order of bytes within one header, faults in the process's own memory, two
nodes on one drive directory (refused by its lock).
"""

from __future__ import annotations

import random
from collections.abc import Callable

from pagoda.core.errors import TierError, TierFault, TierFull, TierReadOnly, TierTimeout
from pagoda.lab.sim.tier import SimTier
from pagoda.lab.sim.world import BLOCK_BYTES
from pagoda.machine.smart import DriveHealth
from pagoda.seal.header import EMPTY

Inject = Callable[[SimTier, random.Random], None]


def _slot(tier: SimTier, rng: random.Random) -> int:
    return rng.randrange(tier.geometry.slots)


def _flip_at_rest(tier: SimTier, rng: random.Random) -> None:
    slot = _slot(tier, rng)
    payload = tier.medium.payloads[slot]
    if payload:
        tier.flip_at_rest(slot, size_bytes=len(payload), at=rng.randrange(len(payload)))


def _flip_headers(tier: SimTier, rng: random.Random) -> None:
    for _ in range(rng.randint(1, 8)):
        slot = _slot(tier, rng)
        header = bytearray(tier.medium.headers[slot])
        if header != EMPTY:
            tier.drive.scarred = True
            header[rng.randrange(len(header))] ^= 0x10
            tier.medium.headers[slot] = bytes(header)


def _flip_on_read(tier: SimTier, rng: random.Random) -> None:
    tier.faults.flip_on_read.add(_slot(tier, rng))


def _short_read(tier: SimTier, rng: random.Random) -> None:
    for slot in range(tier.geometry.slots):
        tier.faults.short_read[slot] = rng.randrange(BLOCK_BYTES)


def _lose_write(tier: SimTier, rng: random.Random) -> None:
    tier.faults.lose_write.update(_slot(tier, rng) for _ in range(4))


def _torn_write(tier: SimTier, rng: random.Random) -> None:
    tier.faults.torn_write[_slot(tier, rng)] = rng.randrange(BLOCK_BYTES)


def _misdirect_write(tier: SimTier, rng: random.Random) -> None:
    tier.faults.misdirect_write[_slot(tier, rng)] = _slot(tier, rng)


def _error(tier: SimTier, rng: random.Random) -> TierError:
    match rng.randrange(4):
        case 0:
            return TierFull("no space", tier=tier.name)
        case 1:
            return TierReadOnly("read-only", tier=tier.name)
        case 2:
            return TierTimeout("late", tier=tier.name, deadline_s=1.0)
        case _:
            return TierFault("input/output error", tier=tier.name, errno=5)


def _read_error(tier: SimTier, rng: random.Random) -> None:
    tier.faults.read_error[_slot(tier, rng)] = TierFault("bad sector", tier=tier.name, errno=5)


def _late_read(tier: SimTier, rng: random.Random) -> None:
    tier.faults.read_error[_slot(tier, rng)] = TierTimeout("late", tier=tier.name, deadline_s=1.0)


def _write_error(tier: SimTier, rng: random.Random) -> None:
    tier.faults.write_error = _error(tier, rng)


def _commit_error(tier: SimTier, rng: random.Random) -> None:
    tier.faults.commit_error = _error(tier, rng)


def _erase_error(tier: SimTier, rng: random.Random) -> None:
    tier.faults.erase_error = _error(tier, rng)


def _full_file_system(tier: SimTier, rng: random.Random) -> None:
    tier.drive.free_bytes = rng.randrange(1 << 20)


def _ailing(tier: SimTier, rng: random.Random) -> None:
    tier.drive.health = rng.choice(
        (
            DriveHealth(passed=False),
            DriveHealth(warnings=("reliability degraded",)),
            DriveHealth(used_percent=101),
            DriveHealth(spare_percent=1, spare_threshold_percent=5),
            DriveHealth(problem="it does not answer"),
        )
    )


def _account_lost(tier: SimTier, rng: random.Random) -> None:
    del rng
    tier.drive.faulty_account = True


FAULTS: dict[str, Inject] = {
    "flip-at-rest": _flip_at_rest,
    "flip-headers": _flip_headers,
    "flip-on-read": _flip_on_read,
    "short-read": _short_read,
    "lose-write": _lose_write,
    "torn-write": _torn_write,
    "misdirect-write": _misdirect_write,
    "read-error": _read_error,
    "late-read": _late_read,
    "write-error": _write_error,
    "commit-error": _commit_error,
    "erase-error": _erase_error,
    "no-space": _full_file_system,
    "ailing-drive": _ailing,
    "account-error": _account_lost,
}
