"""Coverage-guided fuzzing of the three parsers that read what people paste. Not part of CI.

    pip install atheris
    python benchmarks/fuzz/fuzz_advise.py topology CORPUS -max_total_time=3600 -timeout=10

The first argument is topology, doctor or container; what follows goes to libFuzzer. The fuzzer's
own book-keeping grows with time: give the doctor `-rss_limit_mb=0` for long runs. A crash is
an exception, a hang an input that takes longer than `-timeout`; either ends the run and leaves
the input behind as `crash-*` or `timeout-*`.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["pagoda.advise"]):
    from pagoda.advise.doctor import Doctor, report_as_dict, report_as_text
    from pagoda.advise.preflight.container import container_checks
    from pagoda.advise.topology.report import analyse
    from pagoda.advise.topology.svg import draw
    from pagoda.machine.tree import HostTree

EMPTY = HostTree(Path(tempfile.mkdtemp(prefix="fuzz-")))


def topology(data: bytes) -> None:
    """A matrix, its groups, its JSON and its picture."""
    report = analyse(data.decode("utf-8", "replace"))
    json.dumps(report.as_json())
    draw(report)


def doctor(data: bytes) -> None:
    """A log in two pieces, its verdict and both reports."""
    examined = Doctor()
    examined.feed("log", data[: len(data) // 2])
    examined.feed("log", data[len(data) // 2 :])
    examined.close("log")
    report = examined.report()
    report_as_text(report)
    json.dumps(report_as_dict(report))


def container(data: bytes) -> None:
    """A Dockerfile or a compose file, judged for an empty host."""
    for check in container_checks(data.decode("utf-8", "replace"), EMPTY):
        assert check.status in {"pass", "warn", "fail", "unknown"}


TARGETS: dict[str, Callable[[bytes], None]] = {
    "topology": topology,
    "doctor": doctor,
    "container": container,
}

if __name__ == "__main__":
    target = TARGETS[sys.argv.pop(1)]
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()
