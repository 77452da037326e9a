"""The examination: bytes of logs in, facts out, in one pass and bounded memory.

Files may come in any chunks and interleaved. A line that no needle hits is never decoded,
apart from a sample that tells times, nodes and ranks. A needle that hits everywhere is
thinned out: the hits left stand for those dropped, so that a log of nothing but one
warning costs no more than any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from .facts import Facts, FileSpan
from .lines import Lines
from .model import Event, Line, Role, Sign
from .normalise import MAX_LINE_CHARS, normalise, undress
from .scan import NeedleScan

__all__ = ["CHUNK_BYTES", "Examination"]

CHUNK_BYTES = 1 << 20
_FULL_HITS = 2000
_THIN_HITS = 4
_SAMPLED_LINES = 400
_MAX_EVIDENCE_CHARS = 300
_ESCAPES = re.compile(rb"\x1b\[[0-?]{0,16}[ -/]{0,4}[@-~]")


_Compiled = tuple[Sign, re.Pattern[str]]


@dataclass(slots=True)
class _Open:
    """A file being read: the line that is not complete yet, and the count so far."""

    span: FileSpan
    carry: bytes = b""
    clock: str = ""
    sampled: int = 0
    wrap_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Hit:
    """A place to look at: its line's number, the text around it, the needles, its weight."""

    line: int
    raw: bytes
    needles: tuple[int, ...]
    weight: int


