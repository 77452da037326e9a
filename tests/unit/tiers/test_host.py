"""The host tier's own promises."""

from __future__ import annotations

import pytest

from pagoda.core.errors import CapacityError
from pagoda.tiers.host import HostTier


@pytest.mark.parametrize("slots", [1 << 42, 1 << 60])
def test_more_memory_than_the_machine_has_is_refused_with_a_remedy(slots: int) -> None:
    """host.capacity = "100TiB", meant as GiB, ended the start with «unexpected OSError … this is
    a bug in Pagoda»."""
    with pytest.raises(CapacityError, match="host tier") as caught:
        HostTier(slots=slots, slot_bytes=4096)
    assert "host.capacity" in caught.value.remedy
