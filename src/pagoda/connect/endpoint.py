"""Pagoda's own metrics of a store inside an engine, at a port of loopback.

The engine's own /metrics has what a connector counts for it; here is all that the store tells
(docs/reference/metrics.md), as from `pagoda serve`, with times, standing and wear of each drive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, start_http_server

from pagoda.core.errors import SettingsError
from pagoda.core.events import Event
from pagoda.watch.metrics import Metrics

_LOOPBACK = "127.0.0.1"


class MetricsEndpoint:
    """An observer whose counts can be scraped at /metrics while it is open."""

    def __init__(self, port: int, *, whose: str) -> None:
        """Raises SettingsError when the port cannot be had."""
        registry = CollectorRegistry()
        self._metrics = Metrics(registry)
        try:
            self._server, self._thread = start_http_server(port, _LOOPBACK, registry)
        except (OSError, OverflowError) as error:
            raise SettingsError(
                f"{whose} cannot show its metrics at port {port} of {_LOOPBACK}: {error}",
                key="metrics_port",
                source=f"{whose}'s settings",
                remedy="name a free port, one for each engine, or leave metrics_port out",
            ) from error

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_port)

    def __call__(self, event: Event) -> None:
        """Count one event."""
        self._metrics(event)

    def watch(self, stats: Callable[[], Mapping[str, float]]) -> None:
        """Show each entry of `stats()` as a gauge, read at a scrape by a thread of its own."""
        self._metrics.watch_engine(stats)

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def observing(*observers: Callable[[Event], None]) -> Callable[[Event], None]:
    """One observer that hands every event to several."""

    def observe(event: Event) -> None:
        for observer in observers:
            observer(event)

    return observe
