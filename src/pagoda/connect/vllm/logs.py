"""Pagoda's log lines among vLLM's: same place, same form, same level.

vLLM gives handlers to its own logger alone; others' lines below a warning would not show, and the
rest would have neither time nor level.
"""

from __future__ import annotations

import logging


def log_as_vllm() -> None:
    """Give Pagoda's logger what vLLM's has, unless whoever runs the process has set one up."""
    ours, theirs = logging.getLogger("pagoda"), logging.getLogger("vllm")
    if ours.hasHandlers() or not theirs.handlers:
        return
    ours.handlers = list(theirs.handlers)
    ours.setLevel(theirs.level)
    ours.propagate = False
