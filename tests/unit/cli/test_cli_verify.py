"""`pagoda verify` and `pagoda config import` on the command line: statuses, output, metrics."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from canary_server import Behaviour, canary_server
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from pagoda.cli import verify as cli
from pagoda.verify import Finding, Reason, Report, Verdict
from pagoda.verify.ask import Manner
from pagoda.verify.metrics import exported

SHORT = ("--lengths", "48,65")


@pytest.mark.parametrize(
    ("behaviour", "status", "verdict"),
    [
        (Behaviour(), 0, "equal"),
        (Behaviour(wrong=0.5), 1, "differs"),
        (Behaviour(caches=False), 3, "cannot tell"),
        (Behaviour(garbage=b"<html>"), 3, "cannot tell"),
        (Behaviour(key="k"), 3, "cannot tell"),
    ],
    ids=str,
)
def test_statuses(pagoda: Any, behaviour: Behaviour, status: int, verdict: str) -> None:
    """Programs read the status and the JSON; people the progress on standard error."""
    with canary_server(behaviour) as server:
        result = pagoda("verify", server.url, *SHORT, "--json")
    assert result.status == status
    assert json.loads(result.out)["verdict"] == verdict
    assert "asking what the server understands" in result.err


def test_text_has_a_line_a_prompt(pagoda: Any) -> None:
    """Length, verdict, figures and what counted them, then the verdict on all."""
    with canary_server(Behaviour(wrong=0.5)) as server:
        lines = pagoda("verify", server.url, *SHORT).out.splitlines()
    assert lines[0] == "after /reset_prefix_cache"
    assert re.match(r" +48 +alone +differs +32 +metrics +0\.5 +0$", lines[2])
    assert re.match(r" +48 +among others +differs +32 ", lines[6])
    assert [line.strip() for line in lines[3:10:2]] == [Reason.RESTORED] * 4
    assert any("vllm:external_prefix_cache_hits_total" in line for line in lines)
    assert lines[-1].startswith("differs: ")


@pytest.mark.parametrize(
    ("behaviour", "restored", "told"),
    [
        (Behaviour(), 32, "metrics"),
        (Behaviour(reports="nothing"), 32, "metrics"),
        (Behaviour(metrics=False), 32, "reset"),
        (Behaviour(lower=False), None, None),
    ],
    ids=str,
)
def test_text_shows_what_proves_that_something_was_restored(
    pagoda: Any, behaviour: Behaviour, restored: int | None, told: str | None
) -> None:
    """The tokens and the counter, explained once; JSON has the same; nothing without a proof."""
    with canary_server(behaviour) as server:
        shown = pagoda("verify", server.url, *SHORT).out.splitlines()
        finding = json.loads(pagoda("verify", server.url, *SHORT, "--json").out)["findings"][0]
    assert finding["restored"] == restored
    assert finding["counted_by"] == [told] * (told is not None)
    cells = shown[2].split()
    assert cells[-4:-2] == ["-" if restored is None else str(restored), told or "-"]
    assert sum(line.startswith(f"{told}: ") for line in shown) == (told is not None)


FIGURES = st.none() | st.just(0.0) | st.floats(1e-99, 100)
FINDINGS = st.builds(
    Finding,
    tokens=st.integers(32, 100_000),
    concurrent=st.booleans(),
    emptied=st.sampled_from(["/reset_prefix_cache", "/reset_prefix_cache?reset_external=true"]),
    verdict=st.sampled_from(Verdict),
    reason=st.none() | st.sampled_from(Reason),
    first_token=st.none() | st.integers(0, 11),
    difference=FIGURES,
    floor=FIGURES,
    cached=st.none() | st.integers(0, 100_000),
    restored=st.none() | st.integers(0, 100_000),
    counted_by=st.sampled_from([(), ("usage",), ("usage", "metrics"), ("metrics",), ("reset",)]),
)


@given(st.lists(FINDINGS, max_size=4), st.sampled_from(Verdict), st.sampled_from(Reason))
def test_text_fits_80_columns(findings: list[Finding], verdict: Verdict, reason: Reason) -> None:
    """Every line of every report and of every watched run, but for a URL or a model's name that
    is longer itself."""
    report = Report(
        url="http://127.0.0.1:8000", model="HuggingFaceTB/SmolLM2-135M-Instruct",
        verdict=verdict, reason=reason, manner=Manner(chat=True, logprobs=True, salts=True),
        pushed_out=("/reset_prefix_cache", "/reset_prefix_cache?reset_external=true"),
        counter="vllm:external_prefix_cache_hits_total",
        findings=findings, requests=10_000, seconds=12_345.6,
    )  # fmt: skip
    watched = cli.watched_line(report, at="23:59:59")
    assert all(len(line) <= 80 for line in (report.as_text() + "\n" + watched).splitlines())
    assert report.outcome() == " ".join(watched.split()[1:])


@pytest.mark.parametrize(
    "arguments",
    [
        ["ftp://x"],
        ["127.0.0.1:1", "--lengths", "a"],
        ["127.0.0.1:1", "--lengths", "3"],
        ["127.0.0.1:1", "--requests", "5"],
        ["127.0.0.1:1", "--timeout", "soon"],
        ["127.0.0.1:1", "--timeout", "1ms"],
        ["127.0.0.1:1", "--runs", "2"],
        ["127.0.0.1:1", "--api-key-file", "absent"],
        [],
    ],
)
def test_misuse_is_status_2(pagoda: Any, arguments: list[str]) -> None:
    """Nothing is asked then, and the status is none of a verdict."""
    assert pagoda("verify", *arguments).status == 2


def test_an_unknown_model_is_misuse_and_nobody_there_is_not(pagoda: Any) -> None:
    """A wrong name is the caller's; a server that is down leaves the question open."""
    with canary_server(Behaviour()) as server:
        for more in ((), ("--watch", "5m", "--metrics-port", "0")):
            assert pagoda("verify", server.url, "--model", "huge", *more).status == 2
    result = pagoda("verify", server.url, *SHORT)
    assert (result.status, "nothing answers" in result.err) == (3, True)


