"""Which request continues which is told from keys alone, and told right."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from heat_models import chain, ending, key, request

from pagoda.core.identity import Key
from pagoda.core.policy import reuse, sessions
from pagoda.core.policy.port import Hint
from pagoda.core.policy.reuse import Kind
from pagoda.core.policy.sessions import Sessions, Visit, whole_blocks

SYSTEM = (200, 201, 202)  # blocks that conversations begin with
PART = 253  # the number of a last block that is not full


@dataclass
class Told:
    """Sessions, and what they tell their model of: chains that are left, by number, and the
    numbers of those that are continued."""

    sessions: Sessions = field(default_factory=Sessions)
    left: list[tuple[Kind, float]] = field(default_factory=list)
    continued: list[tuple[int, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        model = self.sessions.model
        observe, reused = model.observe, model.reused

        def observed(kind: Kind, at_s: float) -> int:
            self.left.append((kind, at_s))
            return observe(kind, at_s)

        def reused_(number: int, at_s: float) -> None:
            self.continued.append((number, at_s))
            reused(number, at_s)

        model.observe, model.reused = observed, reused_  # type: ignore[method-assign]

    def ask(
        self, keys: list[Key], answer: list[Key], at_s: float = 0.0, hint: Hint = Hint.NONE
    ) -> tuple[Visit, Kind | None]:
        """A request and its end; the answer follows the prompt's whole blocks."""
        asked = request(keys, at_s, hint)
        visit = self.sessions.begin(asked)
        whole = keys[:-1] if keys and keys[-1].endswith(bytes([PART + 1])) else keys
        return visit, self.sessions.end(visit, asked, ending([*whole, *answer], at_s))


@dataclass
class Chat:
    """A conversation as it really goes."""

    number: int
    path: tuple[int, ...]
    turns: int = 0
    observation: int | None = None


def test_turns_are_those_of_the_conversations() -> None:
    """Many conversations behind one system prompt take turns in any order, with prompts that
    end within a block and answers of any length: every request is known for the turn that it
    is, and continues exactly the chain that its last turn left."""
    rng = random.Random(4)
    told = Told()
    chats = [Chat(number, (*SYSTEM, number)) for number in range(30)]
    expected: list[tuple[int, float]] = []
    for second in range(400):
        chat = rng.choice(chats)
        part = [key(*chat.path, PART)] if rng.random() < 0.5 else []
        answer = tuple(rng.randrange(100) for _ in range(rng.randrange(3)))
        whole = len(chat.path)
        if chat.observation is not None:
            expected.append((chat.observation, second))
        keys = [*chain(*chat.path), *part]
        visit, kind = told.ask(keys, chain(*chat.path, *answer)[whole:], second)
        chat.turns, chat.observation = chat.turns + 1, len(told.left) - 1
        assert visit.kind.turn == chat.turns
        assert visit.known + visit.kind.fresh == len(keys)
        assert kind == visit.kind
        chat.path += (*answer, rng.randrange(100), rng.randrange(100))
    assert told.continued == expected
    assert [at_s for _, at_s in told.left] == list(range(400))


def test_what_a_turn_knows_and_continues() -> None:
    """Known is all that earlier requests had, answers with it; continued ends where the last
    turn's prompt did."""
    told = Told()
    first, _ = told.ask(chain(1, 2, 3), chain(1, 2, 3, 4, 5)[3:])
    assert (first.known, first.continued, first.kind) == (0, 0, Kind(1, 3, Hint.NONE))
    second, _ = told.ask(chain(1, 2, 3, 4, 5, 6), [])
    assert (second.known, second.continued, second.kind) == (5, 3, Kind(2, 1, Hint.NONE))


def test_an_answer_is_not_shared_with_the_next_turn() -> None:
    """What a session's last turn left is its own; what another session has of it, is shared."""
    told = Told()
    told.ask(chain(1, 2), chain(1, 2, 3, 4)[2:])
    told.ask(chain(1, 2, 3, 4, 5), [])
    assert all(told.sessions.shared.heat(block) is None for block in chain(1, 2, 3, 4, 5))
    told.ask(chain(1, 2, 3, 9), [])
    assert [told.sessions.shared.heat(block) is None for block in chain(1, 2, 3, 4)] == [
        False,
        False,
        False,
        True,
    ]


def test_a_retry_is_the_next_turn() -> None:
    """The same prompt once more continues what the first left."""
    told = Told()
    told.ask(chain(1, 2, 3), [], 10.0)
    again, kind = told.ask(chain(1, 2, 3), [], 14.0)
    assert (again.kind.turn, again.kind.fresh, again.continued) == (2, 0, 3)
    assert told.continued == [(0, 14.0)]
    assert kind == again.kind


