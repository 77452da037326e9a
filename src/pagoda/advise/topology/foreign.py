"""Inputs that are no `nvidia-smi topo -m` matrix, recognised so that they are refused by name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Foreign", "nvlink_status", "recognise"]


@dataclass(frozen=True, slots=True)
class Foreign:
    """A recognised foreign input: the status to answer with and the reason."""

    status: str
    reason: str


_ROW = re.compile(r"^\s{0,32}(GPU|NPU|MTGPU)\s?(\d{1,4})\s+(\S+)\s*(\S*)")
_MIG = re.compile(r"\bMIG\s+\d+[gc]\.\d+", re.IGNORECASE)
_MIG_PROFILE = re.compile(r"\bMIG\s+((?:\d+c\.)?\d+g\.\d+gb)", re.IGNORECASE)
_NVLINK_STATUS = re.compile(r"\bLink \d{1,2}: *(?:<?inactive>?|[\d.]+ GB/s)", re.IGNORECASE)


def recognise(lines: Sequence[str]) -> Foreign | None:
    """Name the kind of input when it is certainly not an NVIDIA matrix; None when unsure."""
    return _npu(lines) or _amd(lines) or _mig(lines)


def _rows(lines: Sequence[str]) -> list[tuple[str, str, str]]:
    found = (_ROW.match(line) for line in lines)
    hits = [(hit[1], hit[3], hit[4]) for hit in found if hit is not None]
    return [hit for hit in hits if not hit[1].startswith(hit[0])]  # a header names the next GPU


def _amd(lines: Sequence[str]) -> Foreign | None:
    cells = {cell for _, first, second in _rows(lines) for cell in (first, second)}
    zero_diagonal = "0" in cells and all(cell.isdigit() or not cell for cell in cells)
    if {"XGMI", "PCIE"} & cells or zero_diagonal or _says_amd(lines):
        return Foreign(
            "refused",
            "this is an AMD table (rocm-smi or amd-smi: XGMI/PCIE or weights, diagonal 0), not "
            "`nvidia-smi topo -m`; Pagoda has no rules for AMD links",
        )
    return None


def _says_amd(lines: Sequence[str]) -> bool:
    return any("ROCm System Management" in line or "AMD-SMI" in line for line in lines)


def _npu(lines: Sequence[str]) -> Foreign | None:
    rows = _rows(lines)
    if any(label != "GPU" for label, _, _ in rows):
        return Foreign(
            "refused", "this is another vendor's matrix (NPU or MTGPU rows), not NVIDIA's"
        )
    return None


def _mig(lines: Sequence[str]) -> Foreign | None:
    slices = [hit[1] for line in lines for hit in _MIG_PROFILE.finditer(line)]
    if not slices and not any(_MIG.search(line) for line in lines):
        return None
    kinds = sorted(set(slices))
    unequal = f"of unequal size ({', '.join(kinds)}) " if len(kinds) > 1 else ""
    return Foreign(
        "refused",
        f"MIG is on: the slices are {unequal}without peer access to one another, so no tensor-"
        "parallel group can be made of them; run one engine a slice, or switch MIG off",
    )


def nvlink_status(lines: Sequence[str]) -> Foreign | None:
    """Recognise the output of `nvidia-smi nvlink -s`, once no matrix was found beside it."""
    if not any(_NVLINK_STATUS.search(line) for line in lines):
        return None
    return Foreign(
        "unknown",
        "this is an NVLink status listing, not a matrix: inactive links alone are no fault (a "
        "bridged PCIe part uses 12 of its 18 by design); give the output of `nvidia-smi topo -m`",
    )
