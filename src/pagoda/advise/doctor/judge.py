"""From facts to a verdict: which causes hold, which one is the diagnosis.

A cause that another present cause explains is demoted to a symptom. What remains is
ordered by role, then depth (hardware before host before network before engine), then
confidence, then time. A cause with the role "symptom" becomes the diagnosis only when no
root is there, and says so in its sentence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from .facts import Facts
from .model import Cause, Event, Sign

__all__ = ["Finding", "Report", "Symptom", "judge"]

Verdict = Literal["healthy", "cause", "insufficient"]
_MAX_EVIDENCE = 6


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause that holds, with its evidence and where it was seen."""

    cause: Cause
    sentence: str
    confidence: float
    evidence: tuple[Event, ...]
    where: str = ""


@dataclass(frozen=True, slots=True)
class Symptom:
    """Something wrong that is a consequence, or whose cause the log does not show."""

    id: str
    sentence: str
    count: int
    evidence: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """The doctor's answer; `causes` are ordered and the first is the diagnosis."""

    verdict: Verdict
    causes: tuple[Finding, ...]
    symptoms: tuple[Symptom, ...]
    noise: int
    collect: tuple[str, ...]


def judge(facts: Facts, causes: Iterable[Cause], signs: Iterable[Sign]) -> Report:
    """Weigh the facts."""
    signs = tuple(signs)
    held = [finding for cause in causes if (finding := _hold(facts, cause)) is not None]
    leading, demoted = _separate(held)
    leading.sort(key=lambda finding: _rank(facts, finding))
    shown = {(event.file, event.line) for finding in leading for event in finding.evidence}
    symptoms = [_demote(finding) for finding in demoted]
    symptoms += [found for sign in signs if (found := _symptom(facts, sign, shown)) is not None]
    noise = sum(facts.count(sign.id) for sign in signs if sign.role == "noise")
    verdict = _verdict(facts, leading, symptoms)
    return Report(
        verdict=verdict,
        causes=tuple(leading),
        symptoms=tuple(symptoms),
        noise=noise,
        collect=_collect(verdict, leading, [sign for sign in signs if facts.has(sign.id)]),
    )


def _hold(facts: Facts, cause: Cause) -> Finding | None:
    """The cause as a finding, if the facts bear it out."""
    if cause.any and not facts.has(*cause.any):
        return None
    if not all(facts.has(sign) for sign in cause.every) or facts.has(*cause.none):
        return None
    detail, confidence = "", cause.confidence
    if cause.check is not None:
        answer = cause.check(facts)
        if answer is None:
            return None
        detail = answer.detail
        confidence = cause.confidence if answer.confidence is None else answer.confidence
    evidence = _evidence(facts, (*cause.any, *cause.every))
    where = _where(facts, (*cause.any, *cause.every))
    sentence = " ".join(part for part in (cause.sentence, detail, where) if part)
    return Finding(cause, sentence, confidence, evidence, where)


def _evidence(facts: Facts, signs: tuple[str, ...]) -> tuple[Event, ...]:
    """Up to six lines: each sign's first, then more of them, in order of time."""
    chosen: dict[tuple[str, int], Event] = {}
    for depth in range(_MAX_EVIDENCE):
        for sign in signs:
            tally = facts.tallies.get(sign)
            if tally and depth < len(tally.events) and len(chosen) < _MAX_EVIDENCE:
                event = tally.events[depth]
                chosen.setdefault((event.file, event.line), event)
    return tuple(sorted(chosen.values(), key=facts.order))


def _where(facts: Facts, signs: tuple[str, ...]) -> str:
    """Names the few ranks, nodes or files that show a cause among others that do not."""
    ranks = facts.ranks_of(*signs)
    tallies = [facts.tallies[sign] for sign in signs if sign in facts.tallies]
    nodes = {node for tally in tallies for node in tally.nodes}
    files = {event.file for tally in tallies for event in tally.events}
    parts = []
    if ranks and len(ranks) <= max(1, len(facts.ranks) // 2) and len(facts.ranks) > 1:
        parts.append(f"on rank {', '.join(map(str, sorted(ranks)[:8]))}")
    if nodes and len(nodes) < len(facts.nodes):
        parts.append(f"on node {', '.join(sorted(nodes)[:4])}")
    if len(facts.files) > 1 and len(files) < len(facts.files):
        parts.append(f"in file {', '.join(sorted(files)[:4])}")
    return f"It is seen only {', '.join(parts)}." if parts else ""


def _separate(held: list[Finding]) -> tuple[list[Finding], list[Finding]]:
    """Findings that stand on their own, and those that another one explains."""
    explained = {name for finding in held for name in finding.cause.explains}
    roots = any(
        finding.cause.role == "root" and finding.cause.id not in explained for finding in held
    )
    leading: list[Finding] = []
    demoted: list[Finding] = []
    for finding in held:
        consequence = finding.cause.id in explained or (roots and finding.cause.role == "symptom")
        (demoted if consequence else leading).append(finding)
    # Two causes may explain each other only through a mistake in the rules; keep one then.
    return (leading, demoted) if leading else (demoted[:1], demoted[1:])


def _rank(facts: Facts, finding: Finding) -> tuple[float, float, tuple[float, int], str]:
    first = min((facts.order(event) for event in finding.evidence), default=(float("inf"), 0))
    return (-finding.cause.depth, -finding.confidence, first, finding.cause.id)


def _demote(finding: Finding) -> Symptom:
    return Symptom(
        finding.cause.id, finding.cause.sentence, len(finding.evidence), finding.evidence
    )


def _symptom(facts: Facts, sign: Sign, shown: set[tuple[str, int]]) -> Symptom | None:
    """A symptom sign that was seen and is not evidence of a cause already."""
    tally = facts.tallies.get(sign.id)
    if sign.role != "symptom" or tally is None:
        return None
    if any((event.file, event.line) in shown for event in tally.events):
        return None
    if sign.passing and facts.recovered(sign.id):
        return None
    return Symptom(sign.id, sign.title, tally.count, tuple(tally.events[:3]))


def _verdict(facts: Facts, leading: list[Finding], symptoms: list[Symptom]) -> Verdict:
    if leading:
        return "cause"
    if symptoms:
        return "insufficient"
    recognised = facts.prefixed >= 1 or bool(facts.tallies)
    return "healthy" if recognised else "insufficient"


def _collect(verdict: Verdict, leading: list[Finding], seen: list[Sign]) -> tuple[str, ...]:
    """What else to gather: for the diagnosis, or, without one, for what was seen."""
    if leading:
        return leading[0].cause.collect
    if verdict == "healthy":
        return ()
    wanted = [sign.collect for sign in seen if sign.collect]
    wanted += [
        "the log from the start of the process to a minute after the failure, of every rank "
        "and node",
        "the kernel's log of the same time (journalctl -k or dmesg -T)",
    ]
    return tuple(dict.fromkeys(wanted))