def test_a_crash_does_not_read_as_a_difference(
    pagoda: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Status 1 is a verdict here, and elsewhere that of an unexpected error."""

    def crash(*args: object) -> None:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(cli, "_verification", crash)
    assert pagoda("verify", "127.0.0.1:1").status == 3
    flags = ("--watch", "5m", "--metrics-port", "0")
    assert pagoda("verify", "127.0.0.1:1", *flags).status == 3


def test_the_key_is_sent_and_not_told(pagoda: Any, tmp_path: Path) -> None:
    """From a file or the environment, never in what is printed."""
    (tmp_path / "key").write_text("hush-hush\n")
    with canary_server(Behaviour(key="hush-hush")) as server:
        flags = (*SHORT, "--api-key-file", str(tmp_path / "key"))
        result = pagoda("verify", server.url, *flags)
    assert result.status == 0
    assert "hush-hush" not in result.out + result.err


def test_watching_counts_runs(pagoda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The metrics show the last run and count all of them; a run that the server ended counts
    as one that cannot tell, and the status is the worst of all."""
    scrapes: list[str] = []
    ports: list[int] = []
    monkeypatch.setattr(cli, "exported", lambda registry, port: _noted(registry, ports))
    with canary_server(Behaviour()) as server:

        def between(seconds: float) -> None:
            scrapes.append(httpx.get(f"http://127.0.0.1:{ports[0]}/metrics").text)
            server.is_.wrong = 0.5 if len(scrapes) == 1 else 0.0
            server.is_.garbage = None if len(scrapes) < 2 else b"<html>"

        monkeypatch.setattr(cli.time, "sleep", between)
        result = pagoda(
            "verify", server.url, *SHORT, "--watch", "5m", "--runs", "3", "--metrics-port", "0",
            "--json",
        )  # fmt: skip
    assert result.status == 1
    verdicts = [json.loads(line)["verdict"] for line in result.out.splitlines()]
    assert verdicts == ["equal", "differs", "cannot tell"]
    assert 'pagoda_canary_verdict{verdict="equal"} 1.0' in scrapes[0]
    assert 'pagoda_canary_runs_total{verdict="differs"} 0.0' in scrapes[0]
    assert 'pagoda_canary_runs_total{verdict="differs"} 1.0' in scrapes[1]
    assert 'pagoda_canary_verdict{verdict="equal"} 0.0' in scrapes[1]
    assert "pagoda_canary_logprob_difference 0.5" in scrapes[1]


def _noted(registry: CollectorRegistry, ports: list[int]) -> Any:
    """`exported`, and a note of its port."""

    class Noted:
        def __enter__(self) -> int:
            self._inner = exported(registry, 0)
            ports.append(self._inner.__enter__())
            return ports[-1]

        def __exit__(self, *exc: Any) -> None:
            self._inner.__exit__(*exc)

    return Noted()


def test_a_taken_port_is_told(pagoda: Any) -> None:
    """Before anything is asked."""
    with exported(CollectorRegistry(), 0) as port:
        result = pagoda("verify", "127.0.0.1:1", "--watch", "5m", "--metrics-port", str(port))
    assert result.status == 2


def test_config_import_prints_a_file_that_is_valid(pagoda: Any, tmp_path: Path) -> None:
    """Settings on standard output, keys on standard error; the settings check out."""
    (tmp_path / "lm.yaml").write_text("local_disk: /kv\nmax_local_disk_size: 9\nnovel: 1\n")
    result = pagoda("config", "import", "lm.yaml")
    assert result.status == 0
    assert "novel" in result.err
    (tmp_path / "out.toml").write_text(result.out)
    assert pagoda("config", "--check", "out.toml").status == 0
    told = json.loads(pagoda("config", "import", "lm.yaml", "--json").out)
    assert told["settings"]["drive.capacity"] == "9GiB"
    assert {key["key"] for key in told["keys"]} >= {"local_disk", "novel"}


@pytest.mark.parametrize("columns", ["20", "80"])
def test_config_import_breaks_no_name(
    pagoda: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    """However narrow the terminal: each key and each setting can be searched for. What the file
    is for stands in its first line."""
    monkeypatch.setenv("COLUMNS", columns)
    tiers = [{"type": "fs", "root_dir": "/mnt/" + "d" * 90, "n_read_threads": 4}]
    extra = {"cpu_bytes_to_use": 1 << 30, "secondary_tiers": tiers}
    tree = {"kv_connector": "OffloadingConnector", "kv_connector_extra_config": extra}
    (tmp_path / "kv.json").write_text(json.dumps(tree))
    told = json.loads(pagoda("config", "import", "kv.json", "--json").out)["keys"]
    result = pagoda("config", "import", "kv.json")
    lines = result.err.splitlines()
    assert all(f"{key['key']} = {key['value']}" in lines for key in told)
    assert all(key["setting"] in result.err for key in told)
    assert "`pagoda serve`" in result.out.splitlines()[0]


def test_config_import_reads_no_settings_of_this_machine(pagoda: Any, tmp_path: Path) -> None:
    """A settings file that is broken is no reason to refuse another cache's."""
    (tmp_path / "pagoda.toml").write_text("[drive]\nnonsense = 1\n")
    (tmp_path / "lm.yaml").write_text("chunk_size: 256\n")
    assert pagoda("config", "import", "lm.yaml").status == 0
    assert pagoda("config").status == 2
    (tmp_path / "lm.yaml").write_text("chunk_size: 256\nlocal_cpu: 7\n")
    result = pagoda("config", "import", "lm.yaml")
    assert (result.status, "line 2" in result.err) == (2, True)
