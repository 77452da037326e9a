"""A level's write budget as the store uses it: granted in the background, spent by runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pagoda.core.budget import Account, Endurance, WriteBudget, new_account
from pagoda.core.errors import TierError

Keep = Callable[[Account], None]  # makes an account durable; raises TierError; blocks on I/O
Job = Callable[[], TierError | None]
Then = Callable[[TierError | None], None]


def _keep_nowhere(account: Account) -> None:
    """A medium that does not wear, such as memory."""
    del account


class Wear:
    """A budget and the place where its account is kept; without arguments, no limit at all."""

    def __init__(self, budget: WriteBudget | None = None, keep: Keep = _keep_nowhere) -> None:
        self.budget = budget or _unlimited()
        self._keep = keep

    def top_up(
        self, send: Callable[[Job, Then], None], *, now_s: float, now_ms: int, then: Then
    ) -> None:
        """Have the next grant made durable when the present one runs low: `send` is given the
        I/O and what follows it, which ends by calling `then`."""
        if not self.budget.wants(now_s):
            return
        account = self.budget.grant(now_s, now_ms)

        def kept(error: TierError | None) -> None:
            if error is None:
                self.budget.confirm()
            else:
                self.budget.revoke()
            then(error)

        send(partial(self.keep, account), kept)

    def keep(self, account: Account) -> TierError | None:
        """In an I/O thread: make an account durable, or say why not."""
        try:
            self._keep(account)
        except TierError as error:
            return error
        return None


def _unlimited() -> WriteBudget:
    none = Endurance()
    return WriteBudget(none, new_account(none, now_ms=0), now_s=0.0, now_ms=0)
