"""Whether the weights of this process are still those that lay in the model's directory.

SGLang can be given other weights while it runs, and names pages as before. Nothing tells a backend,
so the methods of its WeightUpdater are wrapped, once in a process: whoever has begun to change the
weights has ended what is stored and restored by the names of the old ones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

_log = logging.getLogger("pagoda.connect")
METHODS = (
    "update_weights_from_disk",
    "load_weights_from_distributed",
    "update_weights_from_tensor",
    "update_weights_from_ipc",
)


class WeightsWatch:
    """One class of updaters, watched."""

    def __init__(self, updater: type) -> None:
        self.changed = False
        for name in METHODS:
            setattr(updater, name, self._telling(getattr(updater, name)))

    def _telling(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def tell(*args: Any, **kwargs: Any) -> Any:
            if not self.changed:
                _log.warning("weights are updated: no page is stored or restored from now on")
            self.changed = True
            return method(*args, **kwargs)

        return tell


_WATCHES: dict[type, WeightsWatch] = {}


def weights_watch(updater: type) -> WeightsWatch:
    """The watch of a class of updaters, the same for every backend of the process."""
    if updater not in _WATCHES:
        _WATCHES[updater] = WeightsWatch(updater)
    return _WATCHES[updater]
