"""All families together, checked once: unique names, no rule that asks for an unknown sign."""

from __future__ import annotations

from functools import cache

from .families import (
    collectives,
    common,
    connectors,
    cuda,
    engines,
    fabric,
    hicache,
    host,
    integrity,
    lmcache,
    orchestration,
    storage,
    thermal,
    transfer,
    versions,
    xid,
)
from .model import Cause, Family, Sign

__all__ = ["FAMILIES", "cause", "causes", "signs"]

FAMILIES: tuple[Family, ...] = (
    xid.FAMILY,
    storage.FAMILY,
    thermal.FAMILY,
    host.FAMILY,
    orchestration.FAMILY,
    versions.FAMILY,
    cuda.FAMILY,
    fabric.FAMILY,
    collectives.FAMILY,
    engines.FAMILY,
    lmcache.FAMILY,
    connectors.FAMILY,
    hicache.FAMILY,
    transfer.FAMILY,
    integrity.FAMILY,
    common.FAMILY,
)


@cache
def signs() -> tuple[Sign, ...]:
    """Every sign, in the order of the families."""
    found = tuple(sign for family in FAMILIES for sign in family.signs)
    names = [sign.id for sign in found]
    assert len(names) == len(set(names)), "two signs share a name"
    return found


@cache
def causes() -> tuple[Cause, ...]:
    """Every cause, in the order of the families."""
    found = tuple(cause for family in FAMILIES for cause in family.causes)
    names = {cause.id for cause in found}
    assert len(names) == len(found), "two causes share a name"
    known = {sign.id for sign in signs()}
    for item in found:
        asked = {*item.any, *item.every, *item.none}
        assert asked <= known, f"{item.id} asks for unknown signs: {asked - known}"
        assert set(item.explains) <= names, f"{item.id} explains unknown causes"
    return found


def cause(name: str) -> Cause | None:
    """The cause of that name, or None."""
    return next((item for item in causes() if item.id == name), None)
