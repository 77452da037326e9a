"""Product names of GPUs, from `nvidia-smi -L`, a CSV query, or an environment report."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["gpu_names"]

# "GPU 0: NVIDIA H20 (UUID: …)", "GPU 0,1,2: NVIDIA H20", and several of them with ";" between.
_LISTED = re.compile(r"^[ \t]{0,16}GPU (\d{1,4}(?:,\d{1,4}){0,127}): {0,4}([A-Za-z][^(;\n]{1,80})")
# "0, NVIDIA H100 80GB HBM3" from --query-gpu=index,name --format=csv,noheader
_CSV = re.compile(r"^[ \t]{0,16}(\d{1,4}), {0,4}([A-Z][^,;\n]{2,80})")


def gpu_names(lines: Sequence[str]) -> dict[int, str]:
    """Names by GPU id; lines that name no GPU are passed over."""
    found: dict[int, str] = {}
    for line in lines:
        for part in line[:4096].split(";"):
            hit = _LISTED.match(part) or _CSV.match(part)
            if hit is not None and "nvlink" not in hit[2]:
                found.update((int(gpu), hit[2].strip()) for gpu in hit[1].split(","))
    return found
