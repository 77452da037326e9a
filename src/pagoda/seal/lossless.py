"""Codec 1: byte planes and zstd, for KV of 16-bit floats.

The low byte of a bf16 value is mantissa and looks random; its high byte is sign and
exponent, of which few occur. Mixed, they hide each other; apart, the high bytes shrink to
their entropy and the low bytes cost little to try. The planes are two because 16 bits are
the usual element: on fp8 two planes are as good as none, on fp32 better. The seal does not
know the element's size, and does not have to.

    encoded   | one zstd frame of: low bytes | high bytes | the last byte if the number is odd

Matches are rare in KV and cost more than they save, so zstd looks for long ones only, in a
small table, and leaves the work to its entropy coder. A zstd block never holds both planes,
whose statistics differ. Reference: RFC 8878.
"""

from __future__ import annotations

import numpy as np
import zstandard

from pagoda.seal.header import CODEC_LOSSLESS

_WINDOW_LOG = 17  # 128 KiB, a zstd block; no frame may ask a reader for more


class Lossless:
    """See pagoda.seal.codec.Codec."""

    id = CODEC_LOSSLESS

    def __init__(self) -> None:
        self._parameters = zstandard.ZstdCompressionParameters(
            strategy=zstandard.STRATEGY_FAST, min_match=7, hash_log=8, window_log=_WINDOW_LOG
        )

    def encode(self, payload: memoryview) -> memoryview | None:
        planes = _split(payload)
        half = len(payload) // 2
        # A compressor of its own for every block: one is not for two threads, and is small.
        compressor = zstandard.ZstdCompressor(compression_params=self._parameters)
        frame = compressor.compressobj(size=len(payload))
        pieces = (
            frame.compress(planes[:half]),
            frame.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK),
            frame.compress(planes[half:]),
            frame.flush(),
        )
        encoded = b"".join(pieces)
        return memoryview(encoded) if len(encoded) < len(payload) else None

    def decode(self, stored: memoryview, into: memoryview) -> bool:
        """Allocates the payload's size and a window, whatever the frame says of itself."""
        try:
            frame = zstandard.get_frame_parameters(stored)
            if frame.content_size != len(into) or frame.window_size > 1 << _WINDOW_LOG:
                return False
            planes = zstandard.ZstdDecompressor().decompress(stored, allow_extra_data=False)
        except zstandard.ZstdError:
            return False
        if len(planes) != len(into):
            return False
        _join(planes, into)
        return True


def _split(payload: memoryview) -> memoryview:
    """Planes of a payload."""
    half = len(payload) // 2
    elements = np.frombuffer(payload, dtype="<u2", count=half)
    planes = np.empty(len(payload), dtype=np.uint8)
    np.copyto(planes[:half], elements, casting="unsafe")
    np.right_shift(elements, 8, out=planes[half : 2 * half], dtype=np.uint16, casting="unsafe")
    planes[2 * half :] = np.frombuffer(payload, dtype=np.uint8)[2 * half :]
    return planes.data


def _join(encoded: bytes, into: memoryview) -> None:
    """The payload of planes."""
    half = len(into) // 2
    planes = np.frombuffer(encoded, dtype=np.uint8)
    elements = np.frombuffer(into, dtype="<u2", count=half)
    np.left_shift(planes[half : 2 * half], 8, out=elements, dtype=np.uint16)
    np.bitwise_or(elements, planes[:half], out=elements)
    np.frombuffer(into, dtype=np.uint8)[2 * half :] = planes[2 * half :]
