"""All checks of a host, in one list."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pagoda.advise.preflight.check import Check
from pagoda.advise.preflight.drives import drive_checks
from pagoda.advise.preflight.engines import engine_checks, port_check
from pagoda.advise.preflight.memory import memory_checks
from pagoda.advise.preflight.nccl import fabric_of, nccl_check
from pagoda.advise.preflight.need import Need
from pagoda.advise.preflight.pcie import pcie_checks
from pagoda.advise.preflight.processor import processor_checks
from pagoda.advise.preflight.versions import version_checks
from pagoda.machine.software import environment
from pagoda.machine.spill import SpillFacts, facts_from_json, spill_facts
from pagoda.machine.tree import HostTree

__all__ = ["host_checks", "spills_of"]


def host_checks(tree: HostTree, need: Need) -> list[Check]:
    """Run every check on a live host or a captured tree; a missing fact makes it unknown."""
    return list(_checks(tree, need))


def _checks(tree: HostTree, need: Need) -> Iterator[Check]:
    yield from memory_checks(tree, need)
    yield from processor_checks(tree, need)
    yield from pcie_checks(tree)
    yield _mig(tree)
    yield from version_checks(tree)
    yield from drive_checks(spills_of(tree, need), need)
    yield port_check(tree, need)
    yield _nccl(tree, need)
    yield from engine_checks(tree, need.engines)


def _nccl(tree: HostTree, need: Need) -> Check:
    """This environment, and that of every engine that was given."""
    environments = {"here": environment(tree), **need.engines}
    return nccl_check(environments, fabric_of(tree), name="nccl-settings")


def spills_of(tree: HostTree, need: Need) -> list[SpillFacts]:
    """Facts of the spill directories: probed here, or read from a captured tree."""
    if tree.live:
        return [spill_facts(tree, directory) for directory in need.spills]
    texts = (
        tree.text(f"pagoda/{n}")
        for n in tree.names("pagoda")
        if re.fullmatch(r"spill-\d+\.json", n)
    )
    found = []
    for text in texts:
        try:
            found.append(facts_from_json(text or ""))
        except ValueError:
            continue  # a damaged capture: the checks then say that they know nothing
    return found


def _mig(tree: HostTree) -> Check:
    confirm = "nvidia-smi --query-gpu=index,mig.mode.current --format=csv"
    taken = tree.command("mig")
    if taken.problem or not taken.text:
        return Check("mig", "unknown", taken.problem or "nvidia-smi says nothing of MIG", confirm)
    on = [line.split(",")[0].strip() for line in taken.text.splitlines() if "Enabled" in line]
    if on:
        reason = f"MIG is on at GPU {', '.join(on)}: slices have no peer copies and fixed memory"
        remedy = "one engine a slice with tensor-parallel 1, or nvidia-smi -mig 0"
        return Check("mig", "warn", reason, confirm, remedy)
    return Check("mig", "pass", "MIG is off", confirm)
