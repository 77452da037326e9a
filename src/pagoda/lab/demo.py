"""The demonstration: an answer computed, restored after a restart, and after a flipped byte.

Three server processes, one slab. Each is asked the same question about a long document and
is warmed up with a short one before, so that first-use costs of libraries count in none.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import httpx

from pagoda.core.errors import PagodaError
from pagoda.core.identity import ROOT
from pagoda.lab.server_process import ServerProcess
from pagoda.store.inspect import DriveInspector, Entry
from pagoda.tiers.drive.slab import SLAB_NAME

QUESTION = "What does a keeper do when a page and its seal disagree?"
ANSWER_TOKENS = 48
_CAPACITY = "256MiB"
_QUARANTINED = "pagoda_slots_quarantined_total"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer and what it took. Times in seconds, measured by the client."""

    pid: int
    ready_s: float
    ttft_s: float
    text: str
    prompt_tokens: int
    tokens_cached: int
    blocks_quarantined: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """The byte that was changed: its offset in the slab, and the block that it belongs to."""

    offset: int
    slot: int
    depth: int
    before: int
    after: int


@dataclass(slots=True)
class Report:
    """What the demonstration saw."""

    computed: Answer
    restored: Answer
    corrupted: Answer
    flip: Flip
    stored_blocks: int = 0
    stored_bytes: int = 0

    @property
    def speed_up(self) -> float:
        """Time to first token computed over restored."""
        return self.computed.ttft_s / self.restored.ttft_s

    def as_json(self) -> dict[str, object]:
        """The stable shape for machines."""
        return {
            "computed": {"ttft_s": self.computed.ttft_s, "pid": self.computed.pid},
            "restored": {
                "ttft_s": self.restored.ttft_s,
                "pid": self.restored.pid,
                "tokens_restored": self.restored.tokens_cached,
                "same_answer": self.restored.text == self.computed.text,
            },
            "corrupted": {
                "ttft_s": self.corrupted.ttft_s,
                "pid": self.corrupted.pid,
                "tokens_restored": self.corrupted.tokens_cached,
                "blocks_quarantined": self.corrupted.blocks_quarantined,
                "same_answer": self.corrupted.text == self.computed.text,
                "offset": self.flip.offset,
            },
            "prompt_tokens": self.computed.prompt_tokens,
            "answer": self.computed.text,
            "speed_up": self.speed_up,
        }


