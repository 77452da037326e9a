"""A real SGLang server in a process group of its own (tests/engines/sglang), and how to use one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from redis_server import free_port
from shared_memory import mapped_by_group

PAGE_TOKENS = 16
HOST = "127.0.0.1"
_LAUNCH = Path(__file__).parents[1] / "engines" / "sglang" / "launch.py"
_SOURCES = Path(__file__).parents[2] / "src"
_START_S, _WAIT_S, _POLL_S = 240.0, 30.0, 0.05
_QUIET = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
}
KEY = "secret"
_ADMIN = {"Authorization": f"Bearer {KEY}"}
_STORAGE = "/hicache/storage-backend"
_ARGUMENTS = f"""
    --device cpu --random-seed 7 --skip-server-warmup --disable-overlap-schedule
    --mem-fraction-static 0.3 --max-total-tokens 4096 --page-size {PAGE_TOKENS}
    --enable-hierarchical-cache --hicache-ratio 2 --hicache-write-policy write_through
    --hicache-storage-prefetch-policy wait_complete --hicache-storage-backend dynamic
    --admin-api-key {KEY} --enable-metrics --enable-cache-report --log-level-http warning
""".split()


@dataclass(frozen=True, slots=True)
class Answer:
    """Tokens, their log-probabilities and those of the three likeliest; tokens of the prompt that
    came out of a cache, and how many of those out of storage."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    likeliest: tuple[tuple[tuple[float, int], ...], ...]
    cached: int = field(compare=False)
    stored: int = field(compare=False)


class StartFailed(AssertionError):
    """A server that ended before it was ready; `log` is what it said."""

    def __init__(self, log: str) -> None:
        self.log = log
        super().__init__(f"the server ended: …{log[-3000:]}")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How to start a server: the model, the backend's entry, and what differs from the usual."""

    model: Path
    entry: Mapping[str, Any]
    layout: str = "page_first_direct"
    io: str = "direct"
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


