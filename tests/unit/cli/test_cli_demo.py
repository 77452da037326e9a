"""`pagoda demo`'s screen: it fits a terminal of 80 columns and ends with what to do next."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from rich.console import Console

from pagoda.cli.demo import next_step, table
from pagoda.lab.demo import Answer, Flip, Report


def _answer(pid: int, ttft_s: float, cached: int) -> Answer:
    return Answer(
        pid=pid,
        ready_s=3.0,
        ttft_s=ttft_s,
        text="yes",
        prompt_tokens=2744,
        tokens_cached=cached,
        blocks_quarantined=0,
    )


def test_the_table_fits_eighty_columns() -> None:
    """With a slow first token and a process number of seven digits, nothing is cut or wrapped."""
    report = Report(
        computed=_answer(4194301, 98.765, 0),
        restored=_answer(4194302, 1.234, 2720),
        corrupted=_answer(4194303, 55.5, 1248),
        flip=Flip(offset=0, slot=0, depth=0, before=0, after=1),
    )
    console = Console(width=200)
    with console.capture() as captured:
        console.print(table(report))
    lines = [line.rstrip() for line in captured.get().splitlines()]
    assert max(map(len, lines[1:-1])) <= 80  # title and caption are centred
    assert any("2720 of 2744" in line and "4194302" in line for line in lines)


def test_the_next_step_can_be_typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The command is on the path, or named by its place; a model's directory is quoted."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    assert 'pagoda serve --model "$(pagoda model path)"' in next_step(None)
    assert f"serve --model {shlex.quote('my model')}" in next_step(Path("my model"))
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(sys, "executable", str(tmp_path / ".venv" / "bin" / "python"))
    assert next_step(None).startswith(".venv/bin/pagoda serve")