class Examination:
    """Collects the facts that rules judge."""

    def __init__(self, signs: Iterable[Sign]) -> None:
        self.facts = Facts()
        self._files: dict[str, _Open] = {}
        self._scan, self._signs = _prepared(tuple(signs))
        self._spent = np.zeros(self._scan.codes, dtype=np.int64)

    def feed(self, name: str, data: bytes) -> None:
        """Take in the next bytes of a file."""
        state = self._file(name)
        for start in range(0, len(data), CHUNK_BYTES):
            block = state.carry + data[start : start + CHUNK_BYTES]
            end = block.rfind(b"\n") + 1
            if end == 0 and len(block) >= CHUNK_BYTES:
                end = len(block)  # a line without an end must not grow without bound
            state.carry = block[end:]
            if end:
                self._chunk(state, block[:end])

    @property
    def carried_bytes(self) -> int:
        """Bytes of lines that have no end yet; bounded by two chunks a file."""
        return sum(len(state.carry) for state in self._files.values())

    def close(self, name: str) -> None:
        """End a file: its last line may lack a newline."""
        state = self._file(name)
        if state.carry:
            last, state.carry = state.carry + b"\n", b""
            self._chunk(state, last)

    def begin_again(self, name: str) -> None:
        """Forget a file's incomplete line: the file was cut short, and its end will never come."""
        self._file(name).carry = b""

    def _file(self, name: str) -> _Open:
        if name not in self._files:
            span = FileSpan(name)
            self._files[name] = _Open(span)
            self.facts.files[name] = span
        return self._files[name]

    def _chunk(self, state: _Open, chunk: bytes) -> None:
        """Read whole lines."""
        if b"\x1b" in chunk:
            chunk = _ESCAPES.sub(b"", chunk)
        if b"\r\n" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n")
        if not chunk.endswith(b"\n"):
            chunk += b"\n"
        ends = np.flatnonzero(np.frombuffer(chunk, dtype=np.uint8) == 10)
        lines = Lines(chunk, ends, state.span.lines + 1 + np.arange(len(ends)))
        if state.span.lines == 0:
            state.wrap_bytes = lines.wrap_width()
        state.span.lines += len(ends)
        if state.wrap_bytes:
            lines = lines.unwrapped(state.wrap_bytes)
        self._sample(state, lines)
        for hit in self._hits(lines):
            self._look(state, hit)

    def _sample(self, state: _Open, lines: Lines) -> None:
        """Learn times, nodes and ranks from the first lines and from both ends of each chunk."""
        count = len(lines.ends)
        picks = list(range(min(max(2, _SAMPLED_LINES - state.sampled), count)))
        picks += [at for at in (count - 2, count - 1) if at >= len(picks)]
        state.sampled += len(picks)
        for at in picks:
            line = normalise(lines.text(at))
            self._place(state, line)

    def _place(self, state: _Open, line: Line) -> float | None:
        """Note a line's node, rank and time; the time is None when on another clock."""
        facts = self.facts
        facts.prefixed += line.prefixed
        facts.remote |= line.remote
        if line.node and len(facts.nodes) < 512:
            facts.nodes.add(line.node)
        if line.rank is not None and len(facts.ranks) < 4096:
            facts.ranks.add(line.rank)
        if line.time_s is None:
            return None
        state.clock = state.clock or line.clock
        if line.clock != state.clock:
            return None
        state.span.saw(line.time_s)
        return line.time_s

    def _hits(self, lines: Lines) -> Iterator[_Hit]:
        """The places that needles point at, one a line (a very long line may give several)."""
        where, codes = self._scan.hits(lines.chunk)
        where, codes, weights = self._thin(where, codes)
        of_line = np.searchsorted(lines.ends, where)
        inside = of_line < len(lines.ends)
        where, codes, of_line = where[inside], codes[inside], of_line[inside]
        part = (where - lines.starts(of_line)) // MAX_LINE_CHARS
        places = zip(of_line.tolist(), part.tolist(), where.tolist(), codes.tolist(), strict=True)
        for (line, _), group in groupby(places, key=itemgetter(0, 1)):
            found = [(at, code) for _, _, at, code in group]
            yield _Hit(
                line=int(lines.numbers[line]),
                raw=lines.around(line, found[0][0], found[-1][0]),
                needles=tuple(
                    needle
                    for code in dict.fromkeys(code for _, code in found)
                    for needle in self._scan.needles_of(code)
                ),
                weight=min(weights.get(code, 1) for _, code in found),
            )

    def _thin(
        self, where: NDArray[np.int64], codes: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], dict[int, int]]:
        """Drop hits of windows that have hit too often; the rest stand for them by weight."""
        counts = np.bincount(codes, minlength=len(self._spent))
        allowed = np.maximum(_FULL_HITS - self._spent, _THIN_HITS)
        keep = np.ones(len(where), dtype=bool)
        weights: dict[int, int] = {}
        for code in np.flatnonzero(counts > allowed).tolist():
            places = np.flatnonzero(codes == code)
            step = -(-len(places) // int(allowed[code]))
            keep[places] = False
            keep[places[::step]] = True
            weights[code] = step
        self._spent += np.minimum(counts, allowed)
        return where[keep], codes[keep], weights

    def _look(self, state: _Open, hit: _Hit) -> None:
        """Decide which signs a line shows, and record them."""
        text = undress(hit.raw.decode("utf-8", "replace"))
        matched = self._matches(text, hit.needles)
        if not matched:
            return
        line = normalise(text)
        if line.logger:  # a name such as uvicorn.error says where a line is from, not what it says
            matched = self._matches(text.replace(line.logger, "", 1), hit.needles)
        roles = {sign.role for sign, _ in matched}
        for sign, match in matched:
            if not _believed(sign, line, roles):
                continue
            self.facts.add(
                Event(
                    sign=sign.id,
                    file=state.span.name,
                    line=hit.line,
                    text=line.text.strip()[:_MAX_EVIDENCE_CHARS],
                    rank=line.rank,
                    node=line.node,
                    time_s=line.time_s if line.clock == (state.clock or line.clock) else None,
                    weight=hit.weight * line.weight,
                    values={key: value[:80] for key, value in match.groupdict().items() if value},
                )
            )

    def _matches(self, text: str, needles: tuple[int, ...]) -> list[tuple[Sign, re.Match[str]]]:
        """The signs whose needle and pattern are both in the text."""
        lowered = text.lower()
        matched: dict[str, tuple[Sign, re.Match[str]]] = {}
        for needle in needles:
            if self._scan.needles[needle] not in lowered:
                continue
            for sign, pattern in self._signs[needle]:
                if sign.id not in matched and (match := pattern.search(text)):
                    matched[sign.id] = (sign, match)
        return list(matched.values())


@cache
def _prepared(signs: tuple[Sign, ...]) -> tuple[NeedleScan, list[list[_Compiled]]]:
    """The scan for all needles, and each needle's signs with their patterns."""
    scan = NeedleScan(needle for sign in signs for needle in sign.needles)
    place = {needle: index for index, needle in enumerate(scan.needles)}
    by_needle: list[list[_Compiled]] = [[] for _ in scan.needles]
    for sign in signs:
        pattern = re.compile(sign.pattern, re.IGNORECASE | re.ASCII)
        for needle in sign.needles:
            by_needle[place[needle]].append((sign, pattern))
    return scan, by_needle


def _believed(sign: Sign, line: Line, roles: set[Role]) -> bool:
    """Whether a sign counts in a line that says it: settings, noise and INFO lines do not."""
    if sign.levels and line.level not in sign.levels:
        return False
    if sign.role == "root":
        calm = line.level in ("INFO", "DEBUG") and not sign.any_level
        return not calm and "settings" not in roles
    if sign.role == "symptom":
        return not roles & {"settings", "noise"}
    return True
