"""vLLM's own HTTP server in processes of its own, as `vllm serve` starts it.

vLLM's command is not used: it looks up a distribution that the build for CPUs does not have.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_ENGINES = Path(__file__).parents[1] / "engines"
_SOURCES = Path(__file__).parents[2] / "src"
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "PYTHONPATH": f"{_SOURCES}:{_ENGINES}",
}
_READY_S = 300.0
_LOOK_S = 0.25
_STOP_S = 60.0


class VllmServer:
    """A server on a free loopback port, with these tiers below 200 MB of host memory; without
    any, vLLM caches on its device alone. `directory` takes its log."""

    def __init__(
        self,
        python: Path,
        model: Path,
        directory: Path,
        *tiers: Mapping[str, Any],
        flags: tuple[str, ...] = (),
        dev_mode: bool = True,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        directory.mkdir(exist_ok=True)
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.log = directory / "server.log"
        command = [
            "nice", str(python), "-m", "vllm.entrypoints.openai.api_server",
            "--model", str(model), "--host", "127.0.0.1", "--port", str(port),
            "--enforce-eager", "--max-model-len", "4096", "--seed", "7",
            "--enable-prompt-tokens-details", *_offloading(tiers), *flags,
        ]  # fmt: skip
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a group of its own, to be ended as a whole
                env={
                    **{k: v for k, v in os.environ.items() if not k.startswith("PAGODA_")},
                    **_ENVIRONMENT,
                    "VLLM_SERVER_DEV_MODE": str(int(dev_mode)),
                    "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
                    **(environ or {}),
                },
            )

    def wait(self) -> None:
        """Until it answers. Raises AssertionError with the end of its log."""
        until_s = time.monotonic() + _READY_S
        while time.monotonic() < until_s:
            if self._process.poll() is not None:
                raise AssertionError(f"the server ended: {self.said()[-3000:]}")
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(_LOOK_S)
        raise AssertionError(f"the server is not ready: {self.said()[-3000:]}")

    def said(self) -> str:
        """Its log so far."""
        return self.log.read_text()

    def metrics(self) -> str:
        """What its /metrics shows."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=30) as reply:
            return str(reply.read().decode())

    def ask(self, prompt: str, *, tokens: int = 8) -> dict[str, Any]:
        """A greedy completion's JSON."""
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "logprobs": 5}
        request = urllib.request.Request(
            f"{self.url}/v1/completions",
            json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=120) as reply:
            answer: dict[str, Any] = json.load(reply)
        return answer

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Send the server a signal, as a service manager or a terminal does, and wait for it."""
        if self._process.poll() is None:
            self._process.send_signal(how)
        self._process.wait(timeout=_STOP_S)

    def close(self) -> None:
        """End it with all that it started."""
        try:
            self.stop()
        except subprocess.TimeoutExpired:
            pass
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def _offloading(tiers: tuple[Mapping[str, Any], ...]) -> list[str]:
    """vLLM's flag for tiers below host memory."""
    if not tiers:
        return []
    config = {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {
            "spec_name": "CpuTieringSpec",
            "spec_module_path": "cpu_tiering",
            "cpu_bytes_to_use": 200_000_000,
            "secondary_tiers": list(tiers),
        },
    }
    return ["--kv-transfer-config", json.dumps(config)]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
