"""What an engine is not told of, and that it is known when the engine offers it."""

from __future__ import annotations

from store_harness import Harness, check_plan

from pagoda.connect.withheld import Withheld


def names_of(count: int, start: int = 0) -> list[bytes]:
    return [number.to_bytes(4, "little") for number in range(start, start + count)]


def test_a_request_is_chosen_as_a_whole() -> None:
    """With what it finds first; another one of the same blocks may be told."""
    withheld = Withheld(Harness(check=check_plan(rate=0.5)).store.checks)
    for number in range(40):
        request, names = f"r{number}", names_of(5, 5 * number)
        hidden = [withheld.hides(name, request) for name in names]
        assert len(set(hidden)) == 1
        withheld.forget(request)
        assert [withheld.offered(name) for name in names] == hidden
        assert not any(withheld.offered(name) for name in names), "each is offered once"


def test_a_look_up_is_told_of_what_comes_before_the_last_ones() -> None:
    """As many are kept back as the plan says."""
    withheld = Withheld(Harness(check=check_plan(most_blocks=3)).store.checks)
    names = names_of(10)
    assert withheld.lead(names) == 7
    assert [withheld.offered(name) for name in names] == [False] * 7 + [True] * 3


def test_without_a_check_nothing_is_kept_back() -> None:
    """And nothing is remembered."""
    withheld = Withheld(Harness().store.checks)
    names = names_of(10)
    assert withheld.lead(names) == 10
    assert not any(withheld.hides(name, "r") for name in names)
    assert not any(withheld.offered(name) for name in names)
