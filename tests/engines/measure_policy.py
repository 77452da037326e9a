"""How many prompt blocks vLLM's own manager finds in host memory, by policy, over a trace:

    PYTHONPATH=src VLLM/bin/python tests/engines/measure_policy.py TRACE [TRACE …]

No engine: the manager is vLLM's, with vLLM's policies or PagodaPolicy in it; the clock is the
trace's. Each request is over before the next one comes, and offers what it lacks in steps of 8,192
tokens. Whole blocks of prompts count. Host memory has a share of all different blocks of the trace.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm.v1.kv_offload.base import ReqContext
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager

from pagoda.lab.replay.files import read_trace

_SHARES = (0.02, 0.05, 0.1, 0.2)
_OWN = ("lru", "arc")  # vLLM's
_PAGODAS = ("lru", "heat")
_STEP_TOKENS = 8192
_GROUP = bytes(4)


@dataclass(frozen=True)
class Prompt:
    """When a request came, and its whole blocks as vLLM names chunks."""

    at_s: float
    names: list[bytes]


def prompts_of(path: Path) -> tuple[list[Prompt], int]:
    """The requests of a trace, and the tokens of a block."""
    trace = read_trace(path).trace
    made = []
    for request in trace.requests:
        whole = request.prompt[: request.input_tokens // trace.block_tokens]
        names = dict.fromkeys(_name(block) for block in whole)
        if names:
            made.append(Prompt(request.at_s, list(names)))
    return made, trace.block_tokens


def measure(manager: Any, prompts: Sequence[Prompt], block_tokens: int) -> tuple[float, float]:
    """The share of blocks that were there, and processor seconds for a thousand requests."""
    step = max(1, _STEP_TOKENS // block_tokens)
    hosted = getattr(manager._policy, "hosted", None)
    hits = 0
    began_s = time.process_time()
    for number, prompt in enumerate(prompts):
        if hosted is not None:
            hosted.clock = lambda at_s=prompt.at_s: at_s
        context = ReqContext(str(number))
        for at, name in enumerate(prompt.names):
            context.set_offload_key_position(name, (at + 1) * block_tokens)
        hits += _ask(manager, context, prompt.names, step)
    spent_s = time.process_time() - began_s
    return hits / sum(len(one.names) for one in prompts), 1000 * spent_s / len(prompts)


def _ask(manager: Any, context: ReqContext, names: list[bytes], step: int) -> int:
    """One request from its look-up to its end; how many leading blocks were there."""
    found = 0
    while found < len(names) and manager.lookup(names[found], context).name == "HIT":
        found += 1
    if found:
        manager.prepare_load(names[:found], context)
        manager.complete_load(names[:found], context)
    for first in range(found, len(names), step):
        output = manager.prepare_store(names[first : first + step], context)
        if output is None:
            break
        manager.complete_store(output.keys_to_store, context)
    manager.on_request_finished(context)
    return found


def _name(block: Any) -> bytes:
    text = block if isinstance(block, bytes) else str(block).encode()
    return text.rjust(32, b"\0")[-32:] + _GROUP


def _managers(chunks: int) -> Any:
    for name in _OWN:
        yield f"vLLM's {name}", CPUOffloadingManager(chunks, name)
    for name in _PAGODAS:
        os.environ["PAGODA_HOST_POLICY"] = name
        yield (
            f"Pagoda's {name}",
            CPUOffloadingManager(chunks, "PagodaPolicy", "pagoda.connect.vllm"),
        )


def main() -> None:
    for path in map(Path, sys.argv[1:]):
        prompts, block_tokens = prompts_of(path)
        blocks = len({name for one in prompts for name in one.names})
        print(f"{path.name}: {len(prompts)} requests, {blocks} blocks of {block_tokens} tokens")
        for share in _SHARES:
            for name, manager in _managers(int(share * blocks)):
                rate, spent_s = measure(manager, prompts, block_tokens)
                print(f"  {share:5.0%}  {name:14}  {rate:7.2%}  {spent_s:.2f} s", flush=True)


if __name__ == "__main__":
    main()
