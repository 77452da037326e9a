"""The HTTP server: uvicorn with our limits, our shutdown, and the engine's end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn
from prometheus_client import CollectorRegistry

from pagoda.core.errors import SettingsError
from pagoda.engine.api import Engine
from pagoda.serve.app import create_app
from pagoda.serve.config import ServeConfig
from pagoda.serve.protocol import BoundedProtocol, LimitedConfig
from pagoda.serve.traffic import Traffic

__all__ = ["Server", "bind", "run_server"]

logger = logging.getLogger("pagoda.serve")

SWEEP_TICKS = 5  # uvicorn ticks ten times a second
BACKLOG = 1024
SIGNALS = (signal.SIGINT, signal.SIGTERM)
# After the grace period cancelled answers get their last event out before tasks are cut off.
LAST_WORDS_S = 2


def run_server(
    engine: Engine,
    config: ServeConfig,
    *,
    address: socket.socket | None = None,
    registry: CollectorRegistry | None = None,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serves until SIGTERM or SIGINT, then closes the engine.

    `address` is what `bind` gave before the engine was loaded. `on_ready` gets the URL once
    connections are accepted (by default it is printed). A stop lets running requests finish
    within `grace_s`, ends the rest, and gives the engine `flush_s` to write what is pending.
    Raises SettingsError when the address cannot be used.
    """
    ready = on_ready or _announce
    Server(engine, config, address=address, registry=registry, on_ready=ready).run()


def bind(config: ServeConfig) -> socket.socket:
    """Claims the address without listening yet: loading a model takes long, and a port that is
    taken shall be told before, while no client shall wait in a queue meanwhile.

    Raises SettingsError when the address cannot be used.
    """
    try:
        family = socket.getaddrinfo(config.host or None, config.port, type=socket.SOCK_STREAM)[0][0]
        claimed = socket.socket(family)
    except OSError as fault:
        raise _unusable(config, fault) from fault
    try:
        claimed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            claimed.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        claimed.bind((config.host, config.port))
    except OSError as fault:
        claimed.close()
        raise _unusable(config, fault) from fault
    return claimed


def _unusable(config: ServeConfig, fault: OSError) -> SettingsError:
    return SettingsError(
        f"cannot listen on {config.host}:{config.port}: {fault.strerror or fault}",
        key="server.port",
        source="ServeConfig",
        remedy="choose another port with --port, or --port 0 for any free one",
    )


def _announce(url: str) -> None:
    print(f"Listening on {url}", flush=True)


class Server:
    """One server, to be run once, in any thread; only the main thread's obeys signals."""

    def __init__(
        self,
        engine: Engine,
        config: ServeConfig,
        *,
        address: socket.socket | None = None,
        registry: CollectorRegistry | None = None,
        on_ready: Callable[[str], None] = _announce,
    ) -> None:
        self._engine = engine
        self._config = config
        self._address = address
        self._on_ready = on_ready
        self._traffic = Traffic(config)
        app = create_app(engine, config, registry=registry, traffic=self._traffic)
        self._uvicorn = _Uvicorn(_uvicorn_config(app, config), engine, self._traffic)

    def run(self) -> None:
        """Serves until stopped, then closes the engine, also when serving failed."""
        try:
            listener = self._listener()
            url = _url(listener)
            self._uvicorn.on_started = lambda: self._on_ready(url)
            self._uvicorn.run(sockets=[listener])
        finally:
            self._engine.close(flush_s=self._config.flush_s)

    def _listener(self) -> socket.socket:
        listener = self._address or bind(self._config)
        try:
            listener.listen(BACKLOG)
        except OSError as fault:  # another process bound and listened since
            listener.close()
            raise _unusable(self._config, fault) from fault
        return listener

    def stop(self) -> None:
        """Begins the same end as SIGTERM; from any thread, returns at once."""
        self._uvicorn.should_exit = True


def _uvicorn_config(app: object, config: ServeConfig) -> LimitedConfig:
    made = LimitedConfig(
        app,  # type: ignore[arg-type]
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        # Ours are the deadlines; uvicorn's own would only be a second, hidden one.
        timeout_keep_alive=max(1, int(config.idle_timeout_s) + 1),
        timeout_graceful_shutdown=LAST_WORDS_S,
    )
    made.limits = config
    return made


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Uvicorn(uvicorn.Server):
    """uvicorn's server, which also sweeps overdue connections, and drains before it stops."""

    on_started: Callable[[], None]

    def __init__(self, config: LimitedConfig, engine: Engine, traffic: Traffic) -> None:
        super().__init__(config)
        self._engine = engine
        self._traffic = traffic
        self._grace_s = config.limits.grace_s

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self.on_started()

    async def on_tick(self, counter: int) -> bool:
        if counter % SWEEP_TICKS == 0:
            self._sweep()
        return await super().on_tick(counter)

    def _sweep(self) -> None:
        now_s = asyncio.get_running_loop().time()
        for connection in list(self.server_state.connections):
            if isinstance(connection, BoundedProtocol) and connection.expired(now_s):
                connection.abort()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accepts nothing new, lets running requests finish, ends the rest with an error."""
        self._traffic.draining = True
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await self._wait_for_requests()
        if self._traffic.running:
            logger.warning("ending %d requests that still run", self._traffic.running)
            self._traffic.end_all()
        await super().shutdown(sockets=sockets)

    async def _wait_for_requests(self) -> None:
        deadline_s = time.monotonic() + self._grace_s
        while self.server_state.tasks and not self.force_exit and time.monotonic() < deadline_s:
            self._sweep()
            await asyncio.sleep(0.05)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Takes SIGTERM and SIGINT for the length of the run. uvicorn's own version raises
        the signal again at the end, which would kill the process before the engine's flush."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """The first signal stops gracefully, a second one without waiting."""
        del number, frame
        self.force_exit = self.should_exit
        self.should_exit = True
