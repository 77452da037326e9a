"""`pagoda verify`: does a server answer from restored KV as it does from computed KV?"""

from __future__ import annotations

import json
import random
import secrets
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from textwrap import fill
from typing import Annotated

import typer
from prometheus_client import CollectorRegistry

from pagoda.cli.server import api_key_of
from pagoda.core.errors import ModelUnknown, PagodaError, ServerError, SettingsError
from pagoda.lab.bench.client import base_url
from pagoda.settings.units import parse_duration
from pagoda.verify import LENGTHS, Client, Plan, Report, Verdict, Verification
from pagoda.verify.metrics import HOST, CanaryMetrics, exported

_STATUS = {Verdict.EQUAL: 0, Verdict.DIFFERS: 1, Verdict.UNKNOWN: 3}
_MISUSED = 2
_WIDTH = 80
_SHORTEST_WATCH_S = 1.0


def command(  # noqa: PLR0913 - a command's parameters are its flags
    url: Annotated[str, typer.Argument(metavar="URL", help="The server, such as 127.0.0.1:8000.")],
    *,
    model: Annotated[
        str | None, typer.Option(help="Model to ask for; else the first that is served.")
    ] = None,
    api_key_file: Annotated[
        Path | None, typer.Option(help="File with the server's key; else PAGODA_API_KEY.")
    ] = None,
    lengths: Annotated[
        str, typer.Option(metavar="N,N,…", help="Lengths of the canary prompts in tokens.")
    ] = ",".join(map(str, LENGTHS)),
    requests: Annotated[int, typer.Option(min=1, help="Most prompts that one run sends.")] = 250,
    timeout: Annotated[str, typer.Option(metavar="TIME", help="What one answer may take.")] = "2m",
    flood: Annotated[
        bool,
        typer.Option("--flood", help="Never call an endpoint that empties caches: flood them."),
    ] = False,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Empty vLLM's connector as well, whatever it then loses."),
    ] = False,
    need_restored: Annotated[
        bool,
        typer.Option("--need-restored", help="No verdict on the device cache alone: status 3."),
    ] = False,
    watch: Annotated[
        str | None, typer.Option(metavar="TIME", help="Repeat so often, until Ctrl-C.")
    ] = None,
    runs: Annotated[
        int | None, typer.Option(min=1, help="With --watch: end after so many runs.")
    ] = None,
    metrics_port: Annotated[
        int, typer.Option(min=0, max=65_535, help="With --watch: loopback port of its /metrics.")
    ] = 9477,
    as_json: Annotated[
        bool, typer.Option("--json", help="JSON, for programs; with --watch, a line a run.")
    ] = False,
) -> None:
    """Prove that a server's restored KV equals what it computes, whatever its cache layer.

    Asks prompts of several lengths cold, again from the device cache and, once they are pushed
    out of it, restored; alone and among others. Compares tokens and log-probabilities with what
    the server's own repeats differ by. Works with any OpenAI-compatible server that caches
    prefixes. It pushes other users' prefixes out of the device cache, too. Where vLLM has tiers
    below host memory, it empties that as well, and proves what comes back from them.

    Status 0: equal; 1: differs; 3: cannot tell, with the reason; 2: used in a wrong way.
    """
    plan = Plan(
        model=model,
        lengths=_lengths(lengths),
        limit=requests,
        flood=flood,
        deep=deep,
        need_restored=need_restored,
    )
    plan.check()
    interval_s = None if watch is None else _seconds(watch, "--watch")
    if interval_s is None and runs is not None:
        raise SettingsError("--runs goes with --watch", key="--runs", source="flag")
    client = Client(
        base_url(url), api_key=api_key_of(api_key_file), timeout_s=_seconds(timeout, "--timeout")
    )
    with closing(client):
        if interval_s is None:
            status = _guarded(lambda: _once(client, plan, as_json=as_json))
        else:
            rounds = Rounds(client, plan, as_json=as_json)
            status = _guarded(lambda: rounds.run(interval_s, runs=runs, metrics_port=metrics_port))
    raise typer.Exit(status)


