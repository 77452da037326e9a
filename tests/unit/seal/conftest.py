"""A process without the optional packages."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from pagoda.seal.codec import codec_of


@pytest.fixture
def without_packages(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Importing cryptography, blake3 and zstandard fails, as if they were not installed."""
    for module in ("cryptography", "blake3", "zstandard"):
        monkeypatch.setitem(sys.modules, module, None)
    for name in list(sys.modules):
        if name.startswith("cryptography.") or name in (
            "pagoda.seal.cipher",
            "pagoda.seal.lossless",
        ):
            monkeypatch.delitem(sys.modules, name)
    codec_of.cache_clear()
    yield
    codec_of.cache_clear()
