"""What the answers to one canary prove: pure decisions over what was measured.

A restored prefix is computed on like a prefix that the device held, so that the two answers of
one length of prefix agree as closely as two repeats do. A prompt that is computed as a whole runs
other kernels on other shapes; how far that alone moves an answer is measured too (`shape`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    NOT_PUSHED_OUT = "flooding was too little: the prompts were still on the device"
    DEVICE_ONLY = "of the device cache alone, for nothing came from below it"
    NO_LOGPROBS = "the server gives no log-probabilities, and equal texts prove little"
    NOT_DETERMINISTIC = "the server's own repeats differ"
    EMPTY = "the answer is empty"
    COLD_CLAIM = "the server reports cached tokens for a prompt that it never saw"
    CONTRADICTION = "the server reports restored tokens, but its metrics count none"
    NO_EVIDENCE = "nothing tells if the prefix was restored or still on the device"
    OTHER_SHAPE = "the restored prefix has another length, which alone may explain it"
    RESTORED = "the restored answer is not the computed one"
    ANEW = "an answer that is said to be computed anew is not the one computed before"
    DEVICE = "the answer from the device cache is not the computed one"


@dataclass(slots=True)
class Trial:
    """A canary's answers: computed under salts of their own, from the device, from the device
    under another salt, restored; and two of these while others were answered. `crowd_noise` is how
    far apart any canary's answers were in such a crowd."""

    target: int
    cold: list[Answer] = field(default_factory=list)
    device: list[Answer] = field(default_factory=list)
    device_apart: list[Answer] = field(default_factory=list)
    restored: list[Answer] = field(default_factory=list)
    crowd_device: list[Answer] = field(default_factory=list)
    crowd_restored: list[Answer] = field(default_factory=list)
    crowd_noise: Difference | None = None

    @property
    def tokens(self) -> int:
        """The prompt's length."""
        return self.cold[0].prompt_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The verdict on one canary, alone or among others, with the figures behind it. `emptied`
    says how it was pushed out, `restored` are prompt tokens proven to come from below the device,
    `counted_by` what proves it."""

    tokens: int
    concurrent: bool
    emptied: str = ""
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
    if doubt is Reason.NOT_RESTORED and _from_device(trial) and measured.shape is not None:
        return _device_alone(trial, restored, measured, concurrent=concurrent)
    if doubt is not None or not restored:
        return Verdict.UNKNOWN, doubt or Reason.NOT_RESTORED, _NOTHING
    return _compared(trial, restored, measured, concurrent=concurrent)


def _compared(
    trial: Trial, restored: Sequence[Answer], measured: _Measured, *, concurrent: bool
) -> Decision:
    """Restored answers against the one from the device cache."""
    found = largest(difference(trial.device[0], answer) for answer in restored)
    same_shape = not concurrent and all(_same_prefix(trial.device[0], a) for a in restored)
    if found.logprob is None:
        return (*_by_text(found, same_shape=same_shape), found)
    if _within(found, measured, same_shape=same_shape):
        return Verdict.EQUAL, None, found
    certain = same_shape or measured.floor() == 0.0 or _is_gross(found, measured.noise)
    verdict = Verdict.DIFFERS if certain else Verdict.UNKNOWN
    return verdict, Reason.RESTORED if certain else Reason.OTHER_SHAPE, found


def _device_alone(
    trial: Trial, restored: Sequence[Answer], measured: _Measured, *, concurrent: bool
) -> Decision:
    """For a prompt of which nothing came back from below: the device's answer is the computed
    one, as far as another shape lets us tell, and what was computed anew is what it was before."""
    assert measured.shape is not None, "the device had it"
    if measured.shape.logprob is None:
        return Verdict.UNKNOWN, Reason.NO_LOGPROBS, _NOTHING
    found = largest(
        difference(trial.device[0] if answer.cached else trial.cold[0], answer)
        for answer in restored
    )
    changed = not concurrent and not _within(found, measured, same_shape=True)
    if changed or _is_gross(found, measured.noise):
        return Verdict.DIFFERS, Reason.ANEW, found
    return Verdict.EQUAL, Reason.DEVICE_ONLY, measured.shape


def _measure(trial: Trial, *, concurrent: bool) -> _Measured:
    """The floor. Under another salt the same prefix was computed anew, and a suffix of the same
    length on it. Among others, batches change and with them the order of sums: what that does to
    answers from the device counts as noise."""
    repeats = [widest(trial.cold), widest(trial.device)]
    repeats += [difference(trial.device[0], answer) for answer in trial.device_apart]
    if concurrent:
        repeats += [difference(trial.device[0], answer) for answer in trial.crowd_device]
        repeats += [trial.crowd_noise] if trial.crowd_noise else []
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


def _from_device(trial: Trial) -> bool:
    """Whether the server says that it answered from its device cache, under every salt."""
    return all(answer.cached for answer in (*trial.device, *trial.device_apart))


def _same_prefix(one: Answer, other: Answer) -> bool:
    return one.cached is not None and one.cached == other.cached


def overall(
    findings: Sequence[Finding], *, need_restored: bool = False
) -> tuple[Verdict, Reason | None]:
    """The verdict on the server: one difference decides; prompts too short for a block of it do
    not count against those that are longer, and a cache that gives nothing back at all not
    against one that does. With `need_restored` the device cache alone proves nothing."""
    for finding in findings:
        if finding.verdict is Verdict.DIFFERS:
            return Verdict.DIFFERS, finding.reason
    ways = list(dict.fromkeys(finding.emptied for finding in findings))
    groups = [[finding for finding in findings if finding.emptied == way] for way in ways]
    spoken = [group for group in groups if not _is_silent(group)]
    if spoken:
        doubts = [_open_of(group, _is_restored) for group in spoken]
    elif need_restored:
        doubts = [Reason.NOT_RESTORED]
    else:
        doubts = [_open_of(findings, _is_equal)]
    doubt = next((doubt for doubt in doubts if doubt is not None), None)
    if doubt is not None:
        return Verdict.UNKNOWN, doubt
    return Verdict.EQUAL, None if spoken else Reason.DEVICE_ONLY


_TOO_SHORT = {Reason.NOT_CACHED, Reason.NOT_RESTORED, Reason.DEVICE_ONLY}


def _is_silent(group: Sequence[Finding]) -> bool:
    """Whether nothing came back for any prompt: there is no cache where one was looked for."""
    return all(finding.reason in _TOO_SHORT for finding in group)


def _is_equal(finding: Finding) -> bool:
    return finding.verdict is Verdict.EQUAL


def _is_restored(finding: Finding) -> bool:
    return _is_equal(finding) and finding.reason is not Reason.DEVICE_ONLY


def _open_of(group: Sequence[Finding], proves: Callable[[Finding], bool]) -> Reason | None:
    """What is left open by prompts of one group; None when it is proven."""
    proven = [finding.tokens for finding in group if proves(finding)]
    for finding in group:
        too_short = finding.reason in _TOO_SHORT and bool(proven) and finding.tokens < min(proven)
        if not proves(finding) and not too_short:
            short = finding.reason is Reason.DEVICE_ONLY
            return Reason.NOT_RESTORED if short else finding.reason
    return None if proven else Reason.NOT_CACHED
