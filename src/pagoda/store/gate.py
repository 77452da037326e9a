"""What stands before a rank: the policies of its levels, and an admission that spares it writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pagoda.core.admission import Admission, Room, Verdict
from pagoda.core.events import Declined, Observer
from pagoda.core.identity import Key
from pagoda.core.policy import Ending
from pagoda.store.block import Block
from pagoda.store.queue import WriteQueue
from pagoda.store.rank import Rank


class Gate:
    """Judges blocks that a rank does not hold. Owner's thread."""

    def __init__(self, rank: Rank, admission: Admission, observer: Observer) -> None:
        self.rank = rank
        self._admission = admission
        self._observer = observer

    def end(self, ending: Ending) -> None:
        """A request is over."""
        self._admission.end(ending)

    def judge(self, blocks: Sequence[Block], queue: WriteQueue, now_s: float) -> list[Verdict]:
        """A verdict for each, parents before their children; `queue` has what is to be written
        already. A pinned block is written."""
        keys, parents = [block.key for block in blocks], [block.parent for block in blocks]
        verdicts = [Verdict.DECLINE] * len(blocks)
        worth = self._worth(keys, parents, queue)
        judged = self._admission.judge(
            [keys[i] for i in worth], [parents[i] for i in worth], self._room(len(queue), now_s)
        )
        for i, verdict in zip(worth, judged, strict=True):
            verdicts[i] = verdict
        for i in self.rank.pinned(keys):
            verdicts[i] = Verdict.WRITE
        self._tell([b for b, v in zip(blocks, verdicts, strict=True) if v is Verdict.DECLINE])
        return verdicts

    def _worth(self, keys: list[Key], parents: list[Key], queue: WriteQueue) -> list[int]:
        """Positions of the blocks that are worth a place. What follows blocks that are to be
        written already is judged together with them: policies have not seen them yet."""
        worth: list[int] = []
        for chain in _chains(keys, parents):
            ahead = queue.ahead(parents[chain.start])
            admitted = self.rank.admits(
                [*(key for key, _ in ahead.pairs), *keys[chain.start : chain.stop]],
                [*(parent for _, parent in ahead.pairs), *parents[chain.start : chain.stop]],
                spare=ahead.under_way - len(worth),
            )
            first = chain.start - len(ahead.pairs)
            worth += [first + at for at in admitted if first + at >= chain.start]
        return worth

    def _room(self, waiting: int, now_s: float) -> Room:
        levels = [level for level in self.rank.levels if level.writable(now_s)]
        paces = [level.wear.budget.pace(now_s) for level in levels]
        limited = [pace for pace in paces if pace is not None]
        return Room(
            free=max(0, sum(level.state.free_count() for level in levels) - waiting),
            block_bytes=self.rank.levels[0].sealed.geometry.slot_bytes,
            now_s=now_s,
            pace=sum(limited) if len(limited) == len(levels) else None,
        )

    def _tell(self, declined: Sequence[Block]) -> None:
        if declined:
            size_bytes = sum(len(block.payload) for block in declined)
            self._observer(
                Declined(tier=self.rank.name, blocks=len(declined), size_bytes=size_bytes)
            )


def _chains(keys: Sequence[Key], parents: Sequence[Key]) -> Iterator[range]:
    """Positions of blocks that follow each other, by chain."""
    start = 0
    for at in range(1, len(keys) + 1):
        if at == len(keys) or parents[at] != keys[at - 1]:
            yield range(start, at)
            start = at
