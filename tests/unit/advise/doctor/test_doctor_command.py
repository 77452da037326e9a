"""`pagoda doctor`: shapes, exit statuses, refusals, and a log that grows."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import typer
from doctor_logs import cases, excerpts
from typer.testing import CliRunner, Result

from pagoda.advise.doctor import causes
from pagoda.cli import doctor as module
from pagoda.core.errors import SettingsError

BY_NAME = {log.name: log.text for log in excerpts()}
HEALTHY = next(log.text for log in cases() if log.wanted == "healthy")


@pytest.fixture
def app() -> typer.Typer:
    """The command alone."""
    found = typer.Typer()
    found.command("doctor")(module.command)
    return found


def _write(folder: Path, text: str) -> str:
    path = folder / "a.log"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("text", "status", "verdict"),
    [
        (HEALTHY, 0, "healthy"),
        (BY_NAME["gpu_off_bus"], 1, "cause"),
        ("Traceback (most recent call last):\n", 3, "insufficient"),
        ("", 3, "insufficient"),
    ],
)
def test_the_status_tells_the_verdict(
    app: typer.Typer, tmp_path: Path, text: str, status: int, verdict: str
) -> None:
    """0 healthy, 1 a cause, 3 not enough evidence; the JSON agrees."""
    result = CliRunner().invoke(app, [_write(tmp_path, text), "--json"])
    assert result.exit_code == status
    assert json.loads(result.stdout)["verdict"] == verdict


def test_the_json_has_the_promised_shape(app: typer.Typer, tmp_path: Path) -> None:
    """Keys that programs rely on are there, with evidence that points into the file."""
    path = _write(tmp_path, BY_NAME["corrupt_block"])
    report = json.loads(CliRunner().invoke(app, [path, "--json"]).stdout)
    assert set(report) == {"verdict", "causes", "symptoms", "noise", "collect"}
    first = report["causes"][0]
    assert set(first) >= {
        "id", "kind", "sentence", "confidence", "evidence", "remedy", "reference", "will_not_help",
    }  # fmt: skip
    assert first["evidence"][0]["file"] == path
    assert set(first["evidence"][0]) == {"file", "line", "text"}
    assert report["collect"]


def test_several_logs_and_standard_input_are_read_together(
    app: typer.Typer, tmp_path: Path
) -> None:
    """A symptom in one source does not lead when another source has the root."""
    path = _write(tmp_path, BY_NAME["worker_unresponsive"])
    result = CliRunner().invoke(app, [path, "-", "--json"], input=BY_NAME["gpu_off_bus"])
    report = json.loads(result.stdout)
    assert report["causes"][0]["id"] == "gpu_off_bus"
    assert report["causes"][0]["evidence"][0]["file"] == "<stdin>"
    assert "worker_unresponsive" in {symptom["id"] for symptom in report["symptoms"]}


def test_the_text_names_what_will_not_help(app: typer.Typer, tmp_path: Path) -> None:
    """People read the diagnosis, its evidence with line numbers, the remedy and false cures."""
    path = _write(tmp_path, BY_NAME["corrupt_block"])
    told = CliRunner().invoke(app, [path]).stdout
    for part in ("corrupt_block", f"{path}:5:", "What to do", "restarting pods", "Collect"):
        assert part in told


def test_every_cause_is_listed_and_explained(app: typer.Typer) -> None:
    """--list names all causes; --explain tells all about one, in both forms."""
    listed = CliRunner().invoke(app, ["--list"]).stdout
    for cause in causes():
        assert cause.id in listed
    told = CliRunner().invoke(app, ["--explain", "hash_seed_differs"]).stdout
    assert "PYTHONHASHSEED" in told
    as_json = CliRunner().invoke(app, ["--explain", "hash_seed_differs", "--json"]).stdout
    assert json.loads(as_json)["kind"] == "hash_seed"


@pytest.mark.parametrize(
    ("args", "part"),
    [
        ([], "no log"),
        (["missing.log"], "missing.log"),
        (["."], "cannot read"),
        (["--explain", "nothing_like_it"], "nothing_like_it"),
        (["--follow", "a", "b"], "one log"),
    ],
)
def test_bad_input_is_refused_with_a_remedy(app: typer.Typer, args: list[str], part: str) -> None:
    """A refusal names the thing and the remedy; the command line turns it into status 2."""
    error = CliRunner().invoke(app, args).exception
    assert isinstance(error, SettingsError)
    assert part in str(error)
    assert error.remedy


@pytest.mark.parametrize(
    "content", [gzip.compress(b"a log"), "a log".encode("utf-16"), bytes(5000)]
)
def test_what_is_not_text_is_refused(app: typer.Typer, tmp_path: Path, content: bytes) -> None:
    """Compressed, wide and binary files are not taken for healthy logs."""
    path = tmp_path / "a.bin"
    path.write_bytes(content)
    error = CliRunner().invoke(app, [str(path)]).exception
    assert isinstance(error, SettingsError)
    assert error.remedy


def test_a_growing_log_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New bytes are read, also after the file was cut short; the silence between is timed."""
    path = tmp_path / "live.log"
    path.write_text("one\n")
    monkeypatch.setattr("time.sleep", lambda _: None)
    live = module._live(str(path))
    assert next(live).data == b"one\n"
    assert next(live).data == b""
    with path.open("a") as file:
        file.write("two\n")
    assert next(live)[::2] == (b"two\n", False)
    path.write_text("3\n")
    assert next(live)[::2] == (b"3\n", True)
    silence = next(live)
    assert silence.idle_s >= 0.0
    assert not silence.anew


