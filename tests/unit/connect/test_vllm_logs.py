"""Pagoda's log lines under vLLM, whose loggers are set up as vLLM does it."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from pagoda.connect.vllm.logs import log_as_vllm

_SPEAK = """
import logging, sys
from pagoda.connect.vllm.logs import log_as_vllm

handler = logging.StreamHandler(sys.stdout)
handler.setFormatter(logging.Formatter("engine %(levelname)s %(message)s"))
logging.getLogger("vllm").addHandler(handler)
logging.getLogger("vllm").setLevel(logging.INFO)
logging.getLogger("vllm").propagate = False
if sys.argv[1] == "own":
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="own %(message)s")
log_as_vllm()
log_as_vllm()
logging.getLogger("pagoda.store").info("a drive is open")
logging.getLogger("pagoda.store").debug("no one wants this")
"""


@pytest.mark.parametrize(
    ("whose", "said"), [("vllm", "engine INFO a drive is open"), ("own", "own a drive is open")]
)
def test_lines_show_once_in_the_form_that_is_set_up(whose: str, said: str) -> None:
    """As vLLM's own, unless the process has a form for all loggers."""
    done = subprocess.run(
        [sys.executable, "-c", _SPEAK, whose], capture_output=True, text=True, check=True
    )
    assert (done.stdout.splitlines(), done.stderr) == ([said], "")


def test_without_vllm_nothing_is_set_up() -> None:
    """The version check imports the connector without the engine."""
    before = list(logging.getLogger("pagoda").handlers)
    log_as_vllm()
    assert logging.getLogger("pagoda").handlers == before
