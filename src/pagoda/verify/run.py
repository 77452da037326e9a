"""One run: each canary answered cold, from the device cache, restored; alone and among others."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pagoda.core.errors import ServerError, SettingsError
from pagoda.verify.ask import Asker, Prompt, settle
from pagoda.verify.canaries import Canary, Fitted, fit, probes_at_most, unique_prefix
from pagoda.verify.client import Client, chosen_model
from pagoda.verify.counters import Counters, read_counters
from pagoda.verify.evidence import judged
from pagoda.verify.judge import Finding, Reason, Trial, Verdict, overall
from pagoda.verify.push_out import Flood, PushOut, find_reset
from pagoda.verify.report import Report

LENGTHS = (63, 64, 65, 127, 128, 129, 257, 513)
SHORTEST = 32
_COLD, _DEVICE = 3, 2
_EACH = probes_at_most() + _COLD + _DEVICE + 4  # restored, once more, and twice among others
_SETTING_UP = 12
_SETTLE_TEXT_TOKENS = 300
_POLLS, _POLL_S, _STORING_S = 5, 0.2, 2.0

Tell = Callable[[str], None]


def _quiet(text: str) -> None:
    del text


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run does. `limit` bounds the prompts that it sends, `flood` forbids endpoints that
    empty caches."""

    model: str | None = None
    lengths: Sequence[int] = LENGTHS
    limit: int = 250
    flood: bool = False

    def needed(self) -> int:
        """The most prompts that a run sends, flooding apart."""
        return _SETTING_UP + len(self.lengths) * _EACH

    def check(self) -> None:
        """Raises SettingsError for a plan that cannot be carried out."""
        if not self.lengths or min(self.lengths) < SHORTEST:
            raise SettingsError(
                f"a canary has at least {SHORTEST} tokens", key="--lengths", source="flag"
            )
        if self.needed() > self.limit:
            raise SettingsError(
                f"{len(self.lengths)} lengths may take {self.needed()} requests",
                key="--requests",
                source="flag",
                remedy=f"allow as many with --requests, or name fewer --lengths than {self.limit} "
                "are enough for",
            )


@dataclass(slots=True)
class _Case:
    """A canary on its way: its prompt, its answers, and what the metrics counted for it."""

    canary: Canary
    prompt: Prompt
    trial: Trial
    counted: float | None = None


