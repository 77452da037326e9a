"""Threads that compute do not spin long: other processes want the processors, too."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_SHOWN = "import pagoda.engine, os; print(os.environ.get('GOMP_SPINCOUNT', 'none'))"


@pytest.mark.parametrize(
    ("told", "shown"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "none")],
)
def test_how_long_threads_spin_is_set_unless_somebody_has(told: dict[str, str], shown: str) -> None:
    """Before torch is loaded, which reads it once."""
    kept = {k: v for k, v in os.environ.items() if k not in {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}}
    environment = kept | {"PYTHONPATH": os.pathsep.join(sys.path)} | told
    ran = subprocess.run(
        [sys.executable, "-c", _SHOWN], env=environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == shown


def test_the_engines_modules_come_after_it() -> None:
    """What loads torch is below this package, so that the setting is there in time."""
    code = "import sys, pagoda.engine; print('torch' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "False"
