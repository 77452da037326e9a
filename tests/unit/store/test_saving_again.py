"""Saving a chain of which some blocks are there already."""

from __future__ import annotations

from store_harness import Harness, keys_of


def test_making_room_for_a_chain_does_not_drop_its_own_blocks() -> None:
    """The tail of a chain lay in a full tier, unused for longest, and its head was gone. Saved
    again, the head's blocks took the tail's slots, and the tail was not written, for it was
    still there when it was looked at: the chain had a hole at once."""
    small = Harness(upper=4, lower=0)
    chain = keys_of(4)
    small.save_all(chain[3:])
    small.save_all(keys_of(3, salt=1))
    small.save_all(chain)
    assert small.store.match(chain) == 4
