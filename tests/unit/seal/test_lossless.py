"""Codec 1: what comes back is what went in, and no frame makes it write or allocate more."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from seal_samples import kv_like

from pagoda.core.errors import SettingsError
from pagoda.seal import codec
from pagoda.seal.lossless import Lossless

LOSSLESS = Lossless()
SIZES = [1, 2, 3, 1023, 4096, 65535, 368640, 2**20 + 1, 4 * 2**20, 7 * 2**20 + 3]


def decoded(stored: bytes | memoryview, size: int) -> bytes | None:
    into = memoryview(bytearray(size))
    return bytes(into) if LOSSLESS.decode(memoryview(stored), into) else None


@given(st.binary(min_size=1, max_size=300), st.integers(1, 200))
def test_any_payload_comes_back(piece: bytes, times: int) -> None:
    """Repetitions shrink; whatever does is restored, byte for byte, odd lengths too."""
    payload = memoryview(piece * times)
    encoded = LOSSLESS.encode(payload)
    if encoded is not None:
        assert len(encoded) < len(payload)
        assert decoded(encoded, len(payload)) == payload


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["kv", "zeros"])
def test_sizes_up_to_several_mebibytes(size: int, kind: str) -> None:
    """Including those that are no multiple of an element or a page."""
    payload = kv_like(size) if kind == "kv" else memoryview(bytes(size))
    encoded = LOSSLESS.encode(payload)
    assert (encoded is None) == (size < 1023)
    if encoded is not None:
        assert decoded(encoded, size) == payload


def test_a_payload_at_an_odd_address_comes_back() -> None:
    """A view may start anywhere, in the source and in the target."""
    whole = memoryview(bytearray(b"\0" + bytes(kv_like(4096))))
    encoded = LOSSLESS.encode(whole[1:])
    assert encoded is not None
    target = memoryview(bytearray(4099))
    assert LOSSLESS.decode(encoded, target[1:4097])
    assert target[1:4097] == whole[1:]
    assert bytes(target[:1]) + bytes(target[4097:]) == bytes(3)


def test_noise_is_not_encoded() -> None:
    """What does not shrink is for the envelope to store raw."""
    noise = np.random.default_rng(1).bytes(100_000)
    assert LOSSLESS.encode(memoryview(noise)) is None


def test_planes_shrink_what_plain_zstd_cannot() -> None:
    """The reason for the planes: exponents apart from mantissas."""
    payload = kv_like(2**20)
    encoded = LOSSLESS.encode(payload)
    assert encoded is not None
    assert len(encoded) < 0.9 * len(zstandard.ZstdCompressor(level=1).compress(payload))


def test_planes_do_not_share_a_zstd_block() -> None:
    """The block that held the end of one and the start of the other would hardly shrink."""
    payload = kv_like(368640)
    parameters = zstandard.ZstdCompressionParameters(
        strategy=zstandard.STRATEGY_FAST, min_match=7, hash_log=8
    )
    planes = bytes(payload)[0::2] + bytes(payload)[1::2]
    shared = zstandard.ZstdCompressor(compression_params=parameters).compress(planes)
    encoded = LOSSLESS.encode(payload)
    assert encoded is not None
    assert len(encoded) < 0.97 * len(shared)


def test_a_frame_of_today_is_read_for_ever() -> None:
    """Fixed bytes: planes of 01 02 01 02 … 07 (801 bytes) in one zstd frame."""
    frame = bytes.fromhex("28b52ffd6021024c000010010101008b2ac0024d000010020701008c2a1002")
    assert decoded(frame, 801) == bytes([1, 2] * 400) + b"\x07"


def frame(content: bytes, *, stated: bool = True, window_log: int = 0) -> bytes:
    parameters = zstandard.ZstdCompressionParameters(
        window_log=window_log, write_content_size=stated
    )
    return zstandard.ZstdCompressor(compression_params=parameters).compress(content)


def lying_frame(content_bytes: int, stated_bytes: int) -> bytes:
    """A frame of zeros whose header states another size."""
    data = bytearray(frame(bytes(content_bytes)))
    assert data[4] == 0xA0, "single segment, content size in 4 bytes"
    data[5:9] = stated_bytes.to_bytes(4, "little")
    return bytes(data)


def streamed(content: bytes, window_log: int) -> bytes:
    """A frame that states its size and yet asks for a window of its own choice."""
    parameters = zstandard.ZstdCompressionParameters(window_log=window_log)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    data = bytearray(packer.compress(content) + packer.flush())
    assert data[4] == 0x00, "no content size, a window"
    data[4] = 0x80  # content size in 4 bytes, behind the window
    return bytes(data[:6]) + len(content).to_bytes(4, "little") + bytes(data[6:])


def test_a_bomb_is_refused() -> None:
    """A frame may not write more than the seal states, nor make the decoder allocate more."""
    size = 100_000
    assert decoded(frame(bytes(size)), size) == bytes(size)
    assert decoded(frame(bytes(2**28)), size) is None, "states 256 MiB"
    assert decoded(frame(bytes(size), stated=False), size) is None, "states no size"
    assert decoded(lying_frame(2**20, size), size) is None, "states less than it holds"
    assert decoded(lying_frame(size, size + 1), size + 1) is None, "states more than it holds"
    assert decoded(streamed(bytes(size), 17), size) == bytes(size), "a fitting window"
    assert decoded(streamed(bytes(size), 18), size) is None, "wants a window of 256 KiB"
    assert decoded(streamed(bytes(size), 27), size) is None, "wants a window of 128 MiB"


def test_a_bomb_takes_no_memory() -> None:
    """It is refused by what it states, before room is made for it."""
    bomb = frame(bytes(2**28), window_log=17)
    tracemalloc.start()
    try:
        assert decoded(bomb, 100_000) is None
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2**20


def test_bytes_around_a_frame_are_refused() -> None:
    """The encoding is one frame and nothing else."""
    one = frame(bytes(5000))
    skippable = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"skip"
    for data in (
        one + b"\0",
        one + one,
        skippable + one,
        one + skippable,
        skippable,
        b"",
        one[:-1],
    ):
        assert decoded(data, 5000) is None


@given(st.binary(max_size=64), st.integers(0, 64))
def test_foreign_bytes_are_refused_not_raised(data: bytes, size: int) -> None:
    """Whatever lies there instead of a frame costs a block, never an exception."""
    for stored in (data, b"\x28\xb5\x2f\xfd" + data):
        result = decoded(stored, size)
        assert result is None or len(result) == size


@pytest.mark.parametrize("size", [0, 99, 101])
def test_raw_bytes_of_another_length_are_refused(size: int) -> None:
    """Like every codec: refused, not raised."""
    assert not codec.RAW.decode(memoryview(bytes(100)), memoryview(bytearray(size)))


def test_names_and_ids() -> None:
    """The names of settings, and the ids of headers."""
    assert codec.codec_named("raw", setting="drive.codec").id == 0
    assert codec.codec_named("lossless", setting="drive.codec").id == 1
    with pytest.raises(SettingsError, match=r"no codec 'gzip'.*lossless, raw") as caught:
        codec.codec_named("gzip", setting="drive.codec")
    assert caught.value.key == "drive.codec"


def test_without_its_package_the_codec_is_refused(without_packages: None) -> None:
    """The setting names what to install."""
    with pytest.raises(SettingsError, match=r"pip install 'pagoda-kv\[codec\]'"):
        codec.codec_named("lossless", setting="drive.codec")
    assert codec.codec_named("raw", setting="drive.codec").id == 0
