"""A runner driven by hand, in the chunks that the engine's scheduler would make."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from pagoda.engine.runner import Runner, Segment
from pagoda.engine.scheduler import CHUNK_MULTIPLE, Limits

Logits = npt.NDArray[np.float32]


def chunks(start: int, end: int, *, longest: int = Limits().chunk_tokens) -> Iterator[range]:
    """Positions [start, end) in chunks of at most `longest` that end on absolute multiples of
    64, but for the last."""
    while start < end:
        stop = min(end, start + longest)
        if stop < end:
            stop -= stop % CHUNK_MULTIPLE
        yield range(start, stop)
        start = stop


def prefill(runner: Runner, tokens: Sequence[int], blocks: Sequence[int], *, start: int) -> Logits:
    """Compute tokens[start:] behind KV that lies in `blocks`; the last token's logits [vocab]."""
    logits: Logits | None = None
    for chunk in chunks(start, len(tokens)):
        segment = Segment(
            tokens=tokens[chunk.start : chunk.stop],
            start=chunk.start,
            blocks=blocks[: -(-chunk.stop // runner.block_tokens)],
            want_logits=chunk.stop == len(tokens),
        )
        found = runner.forward([segment])
        logits = found[-1].numpy() if segment.want_logits else None
    assert logits is not None, "a prompt has at least one token to compute"
    return logits
