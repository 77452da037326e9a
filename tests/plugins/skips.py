"""A pytest plugin that counts skipped tests by what was absent, on the last line of the output.

    412 passed, 15 skipped: redis-server (3), vLLM (12)

The absent thing is what a skip reason names before its first colon: `redis-server: not on
PATH`, `no redis-server: …`. With --require-servers a skipped test that carries the marker
`server` fails, with --require-engines one that carries `engines`. A module that skips itself
while it is collected counts as one; it carries the marker when its source mentions `mark.server`.
Loaded by `make test` and `make test-engines` with `-p skips`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest

REQUIRED = {"--require-servers": "server", "--require-engines": "engines"}  # option: marker
ABSENT_LENGTH = 40  # longest name; longer ones are sentences, and are cut
Report = pytest.TestReport | pytest.CollectReport


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --require-servers and --require-engines."""
    for option, marker in REQUIRED.items():
        parser.addoption(
            option,
            action="store_true",
            help=f"fail tests marked `{marker}` that would be skipped",
        )


def reason_of(report: Report) -> str:
    """The reason a skipped report gives."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return str(report.longrepr)


def absent_thing(reason: str) -> str:
    """What a skip reason names as absent."""
    module = re.match(r"could not import '([\w.]+)'", reason)
    name = module.group(1) if module else reason.partition(":")[0]
    name = name.strip().splitlines()[0] if name.strip() else "no reason given"
    name = re.sub(r"^(no|needs( an?| the)?) ", "", name) if reason.partition(":")[1] else name
    return name if len(name) <= ABSENT_LENGTH else name[:ABSENT_LENGTH].rstrip() + "…"


def required(config: pytest.Config) -> Mapping[str, str]:
    """The options that were given, each with its marker."""
    return {option: marker for option, marker in REQUIRED.items() if config.getoption(option)}


def fail_skipped(report: Report, option: str) -> None:
    """Turn a skip for something missing into a failure that says why."""
    report.outcome = "failed"
    report.longrepr = f"{option}: it is missing: {reason_of(report)}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a skipped test whose marker says that it is required."""
    report = yield
    for option, marker in required(item.config).items():
        if item.get_closest_marker(marker) and report.skipped and not hasattr(report, "wasxfail"):
            fail_skipped(report, option)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fail a module of required tests that skips itself."""
    report = yield
    path = Path(collector.path)
    if not report.skipped or not path.is_file():
        return report
    for option, marker in required(collector.config).items():
        if f"mark.{marker}" in path.read_text(encoding="utf-8"):
            fail_skipped(report, option)
    return report


def last_line(stats: dict[str, list[Report]]) -> str:
    """The summary: passed, failed when any did, skipped by what was absent."""
    failed = len(stats.get("failed", [])) + len(stats.get("error", []))
    parts = [f"{len(stats.get('passed', []))} passed"] + ([f"{failed} failed"] if failed else [])
    absent = Counter(absent_thing(reason_of(report)) for report in stats.get("skipped", []))
    names = ", ".join(f"{name} ({count})" for name, count in sorted(absent.items()))
    parts.append(f"{absent.total()} skipped" + (f": {names}" if names else ""))
    return ", ".join(parts)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Write the line after pytest's own summary."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and reporter.stats and not config.option.collectonly:
        reporter.ensure_newline()
        reporter.write_line(last_line(reporter.stats))
