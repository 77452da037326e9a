"""The engine's thread."""

from __future__ import annotations

import threading

import pytest

from pagoda.engine.home import HomeThread


def test_everything_runs_in_one_thread() -> None:
    """What loads the model and what computes share OpenMP's team only if they share a thread."""
    home = HomeThread("home")
    threads = {home.run(threading.get_ident).result(10) for _ in range(5)}
    assert len(threads) == 1
    assert threads != {threading.get_ident()}
    home.close()
    assert "home" not in {thread.name for thread in threading.enumerate()}, "it has ended"


def test_an_exception_reaches_whoever_waits_and_ends_nothing() -> None:
    """A model that cannot be loaded is told to the caller; the thread lives on."""
    home = HomeThread("home")
    with pytest.raises(KeyError, match="weights"):
        home.run(lambda: {}["weights"]).result(10)
    assert home.run(lambda: 7).result(10) == 7
    home.close()
