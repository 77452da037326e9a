"""The outcome of one run, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from pagoda.verify.ask import Manner
from pagoda.verify.judge import Finding, Reason, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one run found. `pushed_out` says how prompts left the device cache."""

    url: str
    model: str
    verdict: Verdict
    reason: Reason | None
    manner: Manner
    pushed_out: str
    findings: Sequence[Finding]
    requests: int
    seconds: float

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)

    def as_text(self) -> str:
        """A line a prompt, then the verdict."""
        return "\n".join([*map(_line, self.findings), *self._ending()])

    def worst(self) -> float:
        """The largest difference of any prompt; 0 when none was measured."""
        return max((finding.difference or 0.0 for finding in self.findings), default=0.0)

    def floor(self) -> float:
        """The largest difference between repeats; 0 when none was measured."""
        return max((finding.floor or 0.0 for finding in self.findings), default=0.0)

    def restored_tokens(self) -> int:
        """Prompt tokens of answers that were proven equal or different, and not computed."""
        told = (f for f in self.findings if f.verdict is not Verdict.UNKNOWN)
        return sum(finding.cached or 0 for finding in told)

    def _ending(self) -> Iterator[str]:
        yield ""
        how = "chats" if self.manner.chat else "completions"
        salts = "salts of their own" if self.manner.salts else "prefixes of their own"
        yield (
            f"{self.model} at {self.url}: {self.requests} {how} with {salts}, "
            f"pushed out by {self.pushed_out}, {self.seconds:.1f} s"
        )
        yield f"{self.verdict.value}{f': {self.reason.value}' if self.reason else ''}"


def _line(finding: Finding) -> str:
    among = "among others" if finding.concurrent else "alone"
    parts = [f"{finding.tokens:5} tokens  {among:12}  {finding.verdict.value:11}"]
    if finding.cached is not None:
        parts.append(f"{finding.cached} cached")
    if finding.first_token is not None:
        parts.append(f"first differing token {finding.first_token}")
    if finding.difference is not None:
        parts.append(f"difference {finding.difference:.4g} (repeats {finding.floor or 0.0:.4g})")
    if finding.reason is not None:
        parts.append(finding.reason.value)
    return "  ".join(parts)
