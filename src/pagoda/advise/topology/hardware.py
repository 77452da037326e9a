"""What a GPU's name says about its NVLinks: how many, how wired, how fast.

A width is only wrong when it differs from what the part is built with: 6 links a pair are
nominal on a four-GPU H100 board, 12 on a bridged H100 NVL, 8 on an H800. The table holds
public product facts; an unknown name gives no opinion.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Part", "is_virtual", "part_of", "same_model"]


@dataclass(frozen=True, slots=True)
class Part:
    """NVLink facts of a product: links a GPU, nominal widths of a pair, GB/s a link, the board."""

    links: int
    pair_widths: tuple[int, ...]
    link_gbs: float
    board: str  # "sxm": wired on a board; "bridge": in pairs or quads, by a plug; "none"


_NONE = Part(0, (), 0.0, "none")

# First match wins, so the special forms of a name stand before the general one.
_PARTS: tuple[tuple[str, Part], ...] = (
    (r"H200 NVL", Part(18, (6, 18), 25.0, "bridge")),
    (r"H100 NVL|H100 PCIE", Part(18, (12,), 25.0, "bridge")),
    (r"H800 PCIE", Part(8, (8,), 25.0, "bridge")),
    (r"A100[ -](80GB |40GB )?PCIE", Part(12, (12,), 25.0, "bridge")),
    (r"A800.*(PCIE|40GB ACTIVE)", Part(8, (8,), 25.0, "bridge")),
    (r"GB[23]00|\bB[123]00", Part(18, (18,), 50.0, "sxm")),
    (r"H800", Part(8, (8,), 25.0, "sxm")),
    (r"GH200|H100|H200|H20\b", Part(18, (18, 6), 25.0, "sxm")),
    (r"A800", Part(8, (8,), 25.0, "sxm")),
    (r"A100.*SXM|A100-SXM", Part(12, (12, 4), 25.0, "sxm")),
    (r"V100.*SXM", Part(6, (6, 2, 1), 25.0, "sxm")),
    (r"P100.*SXM", Part(4, (2, 1), 20.0, "sxm")),
    (r"\bA30\b", Part(4, (4,), 25.0, "bridge")),
    (r"\bA40\b|RTX A(4500|5000|5500|6000)|RTX 3090", Part(4, (4,), 14.0, "bridge")),
    (r"RTX 2080 TI|TITAN RTX|QUADRO RTX [68]000", Part(2, (2,), 25.0, "bridge")),
    (r"V100.*PCIE|\bL4\b|\bL20\b|\bL40S?\b|\bA10G?\b|\bT4\b|GTX|RTX [45]0\d0|RTX PRO|ADA", _NONE),
)


def part_of(name: str | None) -> Part | None:
    """Look a product name up; None when the name is missing or not in the table."""
    if name is None:
        return None
    upper = name.upper()
    return next((part for pattern, part in _PARTS if re.search(pattern, upper)), None)


def is_virtual(name: str | None) -> bool:
    """Tell whether the name is a vGPU profile's (`GRID A100-40C`), which has no peer copies."""
    return name is not None and re.match(r"(NVIDIA )?(GRID|\S+-\d+[ABCQ]\b)", name) is not None


def same_model(left: str | None, right: str | None) -> bool:
    """Tell whether two names are of one model; an unknown name matches everything."""
    return left is None or right is None or left == right
