"""`nvidia-smi nvlink -s`: which links of each GPU are up, compared with its peers.

Only a difference between like GPUs is a fault. Links that are down on all of them are
built so: a bridged PCIe part brings 12 of its 18 links to the bridge.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pagoda.advise.topology.clean import plain_lines

__all__ = ["LinkStatus", "link_status", "status_warnings"]

_GPU = re.compile(r"^[ \t]{0,16}GPU (\d{1,4})\b")
_LINK = re.compile(r"\bLink (\d{1,2}): *(<?inactive>?|[\d.]{1,8} GB/s)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """Links of one GPU that are up and down, by number."""

    up: tuple[int, ...]
    down: tuple[int, ...]


def link_status(text: str) -> dict[int, LinkStatus]:
    """Read the listing; GPUs that it does not name are left out."""
    found: dict[int, tuple[set[int], set[int]]] = {}
    gpu: int | None = None
    for line in plain_lines(text):
        head = _GPU.match(line)
        gpu = int(head[1]) if head is not None else gpu
        for hit in _LINK.finditer(line):
            if gpu is not None:
                up, down = found.setdefault(gpu, (set(), set()))
                (down if "nactive" in hit[2] else up).add(int(hit[1]))
    return {g: LinkStatus(tuple(sorted(u)), tuple(sorted(d))) for g, (u, d) in found.items()}


def status_warnings(status: Mapping[int, LinkStatus], gpus: Sequence[int]) -> list[str]:
    """A sentence for each GPU with fewer links up than most have; quiet when they are alike."""
    counts = {gpu: len(status[gpu].up) for gpu in gpus if gpu in status}
    if not any(counts.values()):
        return []
    tally = Counter(counts.values())
    usual = max(tally, key=lambda count: (tally[count], count))
    return [
        f"GPU{gpu} has {count} NVLinks up, the others {usual}: see its links "
        f"{', '.join(map(str, status[gpu].down)) or 'that are missing'} in `nvidia-smi nvlink -s`"
        for gpu, count in counts.items()
        if count < usual
    ]
