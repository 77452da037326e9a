"""What a restart must find: the sound headers on the media, all of them and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pagoda.core.identity import ROOT, Key
from pagoda.lab.sim.drive import Drive, Label
from pagoda.lab.sim.failure import Check, ensure
from pagoda.lab.sim.world import World
from pagoda.store.level import Level


class Restart:
    """Looks at the drives before a store opens them, and at the store after it."""

    def __init__(self, drives: Sequence[Drive], world: World) -> None:
        self._up = [drive for drive in drives if drive.comes_up]
        self._labels = {drive.name: drive.labels() for drive in self._up}
        for drive in self._up:
            self._check_payloads(drive, world)

    def check(self, levels: Mapping[str, Level]) -> None:
        """Every block is found once, in its newest copy, and no other block is."""
        copies: dict[Key, list[Label]] = {}
        for labels in self._labels.values():
            for label in labels:
                copies.setdefault(label.key, []).append(label)
        found: dict[Key, Label] = {}
        for name, labels in self._labels.items():
            by_slot = {label.slot: label for label in labels}
            for key, slot in levels[name].state.published():
                committed = slot in by_slot and by_slot[slot].key == key
                why = f"{name}: slot {slot} is found, and was never committed"
                ensure(committed, Check.RESTART, why)
                ensure(key not in found, Check.RESTART, "one block is found twice")
                found[key] = by_slot[slot]
        missing = len(copies.keys() - found.keys())
        ensure(missing == 0, Check.RESTART, f"{missing} committed blocks are not found")
        for key, label in found.items():
            newest = max(copy.created_ms for copy in copies[key])
            ensure(label.created_ms == newest, Check.RESTART, "an older copy of a block won")

    @staticmethod
    def _check_payloads(drive: Drive, world: World) -> None:
        """Beside every sound header lies the payload that was sealed, and synced before it."""
        for label in drive.labels():
            truth = world.truth_of(label.key)
            doubtful = label.slot in drive.damaged | drive.medium.doubtful
            if doubtful or label.key == ROOT:  # the root: a block that the store itself tries
                continue
            ensure(
                drive.medium.payloads[label.slot][: len(truth)] == truth,
                Check.RESTART,
                f"{drive.name}: slot {label.slot} has a header, but not the bytes of it",
            )
