"""Looking into a drive from outside: whatever a path leads to, a typed answer."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from pagoda.core.errors import TierError
from pagoda.store.inspect import DriveInspector


@pytest.mark.parametrize("name", ["absent", "pipe", "link", "directory", "n" * 300, "file/below"])
def test_a_path_without_a_slab_is_told_with_a_remedy(tmp_path: Path, name: str) -> None:
    """A name too long for the file system came out as «this is a bug in Pagoda»; a pipe must
    not make the inspector wait for a writer."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("link")
    (tmp_path / "directory" / "slab.pagoda").mkdir(parents=True)
    (tmp_path / "file").write_bytes(b"words")
    signal.alarm(10)
    try:
        with pytest.raises(TierError) as caught:
            DriveInspector(tmp_path / name)
    finally:
        signal.alarm(0)
    assert caught.value.remedy
