"""Time to first token after a restart: restored from the drive, against computed.

One process computes a prompt and leaves its KV on the drive. Each run then starts a new
process, its slab dropped from the page cache, which answers the same prompt from the drive
and afterwards, under another salt, by computing it. The limit counts the time that reading
the same bytes from the same slab takes, without Pagoda, right after that.
"""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pagoda.core.events import Event, Restored
from pagoda.lab.bench.child import run_child
from pagoda.lab.bench.engine.asking import ask
from pagoda.lab.bench.engine.setup import MIB, Say, Setup, prompt
from pagoda.lab.bench.figures import Figure, Part
from pagoda.lab.bench.stats import Spread, paired_ratio
from pagoda.machine.buffers import aligned_buffer
from pagoda.serve.compose import open_engine
from pagoda.settings.tree import Settings

PROMPT_TOKENS = 2048
ANSWER_TOKENS = 16
GOAL_RATIO = 20.0
GOAL_OVERHEAD_S = 0.120
READ_BYTES = 4 * MIB
FLUSH_S = 60.0


def measure(setup: Setup, say: Say) -> Part:
    """Both times to first token, paired by process, and the drive's own reading time."""
    say("computing a prompt and storing its KV")
    first = run_child("compute", setup.to_json())
    runs = []
    for run in range(1 if setup.quick else setup.runs + 2):
        say(f"restoring after a restart, {run + 1}")
        drop_from_page_cache(setup.directory)
        found = run_child("restore", setup.to_json())
        found["read_s"] = read_slab_s(setup.directory, found["restored_bytes"])
        found["same_answer"] = found["answer"] == first["answer"]
        runs.append(found)
    return _part(setup, runs)


def compute(order: dict[str, Any]) -> dict[str, Any]:
    """In a process of its own: compute, store, flush."""
    setup = Setup.from_json(order)
    engine = open_engine(_settings(setup))
    text = prompt(engine.codec, tokens=PROMPT_TOKENS, name="restore")
    asked = ask(engine, text, new_tokens=ANSWER_TOKENS, salt="kept")
    engine.close(flush_s=FLUSH_S)
    return {"first_token_s": asked.first_token_s, "answer": asked.decoded.tokens}


def restore(order: dict[str, Any]) -> dict[str, Any]:
    """In a process of its own: warm up with another text, then restore, then compute."""
    setup = Setup.from_json(order)
    events: list[Restored] = []

    def observe(event: Event) -> None:
        if isinstance(event, Restored):
            events.append(event)

    engine = open_engine(_settings(setup), observe)
    for size in (600, 16):
        warm_up = prompt(engine.codec, tokens=size, name=f"warm-up {os.getpid()}")
        ask(engine, warm_up, new_tokens=4, salt=f"warm-up {os.getpid()} {size}")
    events.clear()
    text = prompt(engine.codec, tokens=PROMPT_TOKENS, name="restore")
    restored = ask(engine, text, new_tokens=ANSWER_TOKENS, salt="kept")
    reads = list(events)
    computed = ask(engine, text, new_tokens=ANSWER_TOKENS, salt=f"fresh {os.getpid()}")
    engine.close(flush_s=FLUSH_S)
    return {
        "restored_s": restored.first_token_s,
        "computed_s": computed.first_token_s,
        "restored_tokens": restored.usage.cached_restored,
        "computed_cached_tokens": computed.usage.cached_tokens,
        "restored_bytes": sum(read.size_bytes for read in reads),
        "store_read_s": sum(read.seconds for read in reads),  # read and verify, threads added up
        "answer": restored.decoded.tokens,
        "computed_answer": computed.decoded.tokens,
    }


def _settings(setup: Setup) -> Settings:
    return setup.settings(kv_bytes=512 * MIB, host_bytes=128 * MIB, drive_bytes=1024 * MIB)


def slab_in(directory: Path) -> Path:
    """The drive tier's slab in a directory."""
    return next(directory.rglob("slab.pagoda"))


def drop_from_page_cache(directory: Path) -> None:
    """Make the slab's next reads come from the drive, where the system lets us."""
    fd = os.open(slab_in(directory), os.O_RDONLY)
    try:
        os.fsync(fd)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def read_slab_s(directory: Path, size_bytes: int) -> float:
    """Seconds to read as many bytes from the slab's payloads, 4 MiB at a time, past the page
    cache where possible: what the drive takes, whoever reads."""
    drop_from_page_cache(directory)
    path = slab_in(directory)
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECT", 0))
    except OSError:  # no direct I/O on this file system; the cache was dropped above
        fd = os.open(path, os.O_RDONLY)
    buffer = memoryview(aligned_buffer(READ_BYTES))
    began_s = time.perf_counter()
    try:
        for offset in range(READ_BYTES, READ_BYTES + size_bytes, READ_BYTES):
            os.preadv(fd, [buffer], offset)
    finally:
        os.close(fd)
    return time.perf_counter() - began_s


def _part(setup: Setup, runs: list[dict[str, Any]]) -> Part:
    ratio = paired_ratio([run["computed_s"] for run in runs], [run["restored_s"] for run in runs])
    over = Spread.of(run["restored_s"] - run["read_s"] for run in runs)
    whole = all(
        run["restored_tokens"] >= PROMPT_TOKENS - 32 and run["computed_cached_tokens"] == 0
        for run in runs
    )
    same = all(run["same_answer"] for run in runs)
    shown: dict[str, Any] = {
        name: asdict(Spread.of(run[name] for run in runs))
        for name in ("computed_s", "restored_s", "read_s", "store_read_s")
    }
    shown |= {"same_answer": same, "restored_tokens": min(r["restored_tokens"] for r in runs)}
    figures = [
        Figure(
            name="first token of 2,048 tokens after a restart, computed : restored from drive",
            value=ratio.median,
            unit="×",
            goal=f">= {GOAL_RATIO:g}",
            met=setup.judged(ratio.median >= GOAL_RATIO and whole and same),
            detail=shown | {"ratio": asdict(ratio)},
        ),
        Figure(
            name="the same, restored, beyond the time to read",
            value=over.median * 1e3,
            unit="ms",
            goal=f"<= {GOAL_OVERHEAD_S * 1e3:g}",
            met=setup.judged(over.median <= GOAL_OVERHEAD_S and whole and same),
            detail=shown,
        ),
    ]
    return Part(figures=figures, rows=runs)
