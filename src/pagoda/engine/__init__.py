"""Pagoda's own paged engine."""

import os

# How often an OpenMP thread looks for work before it sleeps. libgomp's 300,000 are right where
# nobody else wants the processors; where somebody does, every barrier then waits for a thread that
# is not running, and a token can take many times as long. It is read when torch is loaded.
_SPINS = "1000"

if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)
