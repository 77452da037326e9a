"""Building a shared level from an address, a key file and bounds."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pagoda.seal.envelope import Envelope
from pagoda.seal.keyring import read_keyring
from pagoda.seal.mac import Signer
from pagoda.store.executor import Runtime
from pagoda.store.orders import Orders
from pagoda.store.shared import SharedConfig, SharedLevel
from pagoda.tiers.remote.breaker import GuardedShared, Tolerance
from pagoda.tiers.remote.open import RemoteConfig, open_shared
from pagoda.tiers.remote.sealed import SealedShared

Protection = Literal["encrypt", "sign"]
_SETTING = "remote"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPlan:
    """What a shared level is made of. Without a `key_file` blocks are neither secret nor
    signed; with one, `protection` says which. `deadline_s` is what one call may take."""

    remote: RemoteConfig
    config: SharedConfig
    deadline_s: float
    codec: str = "raw"
    key_file: Path | None = None
    protection: Protection = "encrypt"


def open_shared_level(
    plan: SharedPlan, *, runtime: Runtime, orders: Orders, rng: random.Random
) -> SharedLevel:
    """The level over the store at `plan.remote`; `rng` jitters the breakers' pauses.

    Raises TierError for a bad address, and SettingsError for a bad key file or a package that
    is not installed. The store itself may be down: that is noticed by the first request, and
    mended without a restart.
    """
    envelope, signer = _seals(plan)
    guard = GuardedShared(
        open_shared(plan.remote),
        clock=runtime.clock,
        rng=rng,
        tolerance=Tolerance(deadline_s=plan.deadline_s),
    )
    sealed = SealedShared(guard, envelope=envelope, signer=signer)
    return SharedLevel(sealed, guard, runtime=runtime, orders=orders, config=plan.config)


def _seals(plan: SharedPlan) -> tuple[Envelope, Signer | None]:
    if plan.key_file is None:
        return Envelope.of(plan.codec, None, setting=_SETTING), None
    keyring = read_keyring(plan.key_file, setting=f"{_SETTING}.key_file")
    if plan.protection == "encrypt":
        return Envelope.of(plan.codec, keyring, setting=_SETTING), None
    signer = Signer(keyring, setting=f"{_SETTING}.key_file")
    return Envelope.of(plan.codec, None, setting=_SETTING), signer
