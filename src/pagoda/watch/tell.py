"""Events that a person should read, in the log: what stopped, why, and that it goes on again."""

from __future__ import annotations

import logging

from pagoda.core.events import Barred, Degraded, Event, Fenced, Observer, Unbarred, Unfenced

_SHORT = 16  # digits of a namespace; commands take how one begins
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
            case Barred(namespace=namespace, detail=detail):
                _log.error(
                    "namespace %s is in quarantine, nothing of it is served or stored: %s",
                    namespace[:_SHORT],
                    detail,
                )
            case Unbarred(namespace=namespace):
                _log.info("namespace %s is out of quarantine", namespace[:_SHORT])
            case _:
                pass
        observer(event)

    return tell