def _guarded(work: Callable[[], int]) -> int:
    """The status of `work`; whatever else happens in it is never 1, which is a verdict here."""
    try:
        return work()
    except ModelUnknown as error:
        _tell_error(error, as_json=False)
        return _MISUSED
    except PagodaError:
        raise  # settings: main tells them, with its status for misuse
    except Exception as error:  # noqa: BLE001 - main's status for it would read as a difference
        typer.secho(f"pagoda: unexpected {type(error).__name__}: {error}", fg="red", err=True)
        return _STATUS[Verdict.UNKNOWN]


def _once(client: Client, plan: Plan, *, as_json: bool) -> int:
    try:
        report = _verification(client, plan).run()
    except ModelUnknown:
        raise
    except ServerError as error:
        _tell_error(error, as_json=as_json)
        return _STATUS[Verdict.UNKNOWN]
    typer.echo(json.dumps(report.as_dict(), indent=2) if as_json else report.as_text())
    return _STATUS[report.verdict]


class Rounds:
    """Runs one after another, told to Prometheus and to standard output."""

    def __init__(self, client: Client, plan: Plan, *, as_json: bool) -> None:
        self._client = client
        self._plan = plan
        self._as_json = as_json
        self._registry = CollectorRegistry()
        self._metrics = CanaryMetrics(self._registry)
        self._worst = 0

    def run(self, interval_s: float, *, runs: int | None, metrics_port: int) -> int:
        """Until `runs` are done or Ctrl-C; returns the worst status of any of them: that of a
        difference, else that of a run that could not tell."""
        done = 0
        with exported(self._registry, metrics_port) as port:
            typer.echo(f"metrics at http://{HOST}:{port}/metrics, Ctrl-C ends", err=True)
            try:
                while runs is None or done < runs:
                    if done:
                        time.sleep(interval_s)
                    self._note(self._round())
                    done += 1
            except KeyboardInterrupt:
                typer.echo("", err=True)
        return self._worst

    def _round(self) -> int:
        try:
            report = _verification(self._client, self._plan).run()
        except ModelUnknown:
            raise
        except ServerError as error:
            self._metrics.failed(error, at_s=time.time())
            _tell_error(error, as_json=self._as_json)
            return _STATUS[Verdict.UNKNOWN]
        self._metrics.ran(report, at_s=time.time())
        line = json.dumps(report.as_dict()) if self._as_json else watched_line(report)
        typer.echo(line)
        return _STATUS[report.verdict]

    def _note(self, status: int) -> None:
        if _STATUS[Verdict.DIFFERS] not in {self._worst, status}:
            self._worst = max(self._worst, status)
        else:
            self._worst = _STATUS[Verdict.DIFFERS]


def watched_line(report: Report, *, at: str | None = None) -> str:
    """A run in a line: when it ended, and its outcome; two lines where it is longer than 80."""
    line = f"{at or time.strftime('%H:%M:%S')}  {report.outcome()}"
    return fill(line, _WIDTH, subsequent_indent=" " * 10)


def _verification(client: Client, plan: Plan) -> Verification:
    """A run with salts and prefixes that nobody used before."""
    rng: random.Random = secrets.SystemRandom()
    return Verification(client, plan, rng=rng, tell=_progress())


def _progress() -> Callable[[str], None]:
    """Lines on standard error; on a terminal each replaces the one before."""
    if not sys.stderr.isatty():
        return lambda text: typer.echo(f"{text} …", err=True)
    return lambda text: typer.echo(f"\r\x1b[K{text} …", nl=False, err=True)


def _tell_error(error: ServerError, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({
            "url": error.url,
            "verdict": Verdict.UNKNOWN.value,
            "reason": error.message,
            "error": type(error).__name__,
        }))  # fmt: skip
    typer.secho(f"pagoda: {error.message}", fg="red", err=True)
    if error.remedy:
        typer.echo(f"  {error.remedy}", err=True)


def _lengths(text: str) -> tuple[int, ...]:
    try:
        return tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise SettingsError(
            f"{text!r} is not a list of whole numbers",
            key="--lengths",
            source="flag",
            remedy="write it as 63,64,65",
        ) from None


def _seconds(text: str, flag: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise SettingsError(
            f"{flag} = {text!r} {error}", key=flag, source="flag", remedy="write it as 30s or 5m"
        ) from error
    if seconds < _SHORTEST_WATCH_S:
        raise SettingsError(f"{flag} is at least a second", key=flag, source="flag")
    return seconds
