"""Sizes as people write them: percents, blocks, bytes."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.core.errors import SettingsError
from pagoda.core.trace import Trace, TraceRequest
from pagoda.lab.replay.capacities import (
    Blocks,
    Capacity,
    blocks_of,
    parse_capacities,
    parse_capacity,
)

MANY = Blocks(unique=10**6, bytes_each=1 << 20)


@given(st.decimals(min_value="0.01", max_value=300, places=2), st.integers(10**5, 10**7))
def test_a_percent_is_of_the_unique_blocks_rounded_down(percent: object, unique: int) -> None:
    """Exactly: 0.07 % of 10 million are not one block less because of a float."""
    capacity = parse_capacity(f"{percent}%", flag="--capacity")
    expected = Fraction(str(percent)) * unique // 100
    assert capacity.of(Blocks(unique=unique), flag="--capacity") == expected


@given(st.integers(1, 10**9))
def test_a_bare_number_counts_blocks(count: int) -> None:
    """Whatever the trace has."""
    assert parse_capacity(str(count), flag="--host").of(MANY, flag="--host") == count


@given(st.integers(1, 1 << 20), st.integers(1, 64))
def test_bytes_hold_whole_blocks(kib: int, block_kib: int) -> None:
    """What a block does not fill is left."""
    blocks = Blocks(unique=1, bytes_each=block_kib << 10)
    capacity = parse_capacity(f"{kib}KiB", flag="--drive")
    if kib < block_kib:
        with pytest.raises(SettingsError, match="less than one block") as caught:
            capacity.of(blocks, flag="--drive")
        assert advised(caught.value).of(blocks, flag="--drive") == 1
    else:
        assert capacity.of(blocks, flag="--drive") == kib // block_kib


@given(st.sampled_from(["1%", "0.5%", "12", "3GiB"]), st.integers(2, 8))
def test_a_scaled_capacity_is_so_many_times_as_large(text: str, factor: int) -> None:
    """In every unit: these divide."""
    capacity = parse_capacity(text, flag="--host")
    once = capacity.of(MANY, flag="--host")
    assert capacity.scaled(factor).of(MANY, flag="--host") == factor * once


@pytest.mark.parametrize("text", ["", "x", "-1", "1%%", "%", "1e3", "4G", "1.5", "5 %%", "3XB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    """The error names the flag and shows how it is written."""
    with pytest.raises(SettingsError, match="--capacity") as caught:
        parse_capacities(f"1%,{text}", flag="--capacity")
    assert caught.value.key == "capacity"
    assert caught.value.remedy


def test_a_size_is_named_once() -> None:
    """Two spellings of one are still one: rows would be alike."""
    with pytest.raises(SettingsError, match="twice"):
        parse_capacities("1%,1.0%", flag="--capacity")


def test_bytes_need_to_know_what_a_token_takes() -> None:
    """And the remedy says how to say it."""
    with pytest.raises(SettingsError, match="needs to know") as caught:
        parse_capacity("1GiB", flag="--host").of(Blocks(unique=5), flag="--host")
    assert "--kv-bytes-per-token" in caught.value.remedy


def advised(error: SettingsError) -> Capacity:
    """The capacity that a remedy names first."""
    said = re.search(r"--[a-z]+ (\S+)", error.remedy)
    assert said is not None
    return parse_capacity(said[1], flag="--capacity")


@given(st.integers(0, 90), st.sampled_from(["0%", "1%", "0"]))
def test_less_than_a_block_is_refused(unique: int, text: str) -> None:
    """A tier of nothing would hit nothing, silently. What the remedy says is a block, or as little
    more as whole percents allow."""
    blocks = Blocks(unique=unique)
    with pytest.raises(SettingsError, match="less than one block") as caught:
        parse_capacity(text, flag="--capacity").of(blocks, flag="--capacity")
    assert advised(caught.value).of(blocks, flag="--capacity") == 1


def test_blocks_of_a_trace() -> None:
    """Unique ones are of prompts; a block takes its tokens' bytes."""
    asked = TraceRequest(at_s=0, input_tokens=8, output_tokens=4, prompt=(1, 2), generated=(3,))
    trace = Trace(name="t", block_tokens=4, requests=[asked, asked])
    assert blocks_of(trace, 10) == Blocks(unique=2, bytes_each=40)
    assert blocks_of(trace, None) == Blocks(unique=2)
