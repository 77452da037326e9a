"""The digest of pieces is the digest of the whole."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pagoda.seal.digest import Digesting, digest


@given(st.lists(st.binary(max_size=700)))
def test_pieces_have_the_digest_of_the_whole(pieces: list[bytes]) -> None:
    """However a payload is cut; none at all is the empty payload."""
    digesting = Digesting()
    for piece in pieces:
        digesting.see(piece)
    assert digesting.digest() == digest(b"".join(pieces))