class Verification:
    """One run against one server."""

    def __init__(
        self,
        client: Client,
        plan: Plan,
        *,
        rng: random.Random,
        tell: Tell = _quiet,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        plan.check()
        self._client = client
        self._plan = plan
        self._rng = rng
        self._tell = tell
        self._sleep = sleep
        self._counter: str | None = None

    def run(self) -> Report:
        """The report. Raises ServerError when the server cannot be used to the end, unless a
        difference was found before."""
        began_s, before = time.monotonic(), self._client.asked
        asker = self._settle()
        cases = [self._fitted(asker, at, target) for at, target in enumerate(self._plan.lengths)]
        push_out = self._push_out(asker)
        findings = self._examine(asker, cases, push_out)
        verdict, reason = overall(findings)
        return Report(
            url=self._client.url,
            model=asker.model,
            verdict=verdict,
            reason=reason,
            manner=asker.manner,
            pushed_out=push_out.name,
            counter=self._counter,
            findings=findings,
            requests=self._client.asked - before,
            seconds=time.monotonic() - began_s,
        )

    def _settle(self) -> Asker:
        """An asker that uses salts only where they keep prompts apart."""
        self._tell("asking what the server understands")
        model = chosen_model(self._client, self._plan.model)
        text = Canary(topic=0, words=_SETTLE_TEXT_TOKENS).text(unique_prefix(self._rng))
        prompt = Prompt(text, self._salt())
        asker = settle(self._client, model=model, prompt=prompt)
        if asker.manner.salts:
            asker.ask(prompt, answer_tokens=1)
            other = asker.ask(Prompt(text, self._salt()), answer_tokens=1)
            if other.cached:  # the salt is ignored, or the report is false: prefixes tell which
                asker.manner = replace(asker.manner, salts=False)
        return asker

    def _fitted(self, asker: Asker, at: int, target: int) -> _Case:
        self._tell(f"fitting a prompt of {target} tokens")

        def measure(canary: Canary) -> int:
            return asker.ask(self._prompt(asker, canary), answer_tokens=1).prompt_tokens

        fitted: Fitted = fit(measure, topic=at, target=target)
        return _Case(fitted.canary, self._prompt(asker, fitted.canary), Trial(target))

    def _prompt(self, asker: Asker, canary: Canary) -> Prompt:
        """The canary's text where no cache holds it: under a new salt, else a new prefix."""
        prefix = "" if asker.manner.salts else unique_prefix(self._rng)
        return Prompt(canary.text(prefix), self._salt())

    def _salt(self) -> str:
        return f"pagoda-verify-{self._rng.getrandbits(64):016x}"

    def _push_out(self, asker: Asker) -> PushOut:
        """The server's own endpoint, else flooding with what the limit leaves."""
        reset = None if self._plan.flood else find_reset(self._client)
        if reset is not None:
            return reset

        def unique() -> Prompt:
            return Prompt(unique_prefix(self._rng), self._salt())

        return Flood(asker, prompts=self._plan.limit - self._plan.needed(), unique=unique)

    def _examine(self, asker: Asker, cases: Sequence[_Case], push_out: PushOut) -> list[Finding]:
        salted, emptied = asker.manner.salts, push_out.sure
        for case in cases:
            self._compute(asker, case)
        self._tell("answering all of them at the same time, from the device cache")
        self._crowd(asker, cases, restored=False)
        self._restore(asker, cases, push_out)
        findings = [
            judged(case.trial, counted=case.counted, emptied=emptied, salted=salted)
            for case in cases
        ]
        try:
            counted = self._restore_crowd(asker, cases, push_out)
        except ServerError:
            if any(finding.verdict is Verdict.DIFFERS for finding in findings):
                return findings
            raise
        return findings + [
            judged(case.trial, counted=counted, emptied=emptied, salted=salted, concurrent=True)
            for case in cases
        ]

    def _compute(self, asker: Asker, case: _Case) -> None:
        """Cold under its own salt and under others, then from the device cache."""
        trial = case.trial
        self._tell(f"computing {trial.target} tokens, and again from the device cache")
        trial.cold.append(asker.ask(case.prompt))
        if asker.manner.salts:
            others = [Prompt(case.prompt.text, self._salt()) for _ in range(_COLD - 1)]
            trial.cold += [asker.ask(prompt) for prompt in others]
        trial.device += [asker.ask(case.prompt) for _ in range(_DEVICE)]

    def _restore(self, asker: Asker, cases: Sequence[_Case], push_out: PushOut) -> None:
        """Each alone. What was not stored below yet is given time, and asked once more."""
        late = self._restore_once(asker, cases, push_out)
        if late:
            self._tell("waiting until the prompts are stored")
            self._sleep(_STORING_S)
            self._restore_once(asker, late, push_out)

    def _restore_once(self, asker: Asker, cases: Sequence[_Case], push_out: PushOut) -> list[_Case]:
        """Push out, ask each; returns those of which nothing came back."""
        self._tell(f"pushing the prompts out by {push_out.name}, and restoring them")
        push_out()
        for case in cases:
            before = read_counters(self._client)
            answer = asker.ask(case.prompt)
            case.trial.restored = [answer]
            case.counted = self._counted_since(before)
        return [case for case in cases if self._is_late(case)]

    def _is_late(self, case: _Case) -> bool:
        cached = case.trial.restored[0].cached
        nothing = case.counted == 0 if cached is None else cached == 0
        return nothing and case.trial.device[0].cached != 0

    def _restore_crowd(
        self, asker: Asker, cases: Sequence[_Case], push_out: PushOut
    ) -> float | None:
        """All at the same time; returns what the metrics counted for them together."""
        self._tell("restoring all of them at the same time")
        push_out()
        before = read_counters(self._client)
        self._crowd(asker, cases, restored=True)
        return self._counted_since(before)

    def _crowd(self, asker: Asker, cases: Sequence[_Case], *, restored: bool) -> None:
        answers = asker.ask_together([case.prompt for case in cases])
        for case, answer in zip(cases, answers, strict=True):
            (case.trial.crowd_restored if restored else case.trial.crowd_device).append(answer)

    def _counted_since(self, before: Counters | None) -> float | None:
        """How far the count rose; servers count a moment after they answer."""
        risen = 0.0
        for _ in range(_POLLS):
            after = read_counters(self._client)
            if after is None:
                return None
            self._counter = after.name
            risen = after.restored - (before.restored if before else 0.0)
            if risen:
                break
            self._sleep(_POLL_S)
        return None if risen < 0 else risen  # below zero: the server was restarted


__all__ = ["LENGTHS", "Plan", "Reason", "Verification"]
