"""The digest of pieces is the digest of the whole, and that of many that of each."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.core import native
from pagoda.seal.digest import Digesting, digest, digests


@given(st.lists(st.binary(max_size=700)))
def test_pieces_have_the_digest_of_the_whole(pieces: list[bytes]) -> None:
    """However a payload is cut; none at all is the empty payload."""
    digesting = Digesting()
    for piece in pieces:
        digesting.see(piece)
    assert digesting.digest() == digest(b"".join(pieces))


@given(st.lists(st.binary(min_size=1, max_size=3000), max_size=5), st.booleans())
def test_payloads_together_have_the_digests_that_each_has_alone(
    payloads: list[bytes], long: bool
) -> None:
    """Compiled or not, around every boundary of the algorithm: stripes of 64 bytes, blocks of
    1,024, and the 240 below which it is another."""
    given_bytes = [payload * (240 // len(payload) + 1) if long else payload for payload in payloads]
    assert digests([memoryview(payload) for payload in given_bytes]) == list(
        map(digest, given_bytes)
    )


def test_every_length_has_its_digest() -> None:
    """From one stripe to several blocks, none left out; nothing is too short for an answer."""
    content = random.Random(7).randbytes(4200)
    views = [memoryview(content)[:length] for length in range(241, len(content))]
    assert digests(views) == list(map(digest, views))
    assert digests([memoryview(b""), *views[:2]]) == [digest(b""), *map(digest, views[:2])]


def test_compiled_digests_refuse_what_they_cannot_take() -> None:
    """Short payloads and what is no buffer; the payloads are not held any longer."""
    if native.TABLES is None:
        pytest.skip("pagoda._native: not built")
    for wrong in ([bytearray(240)], [bytearray(300), 7], 7):
        with pytest.raises((ValueError, TypeError)):
            native.TABLES.digests(wrong)
    held = bytearray(300)
    native.TABLES.digests([held])
    held.clear()  # a buffer that is still lent cannot be resized
