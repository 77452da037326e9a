"""All canaries answered at the same time, and how far that alone moves answers.

Among others an answer is computed in batches that no two runs have alike, and most kernels sum in
another order in another batch. What that does is a property of the server: the largest difference
of any canary counts for all. One round on a quiet server may show nothing of it; where a restored
answer differs, more rounds are made, with the prompts a little apart.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pagoda.verify.answers import Answer
from pagoda.verify.ask import Asker, Prompt
from pagoda.verify.compare import difference, largest
from pagoda.verify.judge import Finding, Reason, Trial

_ROUNDS, _SPREAD_S = 8, 0.4


@dataclass(frozen=True, slots=True)
class Crowd:
    """Canaries that are answered at the same time, from the device: a prompt for each trial."""

    asker: Asker
    prompts: Sequence[Prompt]
    trials: Sequence[Trial]

    def answer(self) -> None:
        """All at once, for prompts that are on the device."""
        self._take(self.asker.ask_together(self.prompts))

    def more(
        self, *, requests: int, rng: random.Random, sleep: Callable[[float], None]
    ) -> Iterator[int]:
        """Round after round, with at most `requests` in all. The prompts have salts that nothing
        was ever restored under: what is on the device for them was computed by the server just
        now, and tells of batches alone."""
        rounds = min(_ROUNDS, requests // max(1, len(self.prompts)) - 1)
        if rounds < 1:
            return
        for prompt in self.prompts:
            self.asker.ask(prompt)
        for number in range(rounds):
            delays = [rng.uniform(0.0, _SPREAD_S) for _ in self.prompts]
            self._take(self.asker.ask_together(self.prompts, delays=delays, sleep=sleep))
            yield number

    def _take(self, answers: Sequence[Answer]) -> None:
        for trial, answer in zip(self.trials, answers, strict=True):
            trial.crowd_device.append(answer)
        pairs = [(trial.device[0], one) for trial in self.trials for one in trial.crowd_device]
        apart = largest(difference(*pair) for pair in pairs)
        for trial in self.trials:
            trial.crowd_noise = apart


def is_open(finding: Finding) -> bool:
    """Whether more rounds may explain what was found among others."""
    return finding.reason in (Reason.RESTORED, Reason.OTHER_SHAPE)
