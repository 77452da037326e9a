"""A server in a process of its own: what is told when it does not start."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagoda.core.errors import PagodaError
from pagoda.lab.server_process import ServerProcess


def test_a_server_that_ends_gives_its_reason_and_its_remedy(tmp_path: Path) -> None:
    """Both lines of the error are told: its log is often in a directory that is gone by then."""
    flags = ["--model", str(tmp_path), "--drive-capacity", "much"]
    with pytest.raises(PagodaError) as caught, ServerProcess(flags, log=tmp_path / "log"):
        pass
    assert "ended with status 2: pagoda: " in str(caught.value)
    assert "--drive-capacity" in str(caught.value)
    assert "; " in str(caught.value)


def test_a_flag_that_is_none_is_told(tmp_path: Path) -> None:
    """What is wrong with a command line stands in a frame: not its last line is the reason."""
    with pytest.raises(PagodaError) as caught, ServerProcess(["--nought"], log=tmp_path / "log"):
        pass
    assert "ended with status 2: No such option: --nought" in str(caught.value)
