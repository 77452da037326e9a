"""The GPUs of this host, from what nvidia-smi prints."""

from __future__ import annotations

from dataclasses import replace

from pagoda.advise.plan.catalogue import find_gpu
from pagoda.advise.plan.facts import MIB, GpuFacts
from pagoda.core.errors import SettingsError

QUERY = (
    "nvidia-smi",
    "--query-gpu=name,memory.total,pcie.link.gen.max,pcie.link.width.max",
    "--format=csv,noheader,nounits",
)


def parse_gpus(printed: str) -> tuple[GpuFacts, int]:
    """Return the host's GPU and how many there are, from the output of QUERY.

    Memory and PCIe are the host's own, the rest comes from the catalogue. SettingsError
    for no GPU, an unknown one, or GPUs of several kinds.
    """
    rows = [[cell.strip() for cell in line.split(",")] for line in printed.splitlines() if line]
    if not rows or any(len(row) != 4 for row in rows):
        raise _refused("nvidia-smi printed no GPUs", "name the GPU with --gpu")
    kinds = sorted({row[0] for row in rows})
    if len(kinds) > 1:
        raise _refused(
            f"this host has GPUs of several kinds ({', '.join(kinds)})",
            "plan for one of them with --gpu and --gpus",
        )
    memory = min(int(row[1]) for row in rows if row[1].isdigit()) if _numeric(rows) else 0
    facts = find_gpu(kinds[0])
    if memory:
        facts = replace(facts, memory_bytes=memory * MIB)
    if all(row[2].isdigit() and row[3].isdigit() for row in rows):
        facts = replace(
            facts,
            pcie_generation=min(int(row[2]) for row in rows),
            pcie_lanes=min(int(row[3]) for row in rows),
        )
    return replace(facts, source=f"nvidia-smi; {facts.source}"), len(rows)


def _numeric(rows: list[list[str]]) -> bool:
    return all(row[1].isdigit() for row in rows)


def _refused(message: str, remedy: str) -> SettingsError:
    return SettingsError(message, key="gpu", source="nvidia-smi", remedy=remedy)
