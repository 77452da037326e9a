"""A `pagoda serve` in a process of its own, for demonstrations and measurements."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx

from pagoda.core.errors import PagodaError

_READY_S = 120.0
_STOP_S = 60.0
_POLL_S = 0.05
_FRAME = " │╭╮╰╯─"  # around what is wrong with a command line


class ServerProcess:
    """A server on a free loopback port, ended with the `with` block.

    `flags` go to `pagoda serve`; what it logs goes to `log`. Settings of this process's
    environment do not reach it, so that a run means the same everywhere.
    """

    def __init__(self, flags: list[str], *, log: Path) -> None:
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log
        self.ready_s = 0.0  # from start to the first healthy answer
        command = [sys.executable, "-m", "pagoda", "serve", "--port", str(self.port)]
        command += ["--check-rate", "0", *flags]  # no request is slower than others by chance
        self._started_s = time.monotonic()
        with log.open("ab") as stream:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                env={k: v for k, v in os.environ.items() if not k.startswith("PAGODA_")},
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> ServerProcess:
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server in good order (it writes what is pending), or kill it when it hangs."""
        if self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _wait_until_ready(self) -> None:
        while time.monotonic() - self._started_s < _READY_S:
            if self._process.poll() is not None:
                raise PagodaError(
                    f"the server ended with status {self._process.returncode}: {self._last_words()}"
                )
            if self._healthy():
                self.ready_s = time.monotonic() - self._started_s
                return
            time.sleep(_POLL_S)
        raise PagodaError(f"the server was not ready after {_READY_S:.0f} s: {self._last_words()}")

    def _healthy(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=2.0).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def _last_words(self) -> str:
        """Its error with the remedy below it, or its last line with a word in it."""
        said = self.log.read_text(errors="replace").splitlines()
        lines = [line.strip(_FRAME) for line in said if line.strip(_FRAME)]
        errors = [at for at, line in enumerate(lines) if line.startswith("pagoda: ")]
        words = lines[errors[-1] :] if errors else lines[-1:]
        return "; ".join(words) or "it said nothing"


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
