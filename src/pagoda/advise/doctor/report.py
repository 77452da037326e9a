"""The report for readers and for machines."""

from __future__ import annotations

from collections.abc import Iterable

from .judge import Finding, Report, Symptom
from .model import Cause, Event

__all__ = ["cause_as_dict", "explain", "finding_as_text", "report_as_dict", "report_as_text"]

_LABELS = ((0.8, "high"), (0.6, "medium"), (0.0, "low"))


def report_as_dict(report: Report) -> dict[str, object]:
    """The stable shape of `pagoda doctor --json`."""
    return {
        "verdict": report.verdict,
        "causes": [_finding(finding) for finding in report.causes],
        "symptoms": [_symptom(symptom) for symptom in report.symptoms],
        "noise": report.noise,
        "collect": list(report.collect),
    }


def cause_as_dict(cause: Cause) -> dict[str, object]:
    """A cause as `pagoda doctor --explain CAUSE --json` prints it."""
    return {
        "id": cause.id,
        "kind": cause.kind,
        "sentence": cause.sentence,
        "remedy": cause.remedy,
        "will_not_help": [{"what": what, "why": why} for what, why in cause.will_not_help],
        "collect": list(cause.collect),
        "confidence": cause.confidence,
        "reference": cause.reference,
    }


def _finding(finding: Finding) -> dict[str, object]:
    cause = finding.cause
    return cause_as_dict(cause) | {
        "sentence": finding.sentence,
        "confidence": finding.confidence,
        "evidence": _evidence(finding.evidence),
    }


def _symptom(symptom: Symptom) -> dict[str, object]:
    return {
        "id": symptom.id,
        "sentence": symptom.sentence,
        "count": symptom.count,
        "evidence": _evidence(symptom.evidence),
    }


def _evidence(events: Iterable[Event]) -> list[dict[str, object]]:
    return [{"file": event.file, "line": event.line, "text": event.text} for event in events]


def report_as_text(report: Report) -> str:
    """The report as plain text, diagnosis first."""
    lines = [_headline(report)]
    for number, finding in enumerate(report.causes):
        lines += ["", *_cause_lines(finding, first=number == 0)]
    if report.symptoms:
        lines += ["", "Symptoms (consequences, or not explained):"]
        lines += [
            f"  - {symptom.sentence} [{symptom.id}, {symptom.count}×]"
            + "".join(f"\n      {_place(event)}" for event in symptom.evidence[:1])
            for symptom in report.symptoms
        ]
    if report.noise:
        lines += ["", f"{report.noise} harmless lines were left out."]
    if report.collect:
        lines += ["", "Collect for certainty:", *(f"  - {item}" for item in report.collect)]
    return "\n".join(lines)


def finding_as_text(finding: Finding) -> str:
    """One cause, as a live log's reader is told of it."""
    return "\n".join(_cause_lines(finding, first=True))


def _headline(report: Report) -> str:
    if report.verdict == "healthy":
        return "Healthy: no fault found."
    if report.verdict == "insufficient":
        return "Not enough evidence: something may be wrong, but no known cause fits."
    count = len(report.causes)
    return "One cause found." if count == 1 else f"{count} causes found, the likeliest first."


def _cause_lines(finding: Finding, *, first: bool) -> list[str]:
    cause = finding.cause
    return [
        f"{'Diagnosis' if first else 'Also'}: {cause.id} ({cause.kind}, "
        f"confidence {_label(finding.confidence)}, {finding.confidence:.2f})",
        f"  {finding.sentence}",
        "  Evidence:",
        *(f"    {_place(event)}" for event in finding.evidence),
        f"  What to do: {cause.remedy}",
        "  Will not help:",
        *(f"    - {what}: {why}" for what, why in cause.will_not_help),
        f"  Seen before: {cause.reference}",
    ]


def explain(cause: Cause) -> str:
    """All that is known of a cause, as plain text."""
    return "\n".join(
        [
            f"{cause.id} ({cause.kind})",
            "",
            cause.sentence,
            "",
            f"What to do: {cause.remedy}",
            "",
            "Will not help:",
            *(f"  - {what}: {why}" for what, why in cause.will_not_help),
            "",
            "Collect:",
            *(f"  - {item}" for item in cause.collect),
            "",
            f"Usual confidence: {_label(cause.confidence)} ({cause.confidence:.2f})",
            f"Seen before: {cause.reference}",
        ]
    )


def _place(event: Event) -> str:
    return f"{event.file}:{event.line}: {event.text[:200]}"


def _label(confidence: float) -> str:
    return next(label for floor, label in _LABELS if confidence >= floor)
