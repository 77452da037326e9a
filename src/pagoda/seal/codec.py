"""The codecs that a header's codec id can name.

An id is for ever: what was stored with one is read with the same one by every later version.
A codec is lossless; one that is not would change the answer, and belongs into the namespace.
"""

from __future__ import annotations

from functools import cache
from typing import Protocol

from pagoda.core.errors import SettingsError
from pagoda.seal.header import CODEC_LOSSLESS, CODEC_RAW

NAMES = {"raw": CODEC_RAW, "lossless": CODEC_LOSSLESS}


class Codec(Protocol):
    """Shrinks payloads and restores them. Called from several threads at once."""

    @property
    def id(self) -> int:
        """The header's codec id, without encryption."""
        ...

    def encode(self, payload: memoryview) -> memoryview | None:
        """The bytes to store instead of `payload`; None when they would not be fewer."""
        ...

    def decode(self, stored: memoryview, into: memoryview) -> bool:
        """Fill `into`, whose length is that of the payload; False, with `into` in any state,
        when `stored` is not the encoding of exactly that many bytes."""
        ...


class Raw:
    """The payload as it is."""

    id = CODEC_RAW

    def encode(self, payload: memoryview) -> None:
        del payload

    def decode(self, stored: memoryview, into: memoryview) -> bool:
        if len(stored) != len(into):
            return False
        if stored is not into:
            into[:] = stored
        return True


RAW = Raw()


def codec_named(name: str, *, setting: str) -> Codec:
    """The codec of a setting's value; raises SettingsError when there is none of that name,
    or its package is not installed."""
    if name not in NAMES:
        known = ", ".join(sorted(NAMES))
        raise SettingsError(
            f"there is no codec {name!r}", key=setting, source=setting, remedy=f"one of: {known}"
        )
    codec = codec_of(NAMES[name])
    if codec is None:
        raise SettingsError(
            f"the codec {name!r} needs the package zstandard",
            key=setting,
            source=setting,
            remedy="pip install 'pagoda-kv[codec]'",
        )
    return codec


@cache
def codec_of(codec_id: int) -> Codec | None:
    """The codec that reads `codec_id` (without encryption); None when its package is missing."""
    if codec_id == CODEC_RAW:
        return RAW
    assert codec_id == CODEC_LOSSLESS, f"header.unpack lets no codec {codec_id} pass"
    try:
        from pagoda.seal.lossless import Lossless  # noqa: PLC0415 - its package is optional
    except ModuleNotFoundError:
        return None
    return Lossless()
