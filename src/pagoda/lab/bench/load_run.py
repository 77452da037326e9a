"""Put a planned load on a server, request by request.

The run is bounded in requests and in time. All moments are read from one clock, the event
loop's, which a test replaces by one that jumps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from pagoda.lab.bench.client import Asker, Message
from pagoda.lab.bench.load import LoadSettings, Session, plan
from pagoda.lab.bench.sample import Answer, ErrorKind, Failure, Sample

OnSample = Callable[[Sample], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A finished load: the samples in the order they ended, its length in seconds, and how
    many planned requests were never sent (time over, or their session had failed). One that
    was interrupted counts those that were under way as unsent, too."""

    samples: tuple[Sample, ...]
    seconds: float
    unsent: int
    interrupted: bool = False


async def run_load(asker: Asker, settings: LoadSettings, on_sample: OnSample) -> Run:
    """Put the planned load on the server that `asker` knows; never raises for its failures.

    Cancelling the task ends the load, and the run so far is returned.
    """
    load = _Load(asker, settings, on_sample)
    interrupted = False
    try:
        await load.run(plan(settings))
    except asyncio.CancelledError:
        task = asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        task.uncancel()  # so that what comes after, closing connections, is not cancelled again
        interrupted = True
    ended_s = max((sample.ended_s for sample in load.samples), default=load.start_s)
    return Run(
        samples=tuple(load.samples),
        seconds=ended_s - load.start_s,
        unsent=settings.requests - len(load.samples),
        interrupted=interrupted,
    )


class _Load:
    """The state of a running load; moments are on the event loop's clock."""

    def __init__(self, asker: Asker, settings: LoadSettings, on_sample: OnSample) -> None:
        self._asker = asker
        self._settings = settings
        self._on_sample = on_sample
        self._now_s = asyncio.get_running_loop().time
        self.start_s = self._now_s()
        self._end_s = self.start_s + settings.duration_s
        self._gate = asyncio.Semaphore(settings.parallel)
        self.samples: list[Sample] = []

    async def run(self, sessions: tuple[Session, ...]) -> None:
        waiting = iter(sessions)
        async with asyncio.TaskGroup() as group:
            if self._settings.rate_per_s is None:
                for _ in range(min(self._settings.parallel, len(sessions))):
                    group.create_task(self._closed(waiting))
            else:
                await self._open(waiting, group)

    async def _closed(self, waiting: Iterator[Session]) -> None:
        """One client: takes the next conversation when its last one is over."""
        for session in waiting:
            await self._converse(session, self._now_s())

    async def _open(self, waiting: Iterator[Session], group: asyncio.TaskGroup) -> None:
        """Start each conversation at its moment, whatever the earlier ones do."""
        for session in waiting:
            assert session.starts_s is not None, "an open loop without arrival times"
            starts_s = self.start_s + session.starts_s
            if not await self._sleep_until(starts_s):
                return
            group.create_task(self._converse(session, starts_s))

    async def _converse(self, session: Session, starts_s: float) -> None:
        talk = _Talk(session)
        meant_s = starts_s
        for turn, pause_s in enumerate(session.pauses_s):
            meant_s += pause_s
            if not await self._sleep_until(meant_s):
                return
            sample = await self._ask(talk, turn, meant_s)
            if sample is None or not sample.served:
                return
            talk.answered(sample.answer)
            meant_s = sample.ended_s

    async def _ask(self, talk: _Talk, turn: int, meant_s: float) -> Sample | None:
        """Send one question; None when the time was over before its turn came."""
        async with self._gate:
            sent_s = self._now_s()
            left_s = self._end_s - sent_s
            if left_s <= 0:
                return None
            limit_s = min(left_s, self._settings.timeout_s)
            answer = await self._asker.ask(talk.messages(turn), limit_s=limit_s)
        sample = Sample(
            session=talk.session.number,
            turn=turn,
            intended_s=meant_s,
            sent_s=sent_s,
            ended_s=self._now_s(),
            answer=_name_cut_off(answer, left_s <= self._settings.timeout_s),
        )
        self.samples.append(sample)
        self._on_sample(sample)
        return sample

    async def _sleep_until(self, at_s: float) -> bool:
        """Wait for a moment; False when the run's time is over before it."""
        if at_s >= self._end_s:
            return False
        await asyncio.sleep(max(0.0, at_s - self._now_s()))
        return True


def _name_cut_off(answer: Answer, by_run: bool) -> Answer:
    """Tell a request that the run's end cut off from one that was too slow by itself."""
    failure = answer.failure
    if failure is None or failure.kind is not ErrorKind.TIMEOUT or not by_run:
        return answer
    return replace(answer, failure=Failure(kind=ErrorKind.CUT_OFF, message="the run was over"))


@dataclass(slots=True)
class _Talk:
    """A conversation as it grows."""

    session: Session
    answers: list[str] = field(default_factory=list)

    def messages(self, turn: int) -> list[Message]:
        """Everything said so far and the question of `turn`."""
        said: list[Message] = []
        for number in range(turn + 1):
            said.append({"role": "user", "content": self._question(number)})
            if number < turn:
                said.append({"role": "assistant", "content": self.answers[number]})
        return said

    def _question(self, turn: int) -> str:
        question = self.session.questions[turn]
        opening = self.session.opening if turn == 0 else ""
        return f"{opening}\n\n{question}" if opening else question

    def answered(self, answer: Answer) -> None:
        self.answers.append(answer.text)
