"""Whether a stored block is the one that is computed now: whom to ask, and the measure.

The difference of two payloads is that of their worst part (K or V of one layer, where the layout
tells): the Euclidean distance of the two, over the longer of their lengths. It is 0 for equal
bytes, about 1.3 for the KV of other tokens, and can be 2 at most.

What an engine may differ by from itself, when it computes the same tokens in another batch or
with other kernels, was measured on SmolLM2-135M, two sets of kernels, 75 blocks: 0.034 in bf16
and 2.5e-6 in fp32, growing as the mantissa shrinks. The same tokens behind another prompt are
0.73 apart in both. The tolerances lie between; fp16's is bf16's, an eighth for three more bits.
In bf16 a tolerance cannot tell everything: one token changed far before a block moves it by
0.03 to 0.08. So an engine that computes the same bits each time is held to them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

# By the name of a payload's numbers: how far apart two computations of one block may be.
TOLERANCES: Mapping[str, float] = MappingProxyType(
    {"float32": 1e-3, "float16": 0.0125, "bfloat16": 0.1}
)
_WIDTHS = {"float32": 4, "float16": 2, "bfloat16": 2}


class Verdict(StrEnum):
    """What a comparison says. One word a kind, stable in metrics."""

    EQUAL = "equal"  # the same bytes
    CLOSE = "close"  # within the tolerance
    WRONG = "wrong"  # the stored block is not the one that is computed now
    UNREAD = "unread"  # the copy could not be read back, so nothing is known of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How a payload is read as numbers: `parts` parts of `part_bytes` each; what is behind them is
    padding. `exact` is for an engine that computes the same bits each time."""

    dtype: str
    parts: int
    part_bytes: int
    exact: bool = False

    def __post_init__(self) -> None:
        assert self.dtype in TOLERANCES, f"{self.dtype} cannot be compared as numbers"
        assert self.parts > 0, "a payload has a part"
        assert self.part_bytes % _WIDTHS[self.dtype] == 0, "a part holds whole numbers"

    @property
    def size_bytes(self) -> int:
        """Bytes that are compared."""
        return self.parts * self.part_bytes

    @property
    def tolerance(self) -> float:
        """The largest difference that is none."""
        return 0.0 if self.exact else TOLERANCES[self.dtype]


def difference(stored: memoryview, computed: memoryview, form: Form) -> float:
    """How far a payload is from another, by its worst part; infinite where one of them has a
    number that is none (NaN or infinite) and their bytes differ. Both have `form.size_bytes`."""
    size = form.size_bytes
    assert min(len(stored), len(computed)) >= size, "a payload is shorter than its parts"
    if np.array_equal(_bytes(stored[:size]), _bytes(computed[:size])):
        return 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        mine, theirs = _numbers(stored[:size], form), _numbers(computed[:size], form)
        apart = _lengths(mine - theirs)
        longest = np.maximum(_lengths(mine), _lengths(theirs))
        shares = np.divide(apart, longest, out=np.zeros_like(apart), where=longest != 0)
    worst = float(shares.max())
    return worst if np.isfinite(worst) and np.isfinite(longest).all() else float("inf")


def judge(difference: float, form: Form) -> Verdict:
    """What a difference means."""
    if difference == 0.0:
        return Verdict.EQUAL
    return Verdict.CLOSE if difference <= form.tolerance else Verdict.WRONG


class Sampler:
    """Chooses a share of what it is asked about. The choice depends on `key` and on how often it
    was asked alone, so a run can be repeated, and nobody without the key can foresee it."""

    def __init__(self, rate: float, key: bytes) -> None:
        assert 0.0 <= rate <= 1.0, f"{rate} is no share"
        self._below = int(rate * 2.0**64)
        self._key = key
        self._asked = 0

    @property
    def active(self) -> bool:
        """Whether anything can be chosen."""
        return self._below > 0

    def choose(self) -> bool:
        """Whether this one is chosen."""
        self._asked += 1
        count = self._asked.to_bytes(8, "little")
        digest = hashlib.blake2b(count, key=self._key, digest_size=8).digest()
        return int.from_bytes(digest, "little") < self._below


def _bytes(payload: memoryview) -> NDArray[np.uint8]:
    return np.frombuffer(payload, np.uint8)  # views compare one element at a time


def _numbers(payload: memoryview, form: Form) -> NDArray[np.float32]:
    """The payload's numbers, a row a part."""
    match form.dtype:
        case "float32":
            numbers = np.frombuffer(payload, "<f4")
        case "float16":
            numbers = np.frombuffer(payload, "<f2").astype(np.float32)
        case _:  # bfloat16: the upper half of a float32
            numbers = (np.frombuffer(payload, "<u2").astype("<u4") << 16).view("<f4")
    return numbers.reshape(form.parts, -1)


def _lengths(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """The Euclidean length of each row."""
    scale = np.abs(rows).max(axis=1, keepdims=True).astype(np.float64)  # squares stay in range
    safe = np.where(scale > 0, scale, 1.0)
    scaled = rows / safe
    lengths: NDArray[np.float64] = safe[:, 0] * np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
    return lengths
