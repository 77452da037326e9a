"""What a container file says about one service: image, limits, environment, installations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Spec", "size_of"]


@dataclass(frozen=True, slots=True)
class Spec:
    """One service of a compose file, or the image that a Dockerfile builds.

    `memlock_bytes` and `shm_bytes` are None when the file does not set them; only a compose
    file can (`can_limit`). `run` is the text of what is installed, to find versions in.
    """

    name: str
    image: str | None
    environment: Mapping[str, str] = field(default_factory=dict)
    run: str = ""
    memlock_bytes: int | None = None
    shm_bytes: int | None = None
    host_ipc: bool = False
    can_limit: bool = True
    wants_gpu: bool = False


def size_of(value: object) -> int | None:
    """Bytes of a size as Docker writes it (16gb, 512m, a number); None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    hit = re.fullmatch(r"\s*(\d{1,18})(?:\.\d+)?\s*([bkmgt]?)(?:i?b)?\s*", str(value).lower())
    if hit is None:
        return None
    return int(hit[1]) << {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40}[hit[2]]