def run_demo(model: Path, *, say: Say, seed: int | None = None) -> Report:
    """Run the three acts in a temporary drive directory, which is removed afterwards.

    Raises PagodaError when a server does not start or an act does not show what it should.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pagoda"
    home.mkdir(parents=True, exist_ok=True)
    drive = Path(tempfile.mkdtemp(prefix="demo-", dir=home))
    try:
        return _Stage(model, drive, say).play(random.Random(seed))  # noqa: S311 - no secret
    finally:
        shutil.rmtree(drive, ignore_errors=True)


class _Stage:
    """The acts, in order, over one drive directory."""

    def __init__(self, model: Path, drive: Path, say: Say) -> None:
        self._drive = drive
        self._say = say
        self._slab = drive / SLAB_NAME
        self._flags = [
            *("--model", str(model), "--drive-path", str(drive)),
            *("--drive-capacity", _CAPACITY, "--drive-free-floor", "512MiB"),
        ]
        self._document = files("pagoda.lab").joinpath("document.md").read_text("utf-8")

    def play(self, rng: random.Random) -> Report:
        computed = self._act("computing")
        entries, _ = DriveInspector(self._drive).entries()
        size_bytes = sum(entry.seal.stored_bytes for entry in entries)
        self._say(f"stopped; {len(entries)} sealed blocks ({size_bytes / 1e6:.0f} MB) on the drive")
        self._drop_page_cache()
        restored = self._act("restoring")
        flip = self._flip_byte(rng, prompt_blocks=restored.tokens_cached // 16)
        corrupted = self._act("restoring around a flipped byte")
        return Report(computed, restored, corrupted, flip, len(entries), size_bytes)

    def _act(self, what: str) -> Answer:
        with ServerProcess(self._flags, log=self._drive / "server.log") as server:
            self._say(f"process {server.pid}: ready in {server.ready_s:.1f} s, {what} …")
            _ask(server, "Good morning.", tokens=4, salt="warm-up")
            ttft_s, text, usage = _ask(server, self._prompt(), tokens=ANSWER_TOKENS)
            answer = Answer(
                pid=server.pid,
                ready_s=server.ready_s,
                ttft_s=ttft_s,
                text=text,
                prompt_tokens=usage["prompt_tokens"],
                tokens_cached=usage["prompt_tokens_details"]["cached_tokens"],
                blocks_quarantined=_quarantined(server),
            )
        self._say(f"process {answer.pid}: first token after {ttft_s * 1000:.0f} ms")
        return answer

    def _prompt(self) -> str:
        return f"{self._document}\n\nUsing the handbook above, answer briefly. {QUESTION}"

    def _drop_page_cache(self) -> None:
        """What is read next comes from the drive, whatever the slab was opened with."""
        if hasattr(os, "posix_fadvise"):
            fd = os.open(self._slab, os.O_RDONLY)
            try:
                os.fsync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)

    def _flip_byte(self, rng: random.Random, *, prompt_blocks: int) -> Flip:
        """Change one random byte of a random block of the document's prompt."""
        blocks = _longest_chain(DriveInspector(self._drive))[1:prompt_blocks]
        if not blocks:
            raise PagodaError("nothing was restored; there is no block to damage")
        entry = rng.choice(blocks)
        offset = entry.offset + rng.randrange(entry.seal.stored_bytes)
        fd = os.open(self._slab, os.O_RDWR)
        try:
            before = os.pread(fd, 1, offset)[0]
            after = before ^ rng.randrange(1, 256)
            os.pwrite(fd, bytes([after]), offset)
            os.fsync(fd)
        finally:
            os.close(fd)
        self._drop_page_cache()
        self._say(
            f"flipped byte {offset} of the slab, in the prompt's block {entry.seal.depth}: "
            f"0x{before:02x} is now 0x{after:02x}"
        )
        return Flip(
            offset=offset, slot=entry.slot, depth=entry.seal.depth, before=before, after=after
        )


def _longest_chain(inspector: DriveInspector) -> list[Entry]:
    """The blocks of the deepest prefix on the drive, from its first block on."""
    entries, _ = inspector.entries()
    by_key = {entry.seal.key: entry for entry in entries}
    chain: list[Entry] = []
    at = max(entries, key=lambda entry: entry.seal.depth, default=None)
    while at is not None:
        chain.append(at)
        at = None if at.seal.parent == ROOT else by_key.get(at.seal.parent)
    return chain[::-1]


def _ask(
    server: ServerProcess, content: str, *, tokens: int, salt: str = ""
) -> tuple[float, str, dict[str, Any]]:
    """Stream an answer: seconds to its first token, its text, and the usage it reports."""
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": content}],
        "temperature": 0,
        "max_tokens": tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if salt:  # a tenant of its own, which shares no block with the question
        body["cache_salt"] = salt
    first_s = 0.0
    text = ""
    usage: dict[str, Any] = {}
    with httpx.Client(base_url=server.url, timeout=300.0) as client:  # made before the clock runs
        started_s = time.perf_counter()
        with client.stream("POST", "/v1/chat/completions", json=body) as response:
            if response.is_error:
                raise PagodaError(f"the server said {response.status_code}: {response.read()!r}")
            for line in response.iter_lines():
                if not line.startswith("data: ") or line == "data: [DONE]":
                    continue
                event = json.loads(line.removeprefix("data: "))
                usage = event.get("usage") or usage
                piece = "".join(c["delta"].get("content") or "" for c in event["choices"])
                if piece and not first_s:
                    first_s = time.perf_counter() - started_s
                text += piece
    return first_s, text, usage


def _quarantined(server: ServerProcess) -> int:
    lines = httpx.get(f"{server.url}/metrics", timeout=10.0).text.splitlines()
    values = [line.rsplit(" ", 1)[1] for line in lines if line.startswith(_QUARANTINED + "{")]
    return int(sum(float(value) for value in values))
