"""One run: each canary answered cold, from the device cache, restored; alone and among others.

Where a server can empty more than its device, that is done as well, and all is restored again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from pagoda.core.errors import ServerError
from pagoda.verify.ask import Asker, Prompt, settle
from pagoda.verify.canaries import Canary, Fitted, fit, unique_prefix
from pagoda.verify.client import Client, chosen_model
from pagoda.verify.counters import Counters, read_counters
from pagoda.verify.crowd import Crowd, is_open
from pagoda.verify.evidence import Emptied, judged
from pagoda.verify.judge import Finding, Trial, Verdict, overall
from pagoda.verify.plan import COLD, DEVICE, Plan
from pagoda.verify.push_out import Flood, PushOut, find_resets, is_pagoda, is_sglang
from pagoda.verify.report import Report
from pagoda.verify.salts import Salts

_SETTLE_TEXT_TOKENS = 300
_POLLS, _POLL_S, _STORING_S = 5, 0.2, 2.0

Tell = Callable[[str], None]


def _quiet(text: str) -> None:
    del text


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
        self._asked_before = 0
        self._counter: str | None = None
        self._salts = Salts(rng)

    def run(self) -> Report:
        """The report. Raises ServerError when the server cannot be used to the end, unless a
        difference was found before."""
        began_s, self._asked_before = time.monotonic(), self._client.asked
        asker = self._settle()
        ways = self._ways(asker)
        asker.manner = replace(asker.manner, places=is_sglang(ways))
        cases = [self._fitted(asker, at, target) for at, target in enumerate(self._plan.lengths)]
        findings = self._examine(asker, cases, ways)
        verdict, reason = overall(findings, need_restored=self._plan.need_restored)
        if verdict is not Verdict.DIFFERS and is_pagoda(ways):
            self._tell("clearing what the run left behind")
            self._salts.clear(self._client)
        return Report(
            url=self._client.url,
            model=asker.model,
            verdict=verdict,
            reason=reason,
            manner=asker.manner,
            pushed_out=tuple(way.name for way in ways),
            counter=self._counter,
            findings=findings,
            requests=self._client.asked - self._asked_before,
            seconds=time.monotonic() - began_s,
        )

    def _settle(self) -> Asker:
        """An asker that uses salts only where they keep prompts apart."""
        self._tell("asking what the server understands")
        model = chosen_model(self._client, self._plan.model)
        text = Canary(topic=0, words=_SETTLE_TEXT_TOKENS).text(unique_prefix(self._rng))
        prompt = Prompt(text, self._salts.new())
        asker = settle(self._client, model=model, prompt=prompt)
        if asker.manner.salts:
            asker.ask(prompt, answer_tokens=1)
            other = asker.ask(Prompt(text, self._salts.new()), answer_tokens=1)
            if other.cached:  # the salt is ignored, or the report is false: prefixes tell which
                asker.manner = replace(asker.manner, salts=False)
        return asker

    def _fitted(self, asker: Asker, at: int, target: int) -> _Case:
        self._tell(f"fitting a prompt of {target} tokens")

        def measure(canary: Canary) -> int:
            prompt = self._prompt(asker, canary, self._salts.aside)
            return asker.ask(prompt, answer_tokens=1).prompt_tokens

        fitted: Fitted = fit(measure, topic=at, target=target)
        prompt = self._prompt(asker, fitted.canary, self._salts.new())
        return _Case(fitted.canary, prompt, Trial(target))

    def _prompt(self, asker: Asker, canary: Canary, salt: str) -> Prompt:
        """The canary's text under a salt; where a server has none, behind a new prefix."""
        prefix = "" if asker.manner.salts else unique_prefix(self._rng)
        return Prompt(canary.text(prefix), salt)

    def _ways(self, asker: Asker) -> list[PushOut]:
        """The server's own endpoints, else flooding with what the limit leaves."""
        plan = self._plan
        resets: list[PushOut] = []
        if not plan.flood:
            resets += find_resets(self._client, deep=plan.deep, sleep=self._sleep, tell=self._tell)
        if resets:
            return resets

        def unique() -> Prompt:
            return Prompt(unique_prefix(self._rng), self._salts.aside)

        return [Flood(asker, prompts=plan.limit - plan.needed(), unique=unique)]

    def _examine(
        self, asker: Asker, cases: Sequence[_Case], ways: Sequence[PushOut]
    ) -> list[Finding]:
        for case in cases:
            self._compute(asker, case)
        self._tell("answering all of them at the same time, from the device cache")
        Crowd(asker, [one.prompt for one in cases], [one.trial for one in cases]).answer()
        findings: list[Finding] = []
        for way in ways:
            try:
                self._examine_one(asker, cases, way, findings)
            except ServerError:
                if all(finding.verdict is not Verdict.DIFFERS for finding in findings):
                    raise
                break
        return findings

    def _examine_one(
        self, asker: Asker, cases: Sequence[_Case], way: PushOut, findings: list[Finding]
    ) -> None:
        """Push out in one way; adds to `findings`, which stay when the server then dies."""
        salted, emptied = asker.manner.salts, Emptied(way.name, way.sure)
        for case in cases:
            case.trial = replace(case.trial, restored=[], crowd_restored=[])
        self._restore(asker, cases, way)
        findings += [
            judged(case.trial, emptied, counted=case.counted, salted=salted) for case in cases
        ]
        sure = any(finding.verdict is Verdict.DIFFERS for finding in findings)
        findings += self._among_others(asker, cases, way, emptied, again=salted and not sure)

    def _among_others(
        self,
        asker: Asker,
        cases: Sequence[_Case],
        way: PushOut,
        emptied: Emptied,
        *,
        again: bool,
    ) -> list[Finding]:
        """Restored at the same time. What differs then is looked at `again`: a text can be
        computed anew where salts keep it apart."""
        counted, salted = self._restore_crowd(asker, cases, way), asker.manner.salts

        def found() -> list[Finding]:
            return [
                judged(case.trial, emptied, counted=counted, salted=salted, concurrent=True)
                for case in cases
            ]

        findings = found()
        rounds = self._more_rounds(asker, cases) if again else iter(())
        while any(map(is_open, findings)) and next(rounds, None) is not None:
            findings = found()
        return findings

    def _more_rounds(self, asker: Asker, cases: Sequence[_Case]) -> Iterator[int]:
        """Answer all at the same time, computed under new salts, with what the limit leaves."""
        self._tell("looking again at how far answers move among others")
        anew = [Prompt(case.prompt.text, self._salts.new()) for case in cases]
        yield from Crowd(asker, anew, [case.trial for case in cases]).more(
            requests=self._plan.limit - (self._client.asked - self._asked_before),
            rng=self._rng,
            sleep=self._sleep,
        )

    def _compute(self, asker: Asker, case: _Case) -> None:
        """Cold under its own salt and under others, then each from the device cache."""
        trial = case.trial
        self._tell(f"computing {trial.target} tokens, and again from the device cache")
        trial.cold.append(asker.ask(case.prompt))
        if asker.manner.salts:
            others = [Prompt(case.prompt.text, self._salts.new()) for _ in range(COLD - 1)]
            trial.cold += [asker.ask(prompt) for prompt in others]
            trial.device_apart = [asker.ask(prompt) for prompt in others]
        trial.device += [asker.ask(case.prompt) for _ in range(DEVICE)]

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
        answers = asker.ask_together([case.prompt for case in cases])
        for case, answer in zip(cases, answers, strict=True):
            case.trial.crowd_restored.append(answer)
        return self._counted_since(before)

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
