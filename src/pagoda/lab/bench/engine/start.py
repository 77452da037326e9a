"""From starting `pagoda serve` to its first healthy answer, the model converted already."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import asdict
from typing import Any

import httpx

from pagoda.core.errors import EngineClosed
from pagoda.lab.bench.child import environment
from pagoda.lab.bench.engine.setup import Say, Setup
from pagoda.lab.bench.figures import Figure, Part
from pagoda.lab.bench.stats import Spread

GOAL_S = 10.0
LIMIT_S = 120.0
STOP_S = 40.0


def measure(setup: Setup, say: Say) -> Part:
    """Seconds to ready, each in a process of its own with an empty drive of default size or
    the one that the run before left."""
    taken = []
    for run in range(1 if setup.quick else setup.runs):
        say(f"starting the server, {run + 1}")
        taken.append(_start_s(setup))
    spread = Spread.of(taken)
    row: dict[str, Any] = {"seconds": asdict(spread), "each": taken}
    figure = Figure(
        name="server start to ready",
        value=spread.median,
        unit="s",
        goal=f"<= {GOAL_S:g}",
        met=setup.judged(spread.high <= GOAL_S),
        detail=row,
    )
    return Part(figures=[figure], rows=[row])


def _start_s(setup: Setup) -> float:
    port = _free_port()
    command = [sys.executable, "-m", "pagoda", "serve", "--model", str(setup.model)]
    variables = {
        "PAGODA_DRIVE_PATH": str(setup.directory),
        "PAGODA_ENGINE_THREADS": str(setup.threads),
        "PAGODA_MODEL_DTYPE": "bf16",
    }
    log = setup.directory / "server.log"
    setup.directory.mkdir(parents=True, exist_ok=True)
    with log.open("w") as output:
        began_s = time.perf_counter()
        server = subprocess.Popen(
            [*command, "--port", str(port)],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment() | variables,
        )
        try:
            _wait_healthy(server, port, began_s)
            return time.perf_counter() - began_s
        except EngineClosed as error:
            raise EngineClosed(f"{error}: {log.read_text()[-400:]}") from error
        finally:
            _stop(server)


def _wait_healthy(server: subprocess.Popen[bytes], port: int, began_s: float) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        while time.perf_counter() - began_s < LIMIT_S:
            if server.poll() is not None:
                raise EngineClosed(f"the server ended with status {server.returncode}")
            try:
                if client.get("/health", timeout=5.0).status_code == httpx.codes.OK:
                    return
            except httpx.TransportError:
                time.sleep(0.02)
    raise EngineClosed(f"the server was not ready within {LIMIT_S:.0f} s")


def _stop(server: subprocess.Popen[bytes]) -> None:
    if server.poll() is None:
        os.kill(server.pid, signal.SIGTERM)
    try:
        server.wait(STOP_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
