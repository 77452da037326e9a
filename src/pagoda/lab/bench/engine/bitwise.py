"""Logits after a restore, bit for bit those of a cold run in another process.

A first process computes prompts cold and stores their KV through the store; a second one
restores it into its own blocks, computes what is left and compares. Prefixes of several
lengths are restored, among them one that ends inside what the cold run computed in one
chunk. A third answer, computed cold in the second process, tells a difference between
processes from one that the restore made.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from pagoda.core.decide import reusable_blocks
from pagoda.core.errors import EngineClosed
from pagoda.core.identity import ROOT, Key, NamespaceId, chain
from pagoda.engine.codec import load_codec
from pagoda.engine.runner import Runner
from pagoda.engine.scheduler import TAIL_TOKENS
from pagoda.engine.weights import load_model
from pagoda.lab.bench.child import run_child
from pagoda.lab.bench.engine import chunks
from pagoda.lab.bench.engine.setup import MIB, Say, Setup, prompt
from pagoda.lab.bench.figures import Figure, Part
from pagoda.store.executor import Runtime, ThreadExecutor
from pagoda.store.open import StorePlan, open_store
from pagoda.store.store import Block, Store, StoreConfig
from pagoda.tiers.drive import DriveConfig

LENGTHS = (333, 1000, 2048)
DTYPES = ("bf16", "fp32")
WAIT_S = 60.0


def measure(setup: Setup, say: Say) -> Part:
    """One figure a dtype: how many restored prefixes gave other bits than the cold run."""
    figures = []
    rows: list[dict[str, Any]] = []
    for dtype in DTYPES:
        say(f"logits after a restore, {dtype}")
        order = setup.in_directory(f"bitwise-{dtype}").to_json() | {"dtype": dtype}
        run_child("cold", order)
        found = run_child("warm", order)["cases"]
        rows += [case | {"dtype": dtype} for case in found]
        figures.append(_figure(setup, dtype, found))
    return Part(figures=figures, rows=rows)


def _figure(setup: Setup, dtype: str, cases: list[dict[str, Any]]) -> Figure:
    different = sum(not case["restored_equal"] for case in cases)
    return Figure(
        name=f"restored logits that differ from the cold run's, {dtype}",
        value=different,
        unit=f"of {len(cases)} prefixes",
        goal="0, bitwise",
        met=setup.judged(different == 0),
        detail={
            "max_difference": max(case["restored_difference"] for case in cases),
            "cold_equal_between_processes": all(case["cold_equal"] for case in cases),
            "kernel": cases[0]["kernel"],
        },
    )


class _Bench:
    """A runner and a store on one drive, without an engine between them."""

    def __init__(self, order: dict[str, Any]) -> None:
        setup = Setup.from_json(order)
        self.directory = setup.directory
        model = load_model(setup.model, dtype=order["dtype"])
        blocks = max(LENGTHS) // Runner.block_tokens
        self.runner = Runner(model, num_blocks=blocks, threads=setup.threads)
        self.namespace = _namespace(self.runner.layout_id, order["dtype"])
        codec = load_codec(setup.model)
        self.prompts = [prompt(codec, tokens=size, name=f"bits {size}") for size in LENGTHS]
        self.store = _store(setup.directory, self.runner.block_bytes)

    def keys(self, tokens: Sequence[int]) -> list[Key]:
        return chain(self.namespace, tokens, block_tokens=self.runner.block_tokens)

    def blocks_of(self, tokens: Sequence[int]) -> range:
        return range(-(-len(tokens) // self.runner.block_tokens))

    def cold(self, tokens: Sequence[int]) -> chunks.Logits:
        """Computed from nothing, the pool's blocks first filled with ones."""
        blocks = self.blocks_of(tokens)
        self.spoil(blocks)
        return chunks.prefill(self.runner, tokens, blocks, start=0).copy()

    def spoil(self, blocks: range) -> None:
        """Overwrite blocks, so that what an earlier prompt left cannot help."""
        for block in blocks:
            view = self.runner.block_view(block)
            view[:] = b"\x01" * len(view)

    def logits_file(self, tokens: Sequence[int]) -> Path:
        return self.directory / f"cold-{len(tokens)}.npy"

    @contextmanager
    def closing(self) -> Iterator[None]:
        try:
            yield
        finally:
            self.store.close(flush_s=WAIT_S)
            self.runner.close()


