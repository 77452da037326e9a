"""What repeated runs tell Prometheus, on a loopback port."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from pagoda.core.errors import ServerError, SettingsError
from pagoda.verify.judge import Verdict
from pagoda.verify.report import Report
from pagoda.watch.metrics import Spec

HOST = "127.0.0.1"
SPECS: tuple[Spec, ...] = (
    Spec("pagoda_canary_runs_total", Counter, "Runs by verdict.", ("verdict",)),
    Spec("pagoda_canary_errors_total", Counter, "Runs that the server ended.", ("error",)),
    Spec("pagoda_canary_verdict", Gauge, "1 for the last run's verdict, else 0.", ("verdict",)),
    Spec("pagoda_canary_prompts", Gauge, "Prompts of the last run by verdict.", ("verdict",)),
    Spec(
        "pagoda_canary_logprob_difference",
        Gauge,
        "Largest difference of a log-probability, restored against computed, in the last run.",
    ),
    Spec(
        "pagoda_canary_noise_floor",
        Gauge,
        "Largest difference of a log-probability between repeats in the last run.",
    ),
    Spec("pagoda_canary_restored_tokens", Gauge, "Restored tokens compared in the last run."),
    Spec("pagoda_canary_run_seconds", Gauge, "Time of the last run."),
    Spec("pagoda_canary_last_run_timestamp_seconds", Gauge, "When the last run ended (Unix)."),
)


class CanaryMetrics:
    """The metrics of one watcher; labels are verdicts and kinds of errors, never a prompt."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._live = {spec.name: spec.register(registry) for spec in SPECS}
        for verdict in Verdict:
            self._runs(verdict.value)
            self._gauge("pagoda_canary_verdict", verdict.value).set(0)

    def ran(self, report: Report, *, at_s: float) -> None:
        """Count a run that came to a verdict."""
        self._conclude(report.verdict, at_s=at_s)
        for verdict in Verdict:
            prompts = sum(finding.verdict is verdict for finding in report.findings)
            self._gauge("pagoda_canary_prompts", verdict.value).set(prompts)
        self._gauge("pagoda_canary_logprob_difference").set(report.worst())
        self._gauge("pagoda_canary_noise_floor").set(report.floor())
        self._gauge("pagoda_canary_restored_tokens").set(report.restored_tokens())
        self._gauge("pagoda_canary_run_seconds").set(report.seconds)

    def failed(self, error: ServerError, *, at_s: float) -> None:
        """Count a run that the server ended: nothing can be told."""
        self._conclude(Verdict.UNKNOWN, at_s=at_s)
        metric = self._live["pagoda_canary_errors_total"]
        assert isinstance(metric, Counter), "its spec says so"
        metric.labels(type(error).__name__).inc()

    def _conclude(self, verdict: Verdict, *, at_s: float) -> None:
        self._runs(verdict.value).inc()
        for other in Verdict:
            self._gauge("pagoda_canary_verdict", other.value).set(other is verdict)
        self._gauge("pagoda_canary_last_run_timestamp_seconds").set(at_s)

    def _runs(self, verdict: str) -> Counter:
        metric = self._live["pagoda_canary_runs_total"]
        assert isinstance(metric, Counter), "its spec says so"
        return metric.labels(verdict)

    def _gauge(self, name: str, *labels: str) -> Gauge:
        metric = self._live[name]
        assert isinstance(metric, Gauge), f"{name} is not a gauge"
        return metric.labels(*labels) if labels else metric


@contextmanager
def exported(registry: CollectorRegistry, port: int) -> Iterator[int]:
    """Serve a registry on a loopback port while the block runs; yields the port, for 0 picks a
    free one. Raises SettingsError when it is taken."""
    try:
        server, thread = start_http_server(port, addr=HOST, registry=registry)
    except OSError as error:
        raise SettingsError(
            f"cannot listen on {HOST}:{port}: {error.strerror or error}",
            key="--metrics-port",
            source="flag",
            remedy="name another port, or 0 for a free one",
        ) from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def table() -> str:
    """The metrics as a Markdown table, for docs/reference/metrics.md."""
    lines = ["| name | type | labels | meaning |", "|---|---|---|---|"]
    for spec in SPECS:
        labels = ", ".join(f"`{label}`" for label in spec.labels)
        lines.append(f"| `{spec.name}` | {spec.type.__name__.lower()} | {labels} | {spec.help} |")
    return "\n".join(lines) + "\n"