class Server:
    """One server. `directory` takes its log and the faults below Pagoda (faults.py)."""

    def __init__(self, python: Path, directory: Path, setting: Setting) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.url = f"http://{HOST}:{free_port()}"
        self._http = httpx.Client(base_url=self.url, timeout=120, headers=_ADMIN)
        self._faults = directory / "faults.json"
        self.break_drives()
        self._log = (directory / "server.log").open("w")
        self._process = subprocess.Popen(
            ["nice", str(python), str(_LAUNCH), *self._arguments(setting)],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={
                **{k: v for k, v in os.environ.items() if not k.startswith("PAGODA_")},
                **_QUIET,
                "OMP_NUM_THREADS": "1",
                "PYTHONPATH": str(_SOURCES),
                "FAULTS_BELOW_PAGODA": str(self._faults),
                **setting.environment,
            },
        )
        try:
            self._wait_until_ready()
        except BaseException:
            self.close()
            raise

    def ask(self, prompt: Sequence[int], *, tokens: int = 8, salt: str = "") -> Answer:
        """The likeliest answer to a prompt of token numbers."""
        wanted = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
        body = {
            "input_ids": list(prompt),
            "sampling_params": wanted,
            "return_logprob": True,
            "top_logprobs_num": 3,
            **({"cache_salt": salt} if salt else {}),
        }
        answer = self._http.post("/generate", json=body)
        assert answer.status_code == 200, answer.text
        found = answer.json()
        about = found["meta_info"]
        return Answer(
            tuple(found["output_ids"]),
            tuple(one[0] for one in about["output_token_logprobs"]),
            tuple(tuple((one[0], one[1]) for one in step) for step in about["output_top_logprobs"]),
            cached=about["cached_tokens"],
            stored=(about.get("cached_tokens_details") or {}).get("storage", 0),
        )

    def flush(self) -> None:
        """Forget what device and host memory hold; storage keeps what it has."""
        self._administer("POST", "/flush_cache")

    def attach(self, entry: Mapping[str, Any]) -> None:
        """Take storage up while running."""
        own = json.dumps({"prefetch_threshold": PAGE_TOKENS, **entry})
        body = {
            "hicache_storage_backend": "dynamic",
            "hicache_storage_backend_extra_config_json": own,
        }
        self._administer("PUT", _STORAGE, json=body)

    def detach(self) -> None:
        """Give storage up, and what it has open."""
        self._administer("DELETE", _STORAGE)

    def clear_storage(self) -> None:
        """Forget what storage holds."""
        self._administer("POST", f"{_STORAGE}/clear")

    def total(self, name: str, **labels: str) -> float:
        """A counter of /metrics over all labels but those given."""
        text = self._http.get("/metrics").text
        return sum(_values(text, name, labels))

    def wait(self, reached: Callable[[], bool], what: str) -> None:
        """Wait until `reached`; an AssertionError that says what for when it is not."""
        ends_s = time.monotonic() + _WAIT_S
        while not reached():
            assert time.monotonic() < ends_s, f"{what}: not within {_WAIT_S:.0f} s\n{self._tail()}"
            assert self._process.poll() is None, self._tail()
            time.sleep(_POLL_S)

    def wait_for(self, name: str, least: float, **labels: str) -> None:
        """Wait until a counter has reached `least`."""
        self.wait(lambda: self.total(name, **labels) >= least, f"{name} {labels} of {least:.0f}")

    def backed_up(self) -> int:
        """Tokens that storage has taken in since the server began."""
        return int(self.total("sglang:backuped_tokens_total"))

    def break_drives(self, **plan: Any) -> None:
        """From now on, drives fail by this plan of faults.py; with none they work."""
        new = self._faults.with_suffix(".new")
        new.write_text(json.dumps(plan))
        new.replace(self._faults)

    def log(self) -> str:
        """What the server has said so far."""
        return Path(self._log.name).read_text(errors="replace")

    def close(self) -> None:
        """Stop the server as an operator does; whatever is left of it is killed."""
        if self._log.closed:
            return
        self.break_drives()
        left = mapped_by_group(self._process.pid)  # SGLang does not remove it
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=30)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for path in left:
            path.unlink(missing_ok=True)
        self._log.close()
        self._http.close()

    def kill(self) -> None:
        """End the server as a crash does."""
        left = mapped_by_group(self._process.pid)
        os.killpg(self._process.pid, signal.SIGKILL)
        self.close()
        for path in left:
            path.unlink(missing_ok=True)

    def _administer(self, method: str, path: str, **more: Any) -> None:
        answers: list[httpx.Response] = []

        def done() -> bool:  # it is refused while anything is under way
            answers.append(self._http.request(method, path, **more))
            return answers[-1].status_code == 200

        try:
            self.wait(done, f"{method} {path}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{answers[-1].text}") from error

    def _arguments(self, setting: Setting) -> list[str]:
        port = self.url.rpartition(":")[2]
        entry = {"prefetch_threshold": PAGE_TOKENS, **setting.entry}
        return [
            *("--model-path", str(setting.model), "--host", HOST, "--port", port),
            *("--hicache-mem-layout", setting.layout, "--hicache-io-backend", setting.io),
            *("--hicache-storage-backend-extra-config", json.dumps(entry)),
            *_ARGUMENTS,
            *setting.arguments,
        ]

    def _wait_until_ready(self) -> None:
        ends_s = time.monotonic() + _START_S
        while time.monotonic() < ends_s:
            if self._process.poll() is not None:
                raise StartFailed(self.log())
            with suppress(httpx.TransportError):
                if self._http.get("/health", timeout=5).status_code == 200:
                    return
            time.sleep(_POLL_S)
        raise AssertionError(f"not ready within {_START_S:.0f} s: {self._tail()}")

    def _tail(self) -> str:
        return "…" + self.log()[-3000:]


def pagoda_entry(
    drive: Path, settings: Mapping[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """PagodaStorage's entry in SGLang's configuration, over one directory."""
    own = {
        "drive": {"path": str(drive), "capacity": "64MiB", "free_floor": "1MiB"},
        **(settings or {}),
    }
    return {
        "backend_name": "pagoda",
        "module_path": "pagoda.connect.sglang",
        "class_name": "PagodaStorage",
        "interface_v1": 1,
        "settings": own,
        **more,
    }


def _values(text: str, name: str, labels: Mapping[str, str]) -> list[float]:
    """The values of a metric in Prometheus's text."""
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    rows = (line for line in text.splitlines() if line.startswith((name + "{", name + " ")))
    return [
        float(line.rpartition(" ")[2]) for line in rows if all(label in line for label in wanted)
    ]
