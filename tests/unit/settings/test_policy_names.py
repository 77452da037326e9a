"""The policies that can be set are those that there are."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from pagoda.core.errors import SettingsError
from pagoda.core.policy import DEFAULT, DRIVE_DEFAULT, REGISTRY
from pagoda.settings.load import load
from pagoda.settings.storage import store_plan
from pagoda.settings.tree import Policy, Settings

KEYS = ("engine.policy", "host.policy", "drive.policy")


def test_every_policy_can_be_set_and_no_other() -> None:
    """In the order of the registry."""
    assert get_args(Policy) == tuple(REGISTRY)


def test_each_kind_of_tier_has_its_own() -> None:
    """By default as the core has it; set, as it was set."""
    settings = Settings()
    assert settings.engine.policy == DEFAULT
    plan = store_plan(settings, block_bytes=4096, device_blocks=64)
    assert (plan.config.policy, plan.config.drive_policy) == (DEFAULT, DRIVE_DEFAULT)
    flags = {"host.policy": "arc", "drive.policy": "lfu"}
    plan = store_plan(load(flags=flags, environ={}).settings, block_bytes=4096, device_blocks=64)
    assert (plan.config.policy, plan.config.drive_policy) == ("arc", "lfu")


@pytest.mark.parametrize("key", KEYS)
def test_an_unknown_policy_is_refused(tmp_path: Path, key: str) -> None:
    """With the setting's name and the names that are known."""
    with pytest.raises(SettingsError) as told:
        load(flags={key: "mru"}, environ={}, directory=tmp_path)
    assert told.value.key == key
    assert all(name in str(told.value) for name in REGISTRY)
