"""The real SGLang server on a CPU: launch.py ARGUMENTS, as of `python -m sglang.launch_server`.

FAULTS_BELOW_PAGODA names the file of faults.py. SGLang starts its scheduler by spawning a process
that runs this file again, but for its last lines: what is put in place here is there as well.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import runpy
import signal
import sys
from pathlib import Path

import stand_ins

stand_ins.install()

import copies  # noqa: E402 - SGLang is not to be had before
import faults  # noqa: E402

copies.install()

_PR_SET_PDEATHSIG = 1
faults.install(Path(os.environ["FAULTS_BELOW_PAGODA"]))

if __name__ == "__main__":
    # A test that is killed takes its server along; SGLang's processes end with their parent.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # SGLang would spawn its processes anew, each with half a minute of imports on a busy machine.
    multiprocessing.set_start_method("fork")
    multiprocessing.set_start_method = lambda *args, **more: None
    sys.argv[0] = "sglang.launch_server"
    runpy.run_module("sglang.launch_server", run_name="__main__")
