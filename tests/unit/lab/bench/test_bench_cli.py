"""`pagoda bench serve` from the command line, against a real socket."""

import itertools
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from streaming_server import answer
from typer.testing import CliRunner

from pagoda.cli.bench_output import name_stdout
from pagoda.cli.main import app

KEY = "a-key-that-must-not-be-printed"


class Handler(BaseHTTPRequestHandler):
    """Names one model, answers every chat with five words, wants KEY."""

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._send(200, b'{"data": [{"id": "tiny"}]}')

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("authorization") != f"Bearer {KEY}":
            self._send(401, b'{"error": {"message": "wrong key"}}')
        else:
            steps = answer(0.0, 0.0, 5)
            self._send(200, b"".join(step for step in steps if isinstance(step, bytes)))

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def arguments(url: str, *more: str) -> list[str]:
    return ["bench", "serve", url, "--requests", "6", "--sessions", "3", *more]


def test_report_goes_to_standard_output_as_json(url: str) -> None:
    """`--json` alone prints nothing but JSON, and never the key."""
    done = CliRunner().invoke(app, arguments(url, "--json"), env={"PAGODA_API_KEY": KEY})
    found = json.loads(done.stdout)
    assert done.exit_code == 0
    assert found["requests"] == {"planned": 6, "served": 6, "failed": 0, "unsent": 0}
    assert found["server"]["model"] == "tiny"
    assert found["cache"]["cached_share"] == pytest.approx(0.4)
    assert KEY not in done.output


def test_report_goes_to_a_file_and_tables_to_people(url: str, tmp_path: Path) -> None:
    """`--json FILE` writes the file; the terminal still shows the tables."""
    path = tmp_path / "report.json"
    done = CliRunner().invoke(app, arguments(url, "--json", str(path)), env={"PAGODA_API_KEY": KEY})
    assert done.exit_code == 0
    assert json.loads(path.read_text())["requests"]["served"] == 6
    assert "to first token" in done.stdout
    assert "40.0%" in done.stdout


def test_key_can_come_from_a_file(url: str, tmp_path: Path) -> None:
    """`--api-key-file` wins over the environment; an unreadable file is named."""
    path = tmp_path / "key"
    path.write_text(f"{KEY}\n")
    args = arguments(url, "--api-key-file", str(path))
    assert CliRunner().invoke(app, args, env={"PAGODA_API_KEY": "other"}).exit_code == 0
    args[-1] = str(tmp_path / "absent")
    done = CliRunner().invoke(app, args)
    assert done.exit_code == 2
    assert "absent" in done.output


def test_nobody_at_the_url_is_told_in_the_first_line() -> None:
    """The error comes first, without an empty line of a bar that nobody sees, and names the
    URL that was asked."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    done = CliRunner().invoke(app, ["bench", "serve", f"127.0.0.1:{port}"])
    assert done.exit_code == 2
    assert done.output.startswith(f"pagoda: http://127.0.0.1:{port}/v1/models does not name")


def test_an_interrupt_reports_what_was_measured(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ctrl-C in a long load: the figures so far, as tables and JSON, with status 130."""
    path = tmp_path / "report.json"
    sent = itertools.count(1)

    def interrupt(self: Handler) -> None:
        if next(sent) == 4:
            os.kill(os.getpid(), signal.SIGINT)
        post(self)

    post = Handler.do_POST
    monkeypatch.setattr(Handler, "do_POST", interrupt)
    args = arguments(url, "--requests", "2000", "--concurrency", "1", "--json", str(path))
    done = CliRunner().invoke(app, args, env={"PAGODA_API_KEY": KEY})
    assert done.exit_code == 130
    report = json.loads(path.read_text())
    assert report["interrupted"] is True
    assert 1 <= report["requests"]["served"] < 2000
    assert "stopped early" in done.stdout


def test_wrong_key_ends_with_the_servers_words(url: str) -> None:
    """A server that refuses the first chat ends the command with status 2 and a remedy."""
    done = CliRunner().invoke(app, arguments(url), env={"PAGODA_API_KEY": "other"})
    assert done.exit_code == 2
    assert "wrong key" in done.output
    assert "check URL" in done.output


@pytest.mark.parametrize(
    "more", [["--requests", "0"], ["--extra", "[]"], ["--extra", "{"], ["--rate", "-1"]]
)
def test_bad_flags_are_named(url: str, more: list[str]) -> None:
    """A bad value ends the command with status 2 and the flag's name."""
    done = CliRunner().invoke(app, ["bench", "serve", url, *more])
    assert done.exit_code == 2
    assert more[0] in done.output


def test_unwritable_file_is_an_error(url: str, tmp_path: Path) -> None:
    """A report that cannot be written is said, with the path."""
    path = tmp_path / "absent" / "report.json"
    done = CliRunner().invoke(app, arguments(url, "--json", str(path)), env={"PAGODA_API_KEY": KEY})
    assert done.exit_code == 2
    assert "cannot write" in done.output


@pytest.mark.parametrize("command", [["lab", "incident"], ["bench", "index"]])
@pytest.mark.parametrize("flag", ["--json", "--plot"])
def test_what_could_not_be_written_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], flag: str
) -> None:
    """Minutes of measuring would be lost."""
    for work in (
        "pagoda.cli.lab_incident.measure_incident",
        "pagoda.cli.bench_index.measure_index",
    ):
        monkeypatch.setattr(work, _not_begun)
    for path in (tmp_path, tmp_path / "absent" / "file.png"):
        done = CliRunner().invoke(app, [*command, flag, str(path)])
        assert done.exit_code == 2
        assert "cannot write" in done.output


@pytest.mark.parametrize("command", [["lab", "incident"], ["bench", "index"]])
def test_without_matplotlib_a_picture_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    """With what to install."""
    for work in (
        "pagoda.cli.lab_incident.measure_incident",
        "pagoda.cli.bench_index.measure_index",
    ):
        monkeypatch.setattr(work, _not_begun)
    monkeypatch.setattr("pagoda.lab.picture.find_spec", lambda name: None)
    done = CliRunner().invoke(app, [*command, "--plot", str(tmp_path / "p.png")])
    assert done.exit_code == 2
    assert "pagoda-kv[plot]" in done.output


def _not_begun(*arguments: object) -> dict[str, object]:
    raise AssertionError("the work has begun")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["--json"], ["--json", "-"]),
        (["--json", "out.json", "x"], ["--json", "out.json", "x"]),
        (["--json", "--seed", "1"], ["--json", "-", "--seed", "1"]),
        (["--json", "http://h"], ["--json", "-", "http://h"]),
        (["--json", "-", "http://h"], ["--json", "-", "http://h"]),
        (["a", "b"], ["a", "b"]),
    ],
)
def test_json_may_stand_without_a_file(given: list[str], named: list[str]) -> None:
    """A flag or a URL after `--json` is not its file."""
    assert name_stdout(given) == named
