"""Events that a person should read, in the log: what stopped, why, and that it goes on again."""

from __future__ import annotations

import logging

from pagoda.core.events import Degraded, Event, Fenced, Observer, Unfenced

_log = logging.getLogger("pagoda.store")


def telling(observer: Observer) -> Observer:
    """An observer that logs such events and hands every event on."""

    def tell(event: Event) -> None:
        match event:
            case Degraded(tier=tier, reason=reason, detail=detail):
                _log.warning("%s is degraded (%s): %s", tier, reason, detail)
            case Fenced(tier=tier, reason=reason, detail=detail):
                _log.error("%s takes no writes (%s): %s", tier, reason, detail)
            case Unfenced(tier=tier):
                _log.info("%s takes writes again", tier)
            case _:
                pass
        observer(event)

    return tell
