"""Print the constraints for this .venv: constraints.txt, less what a torch kept here decides.

A torch that is already installed and that pyproject.toml admits stays: its own version is
pinned instead, and the pins of what it depends on are dropped, since another torch wants other
versions of them. Run with the interpreter of the .venv; standard library only.
"""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path

CONSTRAINTS = Path(__file__).resolve().parent.parent / "constraints.txt"
OLDEST, NEWEST = (2, 6), (3, 0)  # as pyproject.toml: torch>=2.6,<3


def name_of(requirement: str) -> str:
    """The normalized name that a requirement or pin starts with."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found, f"not a requirement: {requirement!r}"
    return re.sub(r"[-_.]+", "-", found.group()).lower()


def kept_torch() -> str | None:
    """The version of an installed torch that may stay, or None."""
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return None
    release = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    return version if OLDEST <= release < NEWEST else None


def closure(name: str, seen: set[str]) -> set[str]:
    """`name` and all that it depends on, as far as it is installed, added to `seen`."""
    if name in seen:
        return seen
    seen.add(name)
    try:
        wanted = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return seen
    for requirement in wanted:
        if "extra ==" not in requirement:
            closure(name_of(requirement), seen)
    return seen


def pins() -> list[str]:
    """The constraint lines for this environment."""
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    lines = [line for line in lines if line and not line.startswith("#")]
    kept = kept_torch()
    if kept is None or f"torch=={kept.partition('+')[0]}" in lines:
        return lines
    decided = closure("torch", set())
    return [line for line in lines if name_of(line) not in decided] + [f"torch=={kept}"]


if __name__ == "__main__":
    sys.stdout.write("\n".join(pins()) + "\n")
