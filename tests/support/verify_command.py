"""`pagoda verify` as an operator runs it: the command's status, and its JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_SOURCES = Path(__file__).parents[2] / "src"
_LONGEST_S = 600


def verify(url: str, *flags: str, key: str = "") -> tuple[int, dict[str, Any]]:
    """Run it against a server that wants a key. Fails with what it said when that is no JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "pagoda", "verify", url, "--json", *flags],
        capture_output=True,
        text=True,
        timeout=_LONGEST_S,
        check=False,
        env={**os.environ, "PYTHONPATH": str(_SOURCES), "PAGODA_API_KEY": key},
    )
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, report