def cold(order: dict[str, Any]) -> dict[str, Any]:
    """In a process of its own: compute each prompt, keep its logits and its KV."""
    bench = _Bench(order)
    with bench.closing():
        for tokens in bench.prompts:
            np.save(bench.logits_file(tokens), bench.cold(tokens))
            _save(bench, tokens)
    return {}


def warm(order: dict[str, Any]) -> dict[str, Any]:
    """In a process of its own: restore prefixes of each prompt and compute the rest."""
    bench = _Bench(order)
    cases = []
    with bench.closing():
        for tokens in bench.prompts:
            expected = np.load(bench.logits_file(tokens), allow_pickle=False)
            again = bench.cold(tokens)
            most = reusable_blocks(
                len(tokens), block_tokens=bench.runner.block_tokens, tail_tokens=TAIL_TOKENS
            )
            for restored in sorted({most, most // 2, most - 5, 1}):
                found = _restored(bench, tokens, restored)
                cases.append(
                    {
                        "tokens": len(tokens),
                        "restored_tokens": restored * bench.runner.block_tokens,
                        "restored_equal": found.tobytes() == expected.tobytes(),
                        "restored_difference": float(np.abs(found - expected).max()),
                        "cold_equal": again.tobytes() == expected.tobytes(),
                        "kernel": bench.runner.kernel_id,
                    }
                )
    return {"cases": cases}


def _save(bench: _Bench, tokens: Sequence[int]) -> None:
    keys = bench.keys(tokens)
    parents = [ROOT, *keys]
    blocks = [
        Block(
            namespace=bench.namespace,
            key=key,
            parent=parents[depth],
            depth=depth,
            tokens=bench.runner.block_tokens,
            payload=bench.runner.block_view(depth),
        )
        for depth, key in enumerate(keys)
    ]
    bench.store.save(blocks, lambda _: None)
    if not bench.store.flush(WAIT_S) or bench.store.match(keys) != len(keys):
        raise EngineClosed("the store did not take the blocks")


def _restored(bench: _Bench, tokens: Sequence[int], count: int) -> chunks.Logits:
    """The last token's logits behind `count` restored blocks."""
    blocks = bench.blocks_of(tokens)
    bench.spoil(blocks)
    views = [bench.runner.block_view(block) for block in blocks[:count]]
    restore = bench.store.restore(bench.keys(tokens)[:count], views)
    until_s = time.monotonic() + WAIT_S
    while not restore.done and time.monotonic() < until_s:
        time.sleep(0.001)
        bench.store.poll()
    if not restore.done or restore.usable_blocks != count:
        raise EngineClosed(f"{count} blocks were asked for and not restored")
    start = count * bench.runner.block_tokens
    return chunks.prefill(bench.runner, tokens, blocks, start=start)


def _store(directory: Path, block_bytes: int) -> Store:
    drive = DriveConfig(
        directory=directory,
        capacity_bytes=512 * MIB,
        slot_bytes=block_bytes,
        free_floor_bytes=0,
    )
    plan = StorePlan(
        block_bytes=block_bytes,
        host_bytes=0,
        drives=(drive,),
        config=StoreConfig(restore_deadline_s=WAIT_S),
    )
    executor = ThreadExecutor(load_threads=4, store_threads=2)
    return open_store(plan, Runtime(executor=executor))


def _namespace(layout_id: str, dtype: str) -> NamespaceId:
    """Names for this bench alone; what counts is that both processes make the same ones."""
    return NamespaceId(sha256(f"bench {layout_id} {dtype}".encode()).digest())
