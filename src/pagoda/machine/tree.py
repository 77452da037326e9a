"""Text of /proc and /sys below a root directory, and what programs of that host print.

The root is `/` for the running host, or a directory that `pagoda preflight --collect`
made on another one. Such a directory also holds `pagoda/`, with the facts that no file of
/proc or /sys has (output of programs, package versions). What is missing, unreadable or
not text is None: a missing fact is a fact.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pagoda.machine.commands import Captured, capture

__all__ = ["COMMANDS", "HostTree"]

_TEXT_LIMIT_BYTES = 1 << 20

# The programs whose output is a fact, by the name of the file that holds it in a captured tree.
COMMANDS: dict[str, Sequence[str]] = {
    "nvidia-smi": ("nvidia-smi",),
    "topology": ("nvidia-smi", "topo", "-m"),
    "peers-read": ("nvidia-smi", "topo", "-p2p", "r"),
    "peers-write": ("nvidia-smi", "topo", "-p2p", "w"),
    "mig": ("nvidia-smi", "--query-gpu=index,mig.mode.current", "--format=csv,noheader"),
}


class HostTree:
    """Reads one host's files by path relative to the root, such as `proc/meminfo`."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root
        self.live = root.resolve() == Path("/")

    def text(self, path: str) -> str | None:
        """A file's text, stripped; None when there is no such readable file."""
        try:
            with (self.root / path).open("rb") as file:
                return file.read(_TEXT_LIMIT_BYTES).decode("utf-8", "replace").strip()
        except (OSError, ValueError):
            return None

    def number(self, path: str) -> int | None:
        """A file that holds one whole number; None when it is missing or holds anything else."""
        text = self.text(path)
        return int(text) if text is not None and text.lstrip("-").isdecimal() else None

    def names(self, path: str) -> list[str]:
        """Names in a directory, sorted; none when it is missing."""
        try:
            return sorted(entry.name for entry in (self.root / path).iterdir())
        except (OSError, ValueError):
            return []

    def command(self, name: str) -> Captured:
        """Output of a program from COMMANDS: run here, or read from a captured tree."""
        if self.live:
            return capture(COMMANDS[name])
        text = self.text(f"pagoda/commands/{name}.txt")
        return (
            Captured("", f"the captured tree has no output of {name}")
            if text is None
            else Captured(text)
        )
