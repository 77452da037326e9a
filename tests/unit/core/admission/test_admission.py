"""Admission to drives: what each one lets through, against naive models."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.core.admission import REGISTRY, Admission, LearnedUses, Reuse, Room, Twice, Verdict
from pagoda.core.admission.port import closed
from pagoda.core.identity import DIGEST_BYTES, ROOT, Key
from pagoda.core.policy import Ending

FULL = Room(free=0, block_bytes=100, now_s=0.0)
WRITE, DECLINE, WAIT = Verdict.WRITE, Verdict.DECLINE, Verdict.WAIT


def key(number: int) -> Key:
    """A key that is a number."""
    return Key(number.to_bytes(DIGEST_BYTES, "big"))


def chain(*numbers: int) -> list[Key]:
    """The keys of a chain."""
    return [key(number) for number in numbers]


def use(admission: Admission | LearnedUses, keys: list[Key], tokens: int = 100) -> None:
    """A request that had these blocks ends."""
    admission.end(Ending(keys=keys, at_s=0.0, output_tokens=tokens))


def judge(admission: Admission, keys: list[Key], room: Room = FULL) -> list[Verdict]:
    """Verdicts for blocks of one chain."""
    return admission.judge(keys, [ROOT, *keys][: len(keys)], room)


class Foretold:
    """Expects what it is told to."""

    def __init__(self, uses: dict[Key, float], usual: float) -> None:
        self.uses = uses
        self.mean = usual

    def usual(self) -> float:
        return self.mean

    def end(self, ending: Ending) -> None:
        """Learns nothing."""

    def expected(self, key: Key) -> float | None:
        return self.uses.get(key)


chains = st.lists(st.lists(st.integers(1, 12), max_size=6, unique=True), max_size=30)


@pytest.mark.parametrize("name", sorted(REGISTRY))
@given(history=chains, offer=st.lists(st.integers(1, 12), max_size=8, unique=True))
def test_no_block_is_written_without_its_parent(
    name: str, history: list[list[int]], offer: list[int]
) -> None:
    """Of blocks offered together, those that are written form chains without a gap."""
    admission = REGISTRY[name](16)
    for numbers in history:
        use(admission, chain(*numbers))
    verdicts = judge(admission, chain(*offer))
    assert len(verdicts) == len(offer)
    written = [verdict is WRITE for verdict in verdicts]
    assert written == sorted(written, reverse=True)


@pytest.mark.parametrize("name", sorted(REGISTRY))
@given(free=st.integers(0, 10), count=st.integers(0, 10))
def test_while_there_are_empty_slots_everything_is_written(
    name: str, free: int, count: int
) -> None:
    """A block that pushes out nothing needs no reason; one more does, but where all are written."""
    room = Room(free=free, block_bytes=100, now_s=0.0)
    verdicts = judge(REGISTRY[name](16), chain(*range(1, count + 1)), room)
    assert verdicts[:free] == [WRITE] * min(free, count)
    assert set(verdicts[free:]) <= {WRITE if name == "all" else WAIT}


@given(chains)
def test_twice_admits_what_was_used_twice(history: list[list[int]]) -> None:
    """Unknown blocks wait, those used once are declined, those used twice are written."""
    admission = Twice(remembered=1000)
    uses: Counter[int] = Counter()
    for numbers in history:
        use(admission, chain(*numbers))
        uses.update(numbers)
    for number in range(1, 13):
        expected = (WAIT, DECLINE, WRITE)[min(2, uses[number])]
        assert judge(admission, chain(number)) == [expected]


@given(st.integers(1, 20), st.integers(0, 100))
def test_twice_remembers_the_last_ones_and_forgets_old_ones(remembered: int, later: int) -> None:
    """A use is remembered for as many other blocks as promised, and not for ever."""
    admission = Twice(remembered)
    use(admission, chain(1))
    for number in range(later):
        use(admission, chain(1000 + number))
    use(admission, chain(1))
    if later < remembered:
        assert judge(admission, chain(1)) == [WRITE]
    if later >= 2 * remembered:
        assert judge(admission, chain(1)) == [DECLINE]


@pytest.mark.parametrize(("usual", "least"), [(0.4, 0.4), (1.0, 1.0), (4.0, 1.0)])
def test_reuse_writes_what_is_worth_it(usual: float, least: float) -> None:
    """A block is written when as many uses are expected as is usual, or one; it waits when nothing
    is known of it."""
    admission = Reuse(Foretold({key(1): least, key(2): least - 0.01}, usual))
    assert [judge(admission, chain(n)) for n in (1, 2, 3)] == [[WRITE], [DECLINE], [WAIT]]


def test_a_child_shares_the_fate_of_a_parent_that_is_not_written() -> None:
    """What a block is worth does not help it when the blocks before it are missing."""
    keys = chain(1, 2, 3)
    parents = [ROOT, keys[0], keys[1]]
    assert closed(keys, parents, [WRITE, WAIT, WRITE]) == [WRITE, WAIT, WAIT]
    assert closed(keys, parents, [DECLINE, WAIT, WRITE]) == [DECLINE] * 3


def test_uses_are_learned_by_class() -> None:
    """Blocks like those that were used again come to be expected more of than those that were
    not, and a block that nobody told of is unknown."""
    uses = LearnedUses(400)
    for turn in range(300):
        short = chain(*range(10_000 + 10 * turn, 10_003 + 10 * turn))
        long = chain(*range(100_000 + 100 * turn, 100_040 + 100 * turn))
        use(uses, short)
        use(uses, long)
        use(uses, short)  # only the short ones come back
    use(uses, chain(1, 2, 3))
    use(uses, chain(*range(200, 240)))
    short, long = uses.expected(key(1)), uses.expected(key(200))
    assert short is not None
    assert long is not None
    assert short > 0.6
    assert long < 0.2
    assert uses.expected(key(77)) is None


def test_expectation_approaches_the_true_mean() -> None:
    """With each block used three times within the span, blocks used once have two uses to come,
    blocks used twice one, others none."""
    uses = LearnedUses(4000)
    for turn in range(2000):
        for _ in range(3):
            use(uses, chain(*range(1000 + 10 * turn, 1010 + 10 * turn)))
    found = []
    for _ in range(3):
        use(uses, chain(*range(1, 11)))
        expected = uses.expected(key(1))
        assert expected is not None
        found.append(expected)
    assert found == pytest.approx([2, 1, 0], abs=0.15)
    assert uses.usual() == pytest.approx(1, abs=0.1)


@given(st.integers(2, 30), chains)
def test_memory_is_bounded(remembered: int, history: list[list[int]]) -> None:
    """Exactly the blocks used last are known, however many there were."""
    uses = LearnedUses(remembered)
    order: dict[int, None] = {}
    for numbers in history:
        use(uses, chain(*numbers))
        for number in numbers:
            order.pop(number, None)
            order[number] = None
    known = {number for number in range(1, 13) if uses.expected(key(number)) is not None}
    assert known == set(list(order)[-remembered:])
