"""How far apart two answers to one prompt are.

Only tokens up to the first that differs are compared, that one included: behind it the two have
read different texts, and their log-probabilities mean different things.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pagoda.verify.answers import Answer, Position


@dataclass(frozen=True, slots=True)
class Difference:
    """`first_token` is the first that differs, counted from 0, None if none does; `logprob` is
    the largest difference of a log-probability (natural log), None where there are none."""

    first_token: int | None
    logprob: float | None


def difference(one: Answer, other: Answer) -> Difference:
    """Between two answers. Without log-probabilities the texts are compared, by characters."""
    if one.positions is None or other.positions is None:
        return Difference(_first_apart(one.text, other.text), None)
    worst = 0.0
    for at, (mine, theirs) in enumerate(zip(one.positions, other.positions, strict=False)):
        worst = max(worst, _apart(mine, theirs))
        if mine.token != theirs.token:
            return Difference(at, worst)
    lengths = len(one.positions), len(other.positions)
    return Difference(None if lengths[0] == lengths[1] else min(lengths), worst)


def widest(answers: Sequence[Answer]) -> Difference:
    """The largest difference of any of them from the first."""
    return largest(difference(answers[0], other) for other in answers[1:])


def largest(differences: Iterable[Difference]) -> Difference:
    """What covers all of them: the earliest token and the largest log-probability."""
    found = list(differences)
    tokens = [one.first_token for one in found if one.first_token is not None]
    logprobs = [one.logprob for one in found if one.logprob is not None]
    return Difference(min(tokens, default=None), max(logprobs, default=None))


def _apart(mine: Position, theirs: Position) -> float:
    """The largest difference at one token. An alternative that only one side lists is at most
    as likely on the other as the last one listed there."""
    worst = abs(mine.logprob - theirs.logprob) if mine.token == theirs.token else 0.0
    for top, others in ((mine.top, theirs.top), (theirs.top, mine.top)):
        least = min(others.values(), default=0.0)
        for token, logprob in top.items():
            known = others.get(token)
            apart = logprob - least if known is None else abs(logprob - known)
            worst = max(worst, apart)
    return worst


def _first_apart(one: str, other: str) -> int | None:
    if one == other:
        return None
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
