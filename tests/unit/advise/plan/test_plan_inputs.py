"""Inputs and outputs at the edge: traces, nvidia-smi, SVG."""

from __future__ import annotations

import gzip
import json
import os
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda.advise.plan.hostgpus import parse_gpus
from pagoda.advise.plan.load import load_trace
from pagoda.advise.plan.svg import Plot
from pagoda.core.errors import SettingsError

JSON_LINES = [
    {"timestamp": 0, "input_length": 1024, "output_length": 100, "hash_ids": [1, 2]},
    {"timestamp": 1000, "input_length": 1536, "output_length": 300, "hash_ids": [1, 2, 3]},
]


def _shared(name: str) -> Path:
    beside = Path(__file__).resolve().parents[4].parent / "shared"
    return Path(os.environ.get("PAGODA_SHARED", beside)) / "data" / "traces" / name


def test_a_json_trace_gives_means_rate_and_sharing(tmp_path: Path) -> None:
    """Means are over requests, the rate over the span, sharing what an endless cache holds."""
    file = tmp_path / "trace.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in JSON_LINES), encoding="utf-8")
    load = load_trace(file)
    assert load.input_tokens == 1280
    assert load.output_tokens == 200
    assert load.requests_per_s == 2
    assert load.shared_prefix == pytest.approx(1024 / 2560)


def test_a_run_coded_trace_is_the_same(tmp_path: Path) -> None:
    """The compact form, gzipped, gives the same load as JSON lines."""
    plain, packed = tmp_path / "trace.jsonl", tmp_path / "trace.runs.gz"
    plain.write_text("\n".join(json.dumps(row) for row in JSON_LINES), encoding="utf-8")
    packed.write_bytes(gzip.compress(b"0 1024 100 1+2\n1000 1536 300 1+3\n"))
    first, second = load_trace(plain), load_trace(packed)
    assert vars(first) | {"source": ""} == vars(second) | {"source": ""}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "not a trace",
        '{"a": 1}',
        '{"input_length": 5',
        "[1]",
        "0 5 5 1+9999999999",
        "0 -5 5",
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    """What is not a trace is an error that says which forms are."""
    file = tmp_path / "trace.jsonl"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        load_trace(file)
    assert caught.value.key == "trace"


@settings(deadline=None)
@given(data=st.binary(max_size=300))
def test_any_bytes_are_a_trace_or_an_error(data: bytes, tmp_path_factory) -> None:
    """No file makes the trace reader fail in another way."""
    file = tmp_path_factory.mktemp("traces") / "trace"
    file.write_bytes(data)
    try:
        tokens = load_trace(file).input_tokens
    except SettingsError:
        return
    assert tokens > 0


@pytest.mark.skipif(
    not _shared("conversation_trace.runs.gz").is_file(), reason="the shared traces are not here"
)
def test_a_public_trace_has_its_published_sharing() -> None:
    """Mooncake's conversation trace: 36.6 % of blocks are seen again, 38.45 % of tokens when
    generated blocks are kept too; of the input alone it lies between.
    """
    load = load_trace(_shared("conversation_trace.runs.gz"))
    assert 0.366 < load.shared_prefix < 0.3845
    assert load.requests_per_s == pytest.approx(3.4, abs=0.2)


def test_this_hosts_gpus_are_recognised() -> None:
    """Count, memory and PCIe come from nvidia-smi, the rest from the catalogue."""
    facts, count = parse_gpus("NVIDIA L4, 23034, 3, 8\nNVIDIA L4, 23030, 4, 16\n")
    assert count == 2
    assert facts.memory_bytes == 23030 << 20
    assert (facts.pcie_generation, facts.pcie_lanes) == (3, 8)
    assert facts.bandwidth == 300e9


@pytest.mark.parametrize(
    "printed",
    ["", "No devices were found", "NVIDIA L4, 1, 4, 16\nNVIDIA A10, 1, 4, 16", "Unheard, 1, 4, 16"],
)
def test_unclear_hosts_are_refused(printed: str) -> None:
    """No GPU, several kinds or an unknown one is an error, not a guess."""
    with pytest.raises(SettingsError) as caught:
        parse_gpus(printed)
    assert caught.value.remedy


def test_an_unknown_memory_falls_back_to_the_catalogue() -> None:
    """A cell that is not a number (as on some hosts) leaves the catalogue's figure."""
    facts, _ = parse_gpus("NVIDIA L4, [N/A], [N/A], [N/A]")
    assert facts.memory_bytes == 23034 << 20


@settings(deadline=None)
@given(
    speeds=st.lists(st.floats(0.001, 1e9), min_size=1, max_size=8),
    title=st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=40),
)
def test_plots_are_valid_and_inside_their_frame(speeds: list[float], title: str) -> None:
    """Any curve is well-formed SVG with every point inside the frame."""
    points = tuple((float(1 << i), speed) for i, speed in enumerate(speeds))
    drawn = Plot(title=title, x_label="GPUs", y_label="tokens/s", points=points, marked=1.0).draw()
    root = ET.fromstring(drawn)
    circles = [e for e in root.iter() if e.tag.endswith("circle")]
    assert len(circles) == len(points)
    for circle in circles:
        assert 0 <= float(circle.attrib["cx"]) <= 640
        assert 0 <= float(circle.attrib["cy"]) <= 400
