"""What one run is to do, and how many prompts that may take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pagoda.core.errors import SettingsError
from pagoda.verify.canaries import probes_at_most

LENGTHS = (63, 64, 65, 127, 128, 129, 257, 513)
SHORTEST = 32
COLD, DEVICE = 3, 2
_WAYS, _BACK = 2, 3  # to push out, and answers after each: restored, once more, among others
_EACH = probes_at_most() + 2 * COLD - 1 + DEVICE + 1 + _WAYS * _BACK
_SETTING_UP = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run does. `limit` bounds the prompts that it sends, `flood` forbids endpoints that
    empty caches, `deep` allows to empty a connector of which nothing is known, `need_restored`
    asks for more than a proof of the device cache."""

    model: str | None = None
    lengths: Sequence[int] = LENGTHS
    limit: int = 250
    flood: bool = False
    deep: bool = False
    need_restored: bool = False

    def needed(self) -> int:
        """The most prompts that a run sends, flooding apart."""
        return _SETTING_UP + len(self.lengths) * _EACH

    def check(self) -> None:
        """Raises SettingsError for a plan that cannot be carried out."""
        if not self.lengths or min(self.lengths) < SHORTEST:
            raise SettingsError(
                f"a canary has at least {SHORTEST} tokens", key="--lengths", source="flag"
            )
        if self.needed() > self.limit:
            raise SettingsError(
                f"{len(self.lengths)} lengths may take {self.needed()} requests",
                key="--requests",
                source="flag",
                remedy=f"allow as many with --requests, or name fewer --lengths than {self.limit} "
                "are enough for",
            )
