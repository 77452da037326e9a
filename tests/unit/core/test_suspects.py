"""Negative entries: remembered for a while, bounded, cleared by a new store."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pagoda.core.identity import Key
from pagoda.core.suspects import Suspects

KEYS = [Key(bytes([i]) * 32) for i in range(6)]


class Naive:
    """The same, said plainly: (key, when it was added), newest last."""

    def __init__(self, limit: int, ttl_s: float) -> None:
        self.limit, self.ttl_s = limit, ttl_s
        self.added: list[tuple[Key, float]] = []

    def add(self, key: Key, now_s: float) -> None:
        self.clear([key])
        self.added = [*self.added, (key, now_s)][-self.limit :]

    def clear(self, keys: list[Key]) -> None:
        self.added = [(key, at_s) for key, at_s in self.added if key not in keys]

    def trusted(self, keys: list[Key], now_s: float) -> int:
        bad = {key for key, at_s in self.added if now_s < at_s + self.ttl_s}
        return next((i for i, key in enumerate(keys) if key in bad), len(keys))


@given(
    st.integers(1, 4),
    st.lists(
        st.tuples(
            st.sampled_from(["add", "clear", "wait", "expire"]),
            st.integers(0, 5),
            st.sampled_from([0.5, 1.0, 5.0, 30.0]),
        )
    ),
)
def test_it_remembers_what_the_plain_list_does(
    limit: int, steps: list[tuple[str, int, float]]
) -> None:
    """Whatever happens, the trusted prefix is the same, and no more than the limit is kept."""
    real, plain, now_s = Suspects(limit=limit, ttl_s=10.0), Naive(limit, 10.0), 0.0
    for action, which, seconds in steps:
        key = KEYS[which]
        if action == "add":
            real.add(key, now_s)
            plain.add(key, now_s)
        elif action == "clear":
            real.clear([key])
            plain.clear([key])
        elif action == "wait":
            now_s += seconds
        else:
            real.expire(now_s)
        assert len(real) <= limit
        assert real.trusted(KEYS, now_s) == plain.trusted(KEYS, now_s)


def test_what_is_old_takes_no_memory() -> None:
    """Expired entries are gone, not merely ignored."""
    suspects = Suspects(ttl_s=10.0)
    suspects.add(KEYS[0], 0.0)
    suspects.add(KEYS[1], 5.0)
    suspects.expire(12.0)
    assert len(suspects) == 1
