"""The version guard: it reads sources, and names each difference."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pagoda.cli import connect
from pagoda.connect.guard import Expected, Fit, Surface, examine, examine_elsewhere
from pagoda.connect.surfaces import require
from pagoda.core.errors import PagodaError, SettingsError

_SOURCE = """
from abc import abstractmethod

raise RuntimeError("the guard imports nothing")

class Tier:
    jobs: int

    def __init__(self, spec, view): ...

    @abstractmethod
    def lookup(self, key, context): ...

    @classmethod
    def metrics(cls, extra): ...

    def poll(self): ...
"""
_TIER = Expected(
    module="anengine.deep.base",
    name="Tier",
    methods={
        "__init__": ("spec", "view"),
        "lookup": ("key", "context"),
        "metrics": ("extra",),
        "poll": (),
    },
    fields=("jobs",),
    sealed=True,
)
_SURFACE = Surface(
    package="anengine", distributions=("anengine",), tested=("1.2",), classes=(_TIER,)
)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An engine that is installed, version 1.2; returns the source of its base class."""
    package = tmp_path / "anengine" / "deep"
    package.mkdir(parents=True)
    (tmp_path / "anengine" / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (package / "base.py").write_text(_SOURCE)
    _version(tmp_path, "1.2")
    monkeypatch.syspath_prepend(str(tmp_path))
    return package / "base.py"


def _version(root: Path, version: str) -> None:
    info = root / "anengine-0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: anengine\nVersion: {version}\n")


def test_a_tested_version_with_its_signatures_fits(installed: Path) -> None:
    """Nothing differs, and nothing of the engine was imported."""
    verdict = examine(_SURFACE)
    assert verdict.fit is Fit.TESTED
    assert verdict.fits
    assert "anengine" not in sys.modules
    require(verdict)


def test_another_version_with_the_same_signatures_is_said_to_be_untested(
    installed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It starts, and the verdict and a warning say that no test ran on it."""
    _version(installed.parents[2], "1.3")
    verdict = examine(_SURFACE)
    assert (verdict.fit, verdict.version) == (Fit.UNTESTED, "1.3")
    require(verdict)
    assert "1.3 was not tested" in caplog.text


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("def lookup(self, key, context)", "def lookup(self, key)", "Tier.lookup takes (key)"),
        ("def lookup(self, key, context)", "def lookup(self, context, key)", "lookup takes"),
        ("def poll(self)", "def poll(self, *, wait)", "Tier.poll takes (wait)"),
        ("def poll(self)", "def polled(self)", "Tier.poll is not there"),
        ("jobs: int", "tasks: int", "Tier has no jobs"),
        ("class Tier", "class Level", "anengine.deep.base.Tier is not there"),
        (
            "def poll",
            "@abstractmethod\n    def more(self): ...\n\n    def poll",
            "more is abstract",
        ),
    ],
)
def test_each_change_is_named_and_refused(installed: Path, old: str, new: str, named: str) -> None:
    """A parameter that went, moved or came, a method, field or class that went, a new duty."""
    source = installed.read_text()
    assert old in source
    installed.write_text(source.replace(old, new))
    verdict = examine(_SURFACE)
    assert verdict.fit is Fit.CHANGED
    assert any(named in change for change in verdict.changes), verdict.changes
    with pytest.raises(PagodaError, match="is not what this connector was made for"):
        require(verdict)


def test_an_engine_that_is_not_there_is_absent() -> None:
    """No package: nothing to compare with."""
    verdict = examine(_SURFACE)
    assert verdict.fit is Fit.ABSENT
    with pytest.raises(PagodaError, match="not installed"):
        require(verdict)


def test_another_interpreter_answers_for_itself(tmp_path: Path) -> None:
    """The guard runs there by path, without Pagoda, and says the same of the same interpreter."""
    assert examine_elsewhere(_SURFACE, Path(sys.executable)) == examine(_SURFACE)
    with pytest.raises(OSError, match="nobody"):
        examine_elsewhere(_SURFACE, tmp_path / "nobody")
    with pytest.raises(ValueError, match="did not answer"):
        examine_elsewhere(_SURFACE, Path("/bin/false"))


_ANSWER = {"package": "x", "version": "1", "fit": "tested", "tested": [], "changes": []}


@pytest.mark.parametrize(
    "answer",
    [
        "nothing",
        "[]",
        "{}",
        json.dumps(_ANSWER | {"fit": "perhaps"}),
        json.dumps(_ANSWER | {"version": 5}),
        json.dumps(_ANSWER | {"tested": None}),
        json.dumps(_ANSWER | {"changes": [5]}),
    ],
)
def test_what_is_no_interpreter_is_told_as_such(answer: str, tmp_path: Path) -> None:
    """Whatever a program prints that is no verdict: an error that names it, and the remedy."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\necho '{answer}'\n")
    program.chmod(0o700)
    result = CliRunner().invoke(connect.app, ["check", "vllm", "--python", str(program)])
    assert isinstance(result.exception, SettingsError)
    assert str(program) in result.exception.message


@pytest.mark.parametrize(
    "content", [b"class Tier(", b"\0", b"\xff", b"x=" + b"(" * 5000, b"# coding: none\n"]
)
def test_a_source_that_cannot_be_read_is_a_change(installed: Path, content: bytes) -> None:
    """A broken installation is refused by name."""
    installed.write_bytes(content)
    verdict = examine(_SURFACE)
    assert verdict.fit is Fit.CHANGED
    assert "Tier cannot be read" in verdict.changes[0]


def test_the_command_has_a_status_and_json(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0 when it fits, 1 when it does not, and the same in JSON."""
    monkeypatch.setattr(connect, "SURFACES", {"vllm": _SURFACE})
    run = CliRunner().invoke
    good = run(connect.app, ["check", "vllm", "--json"])
    assert good.exit_code == 0
    assert json.loads(good.stdout)["fits"] is True
    installed.write_text(_SOURCE.replace("poll", "polled"))
    bad = run(connect.app, ["check", "vllm"])
    assert bad.exit_code == 1
    assert "Tier.poll is not there" in bad.stdout


def test_an_engine_that_is_not_here_is_to_be_looked_for_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever has the engine in another environment learns how to name it."""
    nowhere = replace(_SURFACE, package="no_such_engine", distributions=("no-such-engine",))
    monkeypatch.setattr(connect, "SURFACES", {"vllm": nowhere})
    result = CliRunner().invoke(connect.app, ["check", "vllm"])
    assert result.exit_code == 1
    assert "--python" in result.stdout
