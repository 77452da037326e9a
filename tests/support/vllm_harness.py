"""A real vLLM in a process of its own (tests/engines/vllm_child.py), and how to start one."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_ENGINES = Path(__file__).parents[1] / "engines"
_SOURCES = Path(__file__).parents[2] / "src"
_QUIET = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "WARNING",
}


def vllm_home() -> Path:
    """Where scripts/engine_vllm.sh installs vLLM; VLLM_HOME names another place."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("VLLM_HOME") or cache / "pagoda" / "engines" / "vllm-0.32.0")


def story(seed: int, days: int = 60) -> str:
    """A text that makes sense enough for an answer to depend on it; about 14 tokens a day."""
    rng = random.Random(seed)
    names = "Mara Tobias Ines Pavel Ruth Oskar Lena Viktor".split()
    things = "a letter; an old map; two lanterns; the harbour key; a blue coat; bread".split("; ")
    places = "the mill; the lighthouse; the market; the ferry; the orchard; the archive".split("; ")
    lines = [
        f"On day {day}, {rng.choice(names)} brought {rng.choice(things)} from "
        f"{rng.choice(places)} to {rng.choice(places)} and told {rng.choice(names)} about it."
        for day in range(1, days)
    ]
    return " ".join(lines)


class Child:
    """An engine's process that answers commands (vllm_child.py)."""

    def __init__(self, python: Path, plan: Mapping[str, Any], directory: Path) -> None:
        self._log = (directory / "engine.log").open("w")
        (directory / "plan.json").write_text(json.dumps(plan))
        self._process = subprocess.Popen(
            ["nice", str(python), str(_ENGINES / "vllm_child.py"), str(directory / "plan.json")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={
                **{k: v for k, v in os.environ.items() if not k.startswith("PAGODA_")},
                **_QUIET,
                "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
                "PYTHONPATH": f"{_SOURCES}:{_ENGINES}",
            },
        )
        self.began = self._answer()

    def do(self, what: str, **more: Any) -> dict[str, Any]:
        """Carry out a command; its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, **more}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def ask(self, text: str, **more: Any) -> dict[str, Any]:
        """An answer to the first tokens of a text."""
        return self.do("ask", text=text, **more)

    def close(self) -> None:
        """Stop the engine as an operator does; kill it if it does not go."""
        if self._process.poll() is None and "ready" in self.began:
            self.do("stop")
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._log.flush()
            log = Path(self._log.name).read_text()[-3000:]
            raise AssertionError(f"the engine ended: {log}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def total(child: Child, name: str, **labels: str) -> float:
    """A metric of the engine over all its series that have these labels."""
    wanted = {f"{label}={value}" for label, value in labels.items()}
    found = child.do("metrics")["metrics"].items()
    series = ((key.split(","), value) for key, value in found)
    return float(sum(value for (one, *has), value in series if one == name and wanted <= {*has}))


def pagoda_tier(drive: Path, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """PagodaTier's entry in vLLM's configuration, over one directory."""
    where = {"path": str(drive), "capacity": "500MiB", "free_floor": "1MiB"}
    more = settings or {}
    own = {**more, "drive": {**where, **more.get("drive", {})}}
    return {"type": "PagodaTier", "module_path": "pagoda.connect.vllm", "settings": own}


def launch(python: Path, model: Path, directory: Path, *tiers: Any, **more: Any) -> Child:
    """Start an engine with these tiers below 200 MB of host memory; `directory` takes its log."""
    directory.mkdir(exist_ok=True)
    plan = {"model": str(model), "host_bytes": 200_000_000, "tiers": list(tiers), **more}
    return Child(python, plan, directory)
