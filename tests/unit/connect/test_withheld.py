"""What an engine is not told of, and that it is known when the engine offers it."""

from __future__ import annotations

from store_harness import Harness, check_plan

from pagoda.connect.withheld import ChosenRequests, HiddenBlocks


def names_of(count: int) -> list[bytes]:
    return [number.to_bytes(4, "little") for number in range(count)]


def test_a_request_is_chosen_as_a_whole_and_remembered() -> None:
    """With what it finds first, for all that it finds and offers later; one that found nothing
    is not chosen."""
    requests = ChosenRequests(Harness(check=check_plan(rate=0.5)).store.checks)
    hidden = {f"r{number}": requests.hides(f"r{number}") for number in range(200)}
    assert 50 < sum(hidden.values()) < 150
    for request, was_hidden in hidden.items():
        assert requests.hides(request) == was_hidden
        assert requests.chosen(request) == was_hidden
    assert not requests.chosen("another")


def test_a_look_up_is_told_of_what_comes_before_the_last_ones() -> None:
    """As many are kept back as the plan says; each is offered once."""
    hidden = HiddenBlocks(Harness(check=check_plan(most_blocks=3)).store.checks)
    names = names_of(10)
    assert hidden.lead(names) == 7
    assert [hidden.offered(name) for name in names] == [False] * 7 + [True] * 3
    assert not any(hidden.offered(name) for name in names)


def test_without_a_check_nothing_is_kept_back() -> None:
    """And nothing is remembered."""
    checks, names = Harness().store.checks, names_of(10)
    hidden, requests = HiddenBlocks(checks), ChosenRequests(checks)
    assert hidden.lead(names) == 10
    assert not any(hidden.offered(name) for name in names)
    assert not requests.hides("r")
    assert not requests.chosen("r")
