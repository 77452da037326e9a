"""What shows that an answer was restored: the server's own reports, held against each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pagoda.verify.answers import Answer
from pagoda.verify.judge import Finding, Reason, Trial, judge

USAGE, METRICS, RESET = "usage", "metrics", "reset"


@dataclass(frozen=True, slots=True)
class Proof:
    """Prompt tokens that came from below the device, None where no figure is for one answer; and
    what counted them: the answer's usage, the server's metrics, or, after a reset, its cached
    tokens."""

    restored: int | None
    counted_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Emptied:
    """How prompts were pushed out, and whether then nothing was left on the device (`sure`)."""

    name: str
    sure: bool


def judged(
    trial: Trial,
    emptied: Emptied,
    *,
    counted: float | None,
    salted: bool,
    concurrent: bool = False,
) -> Finding:
    """The verdict on a canary, and what proves that it was restored; figures as `doubt_of` has
    them."""
    answers = trial.crowd_restored if concurrent else trial.restored
    doubt = doubt_of(trial, answers, counted=counted, emptied=emptied.sure, salted=salted)
    finding = replace(judge(trial, doubt=doubt, concurrent=concurrent), emptied=emptied.name)
    if doubt is not None:
        return finding
    proof = proof_of(answers[-1], counted=counted, emptied=emptied.sure, concurrent=concurrent)
    return replace(finding, restored=proof.restored, counted_by=proof.counted_by)


def proof_of(answer: Answer, *, counted: float | None, emptied: bool, concurrent: bool) -> Proof:
    """What proves that an answer was restored of which there is no doubt. `concurrent`: `counted`
    is for others as well."""
    by = (USAGE,) * bool(answer.restored) + (METRICS,) * bool(counted)
    if answer.restored is not None:
        return Proof(answer.restored, by)
    if counted and not concurrent:
        return Proof(int(counted), by)
    return Proof(answer.cached if emptied else None, by or (RESET,))


def doubt_of(
    trial: Trial, restored: Sequence[Answer], *, counted: float | None, emptied: bool, salted: bool
) -> Reason | None:
    """Why it is not proven that `restored` came from below the device; None when it is.
    `counted` is what the server's metrics rose by meanwhile, None where it has none; `emptied`:
    nothing was left on the device."""
    if any(_claims_too_much(answer, salted=salted) for answer in trial.cold):
        return Reason.COLD_CLAIM
    if not restored:
        return Reason.NOT_RESTORED
    doubts = [_doubt(trial, answer, counted=counted, emptied=emptied) for answer in restored]
    return next((doubt for doubt in doubts if doubt is not None), None)


def _claims_too_much(answer: Answer, *, salted: bool) -> bool:
    """Under a salt of its own nothing can be cached. Without salts, what stands before the
    prompt may be (a chat's template), but not most of it."""
    allowed = 0 if salted else answer.prompt_tokens // 2
    return (answer.cached or 0) > allowed


def _doubt(trial: Trial, answer: Answer, *, counted: float | None, emptied: bool) -> Reason | None:
    if answer.cached == 0:
        never = all(device.cached == 0 for device in trial.device)
        return Reason.NOT_CACHED if never else Reason.NOT_RESTORED
    if answer.restored == 0:
        return Reason.NOT_RESTORED
    if counted:
        return None
    if answer.restored or (answer.cached and emptied):
        return None if counted is None else Reason.CONTRADICTION
    if counted is None:
        return Reason.NO_EVIDENCE
    return Reason.NOT_PUSHED_OUT if answer.cached else Reason.NOT_RESTORED
