"""How large a tier is to be, as people say it: "5%" of a trace's unique blocks, "4096" blocks, or
bytes such as "20GiB"."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import NoReturn

from pagoda.core.errors import SettingsError
from pagoda.core.trace import Trace
from pagoda.settings.units import format_size, parse_size

_NUMBER = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,18})?", re.ASCII)
REMEDY = "write 5% (of the trace's unique blocks), 4096 (blocks) or 20GiB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """What blocks a trace has, as far as capacities ask: how many different ones, and how many
    bytes of keys and values one takes (None: nobody said)."""

    unique: int
    bytes_each: int | None = None


@dataclass(frozen=True, slots=True)
class Capacity:
    """A capacity as it was asked for. Exactly one of the three is set."""

    text: str
    percent: Fraction | None = None
    blocks: int | None = None
    size_bytes: int | None = None

    @property
    def size(self) -> tuple[Fraction | None, int | None, int | None]:
        """What was asked for, however it was spelled."""
        return self.percent, self.blocks, self.size_bytes

    def of(self, blocks: Blocks, *, flag: str) -> int:
        """In whole blocks. Raises SettingsError when it is less than one, or when bytes are
        asked for and nobody said how many a block takes."""
        count = self._of(blocks, flag)
        if count < 1:
            what = f"of the trace's {blocks.unique:,}"
            if self.size_bytes is not None:
                what = f"one takes {blocks.bytes_each:,} B"
            said = f"{flag} {self.text} is less than one block ({what})"
            _refuse(said, flag, remedy=self._least(blocks, flag))
        return count

    def scaled(self, factor: int) -> Capacity:
        """A capacity `factor` times as large."""
        return Capacity(
            f"{factor} × {self.text}",
            None if self.percent is None else self.percent * factor,
            None if self.blocks is None else self.blocks * factor,
            None if self.size_bytes is None else self.size_bytes * factor,
        )

    def _least(self, blocks: Blocks, flag: str) -> str:
        """The smallest capacity that is one block, in the unit that was asked for."""
        if self.size_bytes is not None:
            assert blocks.bytes_each is not None, "bytes were counted in blocks"
            return f"write {flag} {format_size(blocks.bytes_each)} or more"
        if self.percent is not None and blocks.unique:
            return f"write {flag} {ceil(100 / blocks.unique)}% or more, or {flag} 1 for one block"
        return f"write {flag} 1 for one block, or more"

    def _of(self, blocks: Blocks, flag: str) -> int:
        if self.percent is not None:
            return int(blocks.unique * self.percent / 100)
        if self.blocks is not None:
            return self.blocks
        assert self.size_bytes is not None, "a capacity is one of three"
        if blocks.bytes_each is None:
            _refuse(
                f"{flag} {self.text} needs to know what a token takes",
                flag,
                remedy="add --kv-bytes-per-token 160KiB, or --model and --kv-dtype",
            )
        return self.size_bytes // blocks.bytes_each


def blocks_of(trace: Trace, kv_bytes_per_token: int | None) -> Blocks:
    """The blocks that capacities of this trace refer to."""
    each = None if kv_bytes_per_token is None else kv_bytes_per_token * trace.block_tokens
    return Blocks(unique=trace.unique_blocks(), bytes_each=each)


def parse_capacities(text: str, *, flag: str) -> tuple[Capacity, ...]:
    """Capacities between commas, in their order, each once. Raises SettingsError."""
    found = parse_row(text, flag=flag)
    if len({one.size for one in found}) < len(found):
        _refuse(f"{flag} {text} names a capacity twice", flag, remedy="name each once")
    return found


def parse_row(text: str, *, flag: str) -> tuple[Capacity, ...]:
    """Capacities between commas that go with those of another flag. Raises SettingsError."""
    return tuple(parse_capacity(part.strip(), flag=flag) for part in text.split(","))


def parse_capacity(text: str, *, flag: str) -> Capacity:
    """One capacity. Raises SettingsError."""
    number = text.removesuffix("%").rstrip()
    if text.endswith("%") and _NUMBER.fullmatch(number):
        return Capacity(text, percent=Fraction(number))
    if _NUMBER.fullmatch(text):
        if "." in text:
            _refuse(f"{flag} {text}: part of a block", flag)
        return Capacity(text, blocks=int(text))
    try:
        return Capacity(text, size_bytes=parse_size(text))
    except ValueError as error:
        _refuse(f"{flag} {text!r} {error}", flag)


def _refuse(message: str, flag: str, *, remedy: str = REMEDY) -> NoReturn:
    raise SettingsError(message, key=flag.lstrip("-"), source="flag", remedy=remedy)
