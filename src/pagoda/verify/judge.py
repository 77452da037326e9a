"""What the answers to one canary prove: pure decisions over what was measured.

A restored prefix is computed on like a prefix that the device held, so that the two answers of
one length of prefix agree as closely as two repeats do. A prompt that is computed as a whole runs
other kernels on other shapes; how far that alone moves an answer is measured too (`shape`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pagoda.verify.answers import Answer
from pagoda.verify.compare import Difference, difference, largest, widest

EPSILON = 1e-4  # servers print log-probabilities rounded
MARGIN = 3.0  # a floor from a few repeats is too low
NOISE_LIMIT = 0.5  # repeats further apart prove nothing
GROSS = 1.0  # no rounding of sums does that


class Verdict(StrEnum):
    """What can be said."""

    EQUAL = "equal"
    DIFFERS = "differs"
    UNKNOWN = "cannot tell"


class Reason(StrEnum):
    """Why something cannot be said, or what differs."""

    NOT_CACHED = "nothing was cached, even on the device"
    NOT_RESTORED = "nothing was restored"
    NO_LOGPROBS = "the server gives no log-probabilities, and equal texts prove little"
    NOT_DETERMINISTIC = "the server's own repeats differ"
    EMPTY = "the answer is empty"
    COLD_CLAIM = "the server reports cached tokens for a prompt that it never saw"
    CONTRADICTION = "the server reports restored tokens, but its metrics count none"
    NO_EVIDENCE = "nothing tells if the prefix was restored or still on the device"
    OTHER_SHAPE = "the restored prefix has another length, which alone may explain it"
    RESTORED = "the restored answer is not the computed one"
    DEVICE = "the answer from the device cache is not the computed one"


@dataclass(slots=True)
class Trial:
    """A canary's answers: computed under salts of their own, from the device, restored; and the
    last two while others were answered."""

    target: int
    cold: list[Answer] = field(default_factory=list)
    device: list[Answer] = field(default_factory=list)
    restored: list[Answer] = field(default_factory=list)
    crowd_device: list[Answer] = field(default_factory=list)
    crowd_restored: list[Answer] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """The prompt's length."""
        return self.cold[0].prompt_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The verdict on one canary, alone or among others, with the figures behind it. `restored`
    are prompt tokens proven to come from below the device, `counted_by` what proves it."""

    tokens: int
    concurrent: bool
    verdict: Verdict
    reason: Reason | None = None
    first_token: int | None = None
    difference: float | None = None
    floor: float | None = None
    cached: int | None = None
    restored: int | None = None
    counted_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """How far apart answers are that should be the same."""

    noise: Difference  # repeats of one computation
    shape: Difference | None  # computed as a whole against behind a prefix on the device

    def floor(self) -> float:
        """What a difference has to exceed by far."""
        parts = [self.noise.logprob or 0.0]
        if self.shape is not None:
            parts.append(self.shape.logprob or 0.0)
        return max(parts)


def judge(trial: Trial, *, doubt: Reason | None, concurrent: bool) -> Finding:
    """The verdict on a canary. `doubt` says why it is not proven that anything was restored."""
    restored = trial.crowd_restored if concurrent else trial.restored
    measured = _measure(trial, concurrent=concurrent)
    verdict, reason, found = _decide(trial, restored, measured, doubt, concurrent=concurrent)
    return Finding(
        tokens=trial.tokens,
        concurrent=concurrent,
        verdict=verdict,
        reason=reason,
        first_token=found.first_token,
        difference=found.logprob,
        floor=measured.noise.logprob,
        cached=restored[-1].cached if restored else None,
    )


Decision = tuple[Verdict, Reason | None, Difference]
_NOTHING = Difference(None, None)


def _decide(
    trial: Trial,
    restored: Sequence[Answer],
    measured: _Measured,
    doubt: Reason | None,
    *,
    concurrent: bool,
) -> Decision:
    reason = _unfit(trial, measured)
    if reason is not None:
        return Verdict.UNKNOWN, reason, _NOTHING
    if measured.shape is not None and _is_gross(measured.shape, measured.noise):
        return Verdict.DIFFERS, Reason.DEVICE, measured.shape
    if doubt is not None or not restored:
        return Verdict.UNKNOWN, doubt or Reason.NOT_RESTORED, _NOTHING
    found = largest(difference(trial.device[0], answer) for answer in restored)
    same_shape = not concurrent and all(_same_prefix(trial.device[0], a) for a in restored)
    if found.logprob is None:
        return (*_by_text(found, same_shape=same_shape), found)
    if _within(found, measured, same_shape=same_shape):
        return Verdict.EQUAL, None, found
    certain = same_shape or measured.floor() == 0.0 or _is_gross(found, measured.noise)
    verdict = Verdict.DIFFERS if certain else Verdict.UNKNOWN
    return verdict, Reason.RESTORED if certain else Reason.OTHER_SHAPE, found


def _measure(trial: Trial, *, concurrent: bool) -> _Measured:
    """The floor. Among others, batches change and with them the order of sums: what that does
    to answers from the device counts as noise."""
    repeats = [widest(trial.cold), widest(trial.device)]
    if concurrent:
        repeats += [difference(trial.device[0], answer) for answer in trial.crowd_device]
    cached = bool(trial.device) and trial.device[0].cached != 0
    shape = difference(trial.cold[0], trial.device[0]) if cached else None
    return _Measured(noise=largest(repeats), shape=shape)


def _unfit(trial: Trial, measured: _Measured) -> Reason | None:
    """Why nothing can be proven with this canary on this server."""
    if not trial.cold[0].text and not trial.cold[0].positions:
        return Reason.EMPTY
    noise = measured.noise
    without = noise.logprob is None
    if (noise.logprob or 0.0) > NOISE_LIMIT or (without and noise.first_token is not None):
        return Reason.NOT_DETERMINISTIC
    return None


def _within(found: Difference, measured: _Measured, *, same_shape: bool) -> bool:
    """Whether repeats differ as much. Another token is one only where repeats are not exact:
    two candidates of nearly equal probability then change places."""
    floor = (measured.noise.logprob or 0.0) if same_shape else measured.floor()
    exact = floor == 0.0
    return (found.logprob or 0.0) <= MARGIN * floor + EPSILON and not (
        exact and found.first_token is not None
    )


def _by_text(found: Difference, *, same_shape: bool) -> tuple[Verdict, Reason]:
    if found.first_token is not None and same_shape:
        return Verdict.DIFFERS, Reason.RESTORED
    return Verdict.UNKNOWN, Reason.NO_LOGPROBS


def _is_gross(found: Difference, noise: Difference) -> bool:
    return (found.logprob or 0.0) > max(GROSS, MARGIN * (noise.logprob or 0.0))


def _same_prefix(one: Answer, other: Answer) -> bool:
    return one.cached is not None and one.cached == other.cached


def overall(findings: Sequence[Finding]) -> tuple[Verdict, Reason | None]:
    """The verdict on the server: one difference decides; prompts too short for a block of it do
    not count against those that are longer."""
    for finding in findings:
        if finding.verdict is Verdict.DIFFERS:
            return Verdict.DIFFERS, finding.reason
    proven = [finding.tokens for finding in findings if finding.verdict is Verdict.EQUAL]
    open_ones = [finding for finding in findings if finding.verdict is Verdict.UNKNOWN]
    for finding in open_ones:
        too_short = finding.reason in {Reason.NOT_CACHED, Reason.NOT_RESTORED} and (
            bool(proven) and finding.tokens < min(proven)
        )
        if not too_short:
            return Verdict.UNKNOWN, finding.reason
    return (Verdict.EQUAL, None) if proven else (Verdict.UNKNOWN, Reason.NOT_CACHED)
