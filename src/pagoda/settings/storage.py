"""From settings to the plan of a store: its tiers, how they are protected, and their bounds."""

from __future__ import annotations

import random
import secrets
import time
from pathlib import Path

from pagoda.core.checking import Form
from pagoda.core.errors import SettingsError, TierError
from pagoda.core.pins import PinLimits
from pagoda.seal.envelope import Envelope
from pagoda.seal.keyring import Keyring, read_keyring
from pagoda.seal.mac import Signer
from pagoda.settings.tree import Check, Pins, Remote, Settings
from pagoda.store.checks import CheckPlan
from pagoda.store.drives import EndurancePlan
from pagoda.store.open import StorePlan
from pagoda.store.scrub import ScrubPlan
from pagoda.store.shared import SharedConfig
from pagoda.store.store import SharedParts, StoreConfig
from pagoda.tiers.drive import PAGODA, DriveConfig, Owner
from pagoda.tiers.remote.breaker import GuardedShared, Tolerance
from pagoda.tiers.remote.open import RemoteConfig, open_shared
from pagoda.tiers.remote.port import SharedTier
from pagoda.tiers.remote.sealed import SealedShared

_QUEUE_BYTES = 256 << 20
_KEY_BYTES = 16


def store_plan(
    settings: Settings,
    *,
    block_bytes: int,
    device_blocks: int,
    owner: Owner = PAGODA,
    check: CheckPlan | None = None,
) -> StorePlan:
    """Which tiers to open for blocks of `block_bytes` that come from a pool of `device_blocks`,
    for which engine, and how blocks are checked. Raises SettingsError for keys that cannot be
    read, and for a shared store that cannot be spoken to at that address, or without a package."""
    # What waits holds device blocks where memory, if there is any, does not take it. A drive or a
    # shared store may be stuck, and must leave the engine half of its pool.
    queue_bytes = min(_QUEUE_BYTES, device_blocks * block_bytes // 2)
    drive = settings.drive
    return StorePlan(
        block_bytes=block_bytes,
        host_bytes=settings.host.capacity,
        host_pinned=settings.host.pinned,
        drives=_drives(settings, block_bytes, owner),
        endurance=EndurancePlan(
            writes_per_day=drive.writes_per_day, total_bytes=drive.total_writes
        ),
        envelope=Envelope.of(drive.codec, _keys(drive.key_file, "drive.key_file"), setting="drive"),
        shared=_shared(settings.remote, block_bytes, queue_bytes),
        config=StoreConfig(
            restore_deadline_s=settings.store.restore_deadline,
            write_deadline_s=settings.store.write_deadline,
            queue_bytes=queue_bytes,
            policy=settings.host.policy,
            drive_policy=drive.policy,
            admission=drive.admission,
            scrub=ScrubPlan(
                rate_bytes_s=settings.store.scrub_rate, every_s=settings.store.scrub_interval
            ),
            check=check,
        ),
    )


def check_plan(check: Check, *, form: Form, block_tokens: int) -> CheckPlan | None:
    """How stored blocks of `block_tokens` tokens are checked; None: they are not. Nobody can
    foresee which requests are chosen."""
    if not check.rate:
        return None
    return CheckPlan(
        rate=check.rate,
        most_blocks=max(1, check.tokens // block_tokens),
        form=form,
        key=_check_key(),
    )


def pin_limits(pins: Pins) -> PinLimits:
    """What pins may have."""
    return PinLimits(
        total=pins.total,
        owner=pins.owner,
        automatic=pins.automatic,
        expires_s=pins.expires,
        longest_s=pins.longest,
    )


def _check_key() -> bytes:
    return secrets.token_bytes(_KEY_BYTES)


def _drives(settings: Settings, block_bytes: int, owner: Owner) -> tuple[DriveConfig, ...]:
    directories = settings.drive.directories()
    if not settings.drive.path:  # one slab, one size of slot
        directories = tuple(path / f"blocks-of-{block_bytes}" for path in directories)
    return tuple(
        DriveConfig(
            directory=directory,
            capacity_bytes=settings.drive.capacity,
            slot_bytes=block_bytes,
            free_floor_bytes=settings.drive.free_floor,
            direct=settings.drive.direct,
            owner=owner,
        )
        for directory in directories
    )


def _shared(remote: Remote, block_bytes: int, queue_bytes: int) -> SharedParts | None:
    if not remote.url:
        return None
    tier = _open_shared(remote)
    guard = GuardedShared(
        tier,
        clock=time.monotonic,
        rng=random.Random(),  # noqa: S311 - jitter, no secret
        tolerance=Tolerance(deadline_s=remote.deadline),
    )
    keyring = _keys(remote.key_file, "remote.key_file")
    encrypts = remote.protection == "encrypt"
    return SharedParts(
        sealed=SealedShared(
            guard,
            envelope=Envelope.of(remote.codec, keyring if encrypts else None, setting="remote"),
            signer=Signer(keyring, setting="remote.key_file") if keyring and not encrypts else None,
        ),
        guard=guard,
        config=SharedConfig(
            block_bytes=block_bytes,
            probe_deadline_s=remote.probe_deadline,
            queue_bytes=min(remote.queue, queue_bytes),
        ),
    )


def _open_shared(remote: Remote) -> SharedTier:
    """No server is asked anything: what is refused here is what the settings say."""
    config = RemoteConfig(
        url=remote.url,
        user=remote.user,
        password=remote.password.get_secret_value(),
        ca_file=remote.ca_file,
        endpoint=remote.endpoint,
        region=remote.region,
        ttl_s=remote.ttl,
        timeout_s=remote.deadline,
        concurrency=remote.connections,
    )
    try:
        return open_shared(config)
    except TierError as error:
        raise SettingsError(
            error.message, key="remote", source="settings", remedy=error.remedy
        ) from error


def _keys(file: str, setting: str) -> Keyring | None:
    return read_keyring(Path(file).expanduser(), setting=setting) if file else None
