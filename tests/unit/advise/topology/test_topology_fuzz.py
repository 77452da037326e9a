"""Any text gives an answer, quickly; damage never gives a group that the whole would refuse."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagoda.advise.topology.groups import Grouper
from pagoda.advise.topology.report import analyse
from pagoda.advise.topology.status import link_status
from pagoda.advise.topology.svg import draw

WORDS = [
    "GPU0",
    "GPU1",
    "GPU2",
    "GPU11",
    "NIC0",
    "NV18",
    "NV1",
    "NV",
    "X",
    "SYS",
    "NODE",
    "PIX",
    "PHB",
]
WORDS += [
    "\t",
    " ",
    "\n",
    "0-3",
    "N/A",
    "CPU Affinity",
    "NUMA Affinity",
    "MIG 1g.5gb",
    "XGMI",
    "|",
    "\x1b[0m",
]
SCRAPS = st.lists(st.sampled_from(WORDS), max_size=60).map("".join)
STATUSES = {"ok", "refused", "unknown"}


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=400), SCRAPS))
def test_any_text_gives_a_report(text: str) -> None:
    """No input raises, and every answer has a status, a reason and groups inside the GPUs."""
    report = analyse(text)
    shape = report.as_json()
    assert report.status in STATUSES
    assert report.reason
    for groups in shape["tp_groups"].values():
        members = [gpu for group in groups for gpu in group]
        assert len(members) == len(set(members))
        assert set(members) <= set(shape["gpus"])
    assert draw(report).startswith("<svg")
    link_status(text)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 10_000), damage=st.integers(1, 4))
def test_damaged_bytes_give_no_silently_wrong_group(table: Any, seed: int, damage: int) -> None:
    """With bytes dropped or doubled, groups are the same, or the damage is told.

    A changed link class is another matrix, not damage, so only blanks, digits of other
    cells and whole words are touched: what copying loses.
    """
    rng = random.Random(seed)
    text = table.text()
    for _ in range(damage):
        place = rng.randrange(len(text))
        end = place + rng.choice([1, 2, 5, 20])
        text = text[:place] + rng.choice(["", text[place:end] * 2, " "]) + text[end:]
    report, whole = analyse(text), analyse(table.text())
    if report.status != "ok" or report.as_json()["tp_groups"] == whole.as_json()["tp_groups"]:
        return
    assert whole.matrix is not None
    wrong = [
        group
        for groups in report.as_json()["tp_groups"].values()
        for group in groups
        if set(group) - set(whole.matrix.gpus) or Grouper(whole.matrix).fault(group) is not None
    ]
    told = any(
        word in text for text in report.warnings for word in ("incomplete", "damaged", "one row")
    )
    assert not wrong or told


HOSTILE = [
    "GPU0 " * 20_000,
    "\t" * 300_000,
    "GPU0 X " + "NV1" * 100_000,
    "GPU0\tGPU1\n" + "1" * 200_000 + "\n",
    "[" * 200_000 + "m",
    "\x1b[" + "9;" * 100_000,
    "GPU0 X NV" + "9" * 100_000,
    ">" * 100_000 + "GPU0",
    ("GPU0\tGPU1\n" + "GPU" * 30_000 + "!\n"),
    "MIG " * 100_000,
    "GPU 0,1," + "1," * 50_000 + ": NVIDIA",
    "\n".join(f"GPU{k} X " + "SYS " * 120 for k in range(400)),
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_input_is_answered(text: str) -> None:
    """Inputs made to provoke backtracking end, with an answer; a hang fails by its time limit."""
    assert analyse(text).status in STATUSES