def test_following_ends_with_the_verdict(app: typer.Typer) -> None:
    """Standard input is followed to its end: causes are told once, then the whole report."""
    result = CliRunner().invoke(app, ["--follow", "-"], input=BY_NAME["gpu_off_bus"] * 3)
    assert result.exit_code == 1
    before, _, after = result.stdout.partition("One cause found.")
    assert before.count("Diagnosis: gpu_off_bus") == 1
    assert after.count("Diagnosis: gpu_off_bus") == 1


CALM = "INFO 01-01 00:00:00 [a.py:1] ok\n"
GRAVE = "RuntimeError: CUDA error: invalid device ordinal"


def test_the_last_line_needs_no_newline(app: typer.Typer) -> None:
    """Followed to its end, a log gives what it gives when it is read at once."""
    for args in (["-"], ["--follow", "-"]):
        result = CliRunner().invoke(app, args, input=CALM + GRAVE)
        assert result.exit_code == 1
        assert "<stdin>:2: " + GRAVE in result.stdout


def _follow(app: typer.Typer, monkeypatch: pytest.MonkeyPatch, path: str, *later: str) -> Result:
    """Follow a file whose content is replaced at each silence, and interrupt the last one."""
    contents = iter(later)

    def silence(_: float) -> None:
        content = next(contents, None)
        if content is None:
            raise KeyboardInterrupt
        Path(path).write_text(content)

    monkeypatch.setattr("time.sleep", silence)
    return CliRunner().invoke(app, ["--follow", path])


def test_an_interrupted_log_ends_with_its_last_line(
    app: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C gives the verdict on all that was written, a line without an end included."""
    result = _follow(app, monkeypatch, _write(tmp_path, CALM + GRAVE))
    assert result.exit_code == 1
    assert "One cause found." in result.stdout


@pytest.mark.parametrize("between", [[], [""]], ids=["cut and written", "seen empty"])
def test_a_rotated_log_begins_with_a_new_line(
    app: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, between: list[str]
) -> None:
    """What was incomplete when the file was cut to zero is not glued to the first line after."""
    path = _write(tmp_path, CALM * 3 + CALM.rstrip())
    result = _follow(app, monkeypatch, path, *between, GRAVE + "\n")
    assert result.exit_code == 1
    assert f"{path}:4: {GRAVE}" in result.stdout
