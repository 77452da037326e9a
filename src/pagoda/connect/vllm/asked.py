"""What one request asks the shared store for."""

from __future__ import annotations

from collections.abc import Sequence

from pagoda.store.shared import Probe


class Asked:
    """Names that no local tier holds: gathered while a step looks them up, then asked for at
    once, in the order of the prefix."""

    def __init__(self) -> None:
        self._gathered: dict[bytes, None] = {}
        self._probes: list[tuple[frozenset[bytes], Probe]] = []

    def answer(self, name: bytes) -> bool | None:
        """None: not known yet. False: the store has been asked, and has it not, or it would
        have been found."""
        for names, probe in self._probes:
            if name in names:
                return False if probe.done else None
        self._gathered[name] = None
        return None

    def take(self) -> list[bytes]:
        """What is to be asked for."""
        names = list(self._gathered)
        self._gathered.clear()
        return names

    def sent(self, names: Sequence[bytes], probe: Probe) -> None:
        """It has been asked for."""
        self._probes.append((frozenset(names), probe))
