"""The salts of one run, and clearing what is cached under them."""

from __future__ import annotations

import random

from pagoda.core.errors import ServerError
from pagoda.verify.client import Client

_CLEAR = "/cache/clear"


class Salts:
    """Texts that nobody else uses as salts; `aside` is for prompts whose answers do not count."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._given: list[str] = []
        self.aside = self.new()

    def new(self) -> str:
        """One more."""
        self._given.append(f"pagoda-verify-{self._rng.getrandbits(64):016x}")
        return self._given[-1]

    def clear(self, client: Client) -> bool:
        """Have a Pagoda server forget what it holds under them; False when it does not. A proof
        does not fail for that."""
        try:
            return all(client.call("POST", _CLEAR, {"cache_salt": salt}).ok for salt in self._given)
        except ServerError:
            return False
