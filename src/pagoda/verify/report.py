"""The outcome of one run, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from textwrap import wrap

from pagoda.verify.ask import Manner
from pagoda.verify.evidence import METRICS, RESET, USAGE
from pagoda.verify.judge import Finding, Reason, Verdict

_WIDTH = 80
_ROW = "{:>6}  {:12}  {:11}  {:>8}  {:14}  {:>10}  {:>7}"
_HEADER = _ROW.format(
    "tokens", "asked", "verdict", "restored", "counted by", "difference", "repeats"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one run found. `pushed_out` says how prompts left the device cache, in each way that
    the server has, `counter` which of its metrics counts what is restored."""

    url: str
    model: str
    verdict: Verdict
    reason: Reason | None
    manner: Manner
    pushed_out: tuple[str, ...]
    counter: str | None
    findings: Sequence[Finding]
    requests: int
    seconds: float

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)

    def as_text(self) -> str:
        """A line a prompt, with what proves it; then the verdict. Lines of 80 characters."""
        return "\n".join([*self._table(), *self._ending()])

    def outcome(self) -> str:
        """The verdict, and the reason where there is one."""
        return f"{self.verdict.value}{f': {self.reason.value}' if self.reason else ''}"

    def worst(self) -> float:
        """The largest difference of any prompt; 0 when none was measured."""
        return max((finding.difference or 0.0 for finding in self.findings), default=0.0)

    def floor(self) -> float:
        """The largest difference between repeats; 0 when none was measured."""
        return max((finding.floor or 0.0 for finding in self.findings), default=0.0)

    def restored_tokens(self) -> int:
        """Prompt tokens of answers that were proven equal or different, and not computed."""
        told = (f for f in self.findings if f.verdict is not Verdict.UNKNOWN and f.counted_by)
        return sum(finding.cached or 0 for finding in told)

    def _table(self) -> Iterator[str]:
        """The findings, below a heading for each way to push out."""
        for way in self.pushed_out:
            group = [finding for finding in self.findings if finding.emptied == way]
            if group:
                yield f"after {way}"
                yield _HEADER
                for finding in group:
                    yield from _lines(finding)

    def _ending(self) -> Iterator[str]:
        used = {by for finding in self.findings for by in finding.counted_by}
        meant = {
            USAGE: "restored tokens in an answer's usage",
            METRICS: f"{self.counter} of /metrics, which rose meanwhile",
            RESET: "cached tokens in an answer's usage, after the device cache was emptied",
        }
        yield ""
        for by, what in meant.items():
            if by in used:
                yield from wrap(f"{by}: {what}", _WIDTH)
        how = "chats" if self.manner.chat else "completions"
        salts = "salts of their own" if self.manner.salts else "prefixes of their own"
        yield from wrap(
            f"{self.model} at {self.url}: {self.requests} {how} with {salts}, {self.seconds:.1f} s",
            _WIDTH,
            break_long_words=False,
            break_on_hyphens=False,
        )
        yield from wrap(self.outcome(), _WIDTH)


def _lines(finding: Finding) -> Iterator[str]:
    """The figures below the header, then what else is to say, a line each."""
    among = "among others" if finding.concurrent else "alone"
    yield _ROW.format(
        finding.tokens, among, finding.verdict.value, _figure(finding.restored),
        ", ".join(finding.counted_by) or "-", _figure(finding.difference),
        _figure(finding.floor, digits=2),
    )  # fmt: skip
    if finding.cached and not finding.counted_by:
        yield f"        {finding.cached:,} cached, not proven to be restored"
    if finding.first_token is not None:
        yield f"        first differing token {finding.first_token}"
    if finding.reason is not None:
        yield from (f"        {line}" for line in wrap(finding.reason.value, _WIDTH - 8))


def _figure(value: float | None, *, digits: int = 4) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.{digits}g}"