def test_a_prompt_of_others_has_no_chain() -> None:
    """One that has no block of its own and continues nobody is not observed: its blocks wait for
    sessions, not for its next turn."""
    told = Told()
    told.ask(chain(*SYSTEM, 1), [])
    told.ask(chain(*SYSTEM, 2), [])
    for keys in (chain(*SYSTEM), [*chain(*SYSTEM), key(*SYSTEM, PART)], [], [key(PART)]):
        visit, kind = told.ask(keys, [])
        assert kind is None
        assert visit.kind.turn == 1
    assert len(told.left) == 2
    assert told.continued == []


def test_requests_that_overlap() -> None:
    """Two of one session at once: both continue what was there when they came, the first of
    them takes the mark; the next turn continues the one that ended last. A turn that comes
    while the one before is open continues nothing."""
    told = Told()
    told.ask(chain(1), [], 0.0)
    one, two = request(chain(1, 2), 1.0), request(chain(1, 3), 2.0)
    visits = [told.sessions.begin(one), told.sessions.begin(two)]
    assert [visit.kind.turn for visit in visits] == [2, 1]
    third = request(chain(1, 3, 4), 3.0)
    early = told.sessions.begin(third)
    assert (early.kind.turn, early.known) == (1, 2)
    for visit, asked in zip([*visits, early], (one, two, third), strict=True):
        told.sessions.end(visit, asked, ending(asked.keys))
    assert told.left == [
        (Kind(1, 1, Hint.NONE), 0.0),
        (Kind(2, 1, Hint.NONE), 1.0),
        (Kind(1, 1, Hint.NONE), 2.0),
        (Kind(1, 1, Hint.NONE), 3.0),
    ]
    last, _ = told.ask(chain(1, 3, 4, 5), [], 4.0)
    assert (last.kind.turn, last.continued) == (2, 3)
    assert told.continued == [(0, 1.0), (3, 4.0)]


def test_what_is_said_at_the_end_is_later_news() -> None:
    """A hint of the ending replaces that of the request; none leaves it."""
    sessions_ = Sessions()
    for number, (said, later, kept) in enumerate(
        [
            (Hint.ALIVE, Hint.CLOSED, Hint.CLOSED),
            (Hint.ALIVE, Hint.NONE, Hint.ALIVE),
            (Hint.NONE, Hint.TOOL, Hint.TOOL),
        ]
    ):
        asked = request(chain(number), hint=said)
        kind = sessions_.end(sessions_.begin(asked), asked, ending(asked.keys, hint=later))
        assert kind is not None
        assert kind.hint is kept


def test_one_that_ends_early_marks_what_there_is() -> None:
    """A request that was cancelled before its prompt was computed. Its mark stood at the last
    but one block of the prompt, which nothing had."""
    told = Told()
    asked = request(chain(1, 2, 3, 4))
    assert told.sessions.end(told.sessions.begin(asked), asked, ending(chain(1, 2))) is not None
    visit, _ = told.ask(chain(1, 2, 7), [])
    assert (visit.kind.turn, visit.continued) == (2, 2)
    asked = request(chain(9, 8))
    assert told.sessions.end(told.sessions.begin(asked), asked, ending([])) is None


@pytest.mark.parametrize("whole", range(5))
def test_whole_blocks_are_the_common_ones(whole: int) -> None:
    """For prompts that end within a block, on its end, or are cut short, with and without an
    answer."""
    keys = chain(*range(whole))
    for prompt in (keys, [*keys, key(*range(whole), PART)]):
        for answer in ((), (7,), (7, 8)):
            assert whole_blocks(prompt, chain(*range(whole), *answer)) == whole
        for cut in range(whole):
            assert whole_blocks(prompt, keys[:cut]) == cut


def test_what_is_remembered_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks of observations that left the window go with them, and keys as others come: a
    session is continued as long as its mark is there, and known as long as its keys are."""
    monkeypatch.setattr(reuse, "_WINDOW", 40)
    monkeypatch.setattr(sessions, "_REMEMBERED", 150)
    told = Told()
    for number in range(240):
        told.ask(chain(number, 1, 2), [], float(number))
    assert (len(told.sessions._marks), len(told.sessions._seen)) == (40, 150)
    for number, turn, known in ((200, 2, 3), (199, 1, 3), (190, 1, 3), (189, 1, 0)):
        visit = told.sessions.begin(request(chain(number, 1, 2)))
        assert (visit.kind.turn, visit.known) == (turn, known)
