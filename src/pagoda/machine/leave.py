"""Leaving a process that has computed."""

from __future__ import annotations

import logging
import os
import sys
from typing import NoReturn


def leave(status: int) -> NoReturn:
    """Exit with `status`; once torch was loaded, without the interpreter's teardown.

    Threads of its libraries may still be ending then, and now and then one of them aborts the
    process after all work is done and closed. Output and logs are flushed first.
    """
    if "torch" not in sys.modules:
        sys.exit(status)
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
