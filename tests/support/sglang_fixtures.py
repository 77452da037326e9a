"""The real SGLang for tests: `sglang` starts a server, and tiny models to serve."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_homes import engine_python
from sglang_harness import Server, Setting

Sglang = Callable[..., Server]


@pytest.fixture(scope="session")
def sglang_python() -> Path:
    """The interpreter that has SGLang."""
    return engine_python("SGLang", "0.5.23")


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with keys and values for each of two heads."""
    return _written("llama", tmp_path_factory)


@pytest.fixture(scope="session")
def tiny_deepseek(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with one latent vector for all heads."""
    return _written("deepseek", tmp_path_factory)


@pytest.fixture(scope="module")
def sglang(sglang_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sglang]:
    """Starts a server: sglang(model=…, entry=…, …) with the fields of Setting. Servers are
    stopped at the end of the module, if the test has not done it."""
    servers: list[Server] = []

    def start(**setting: Any) -> Server:
        directory = tmp_path_factory.mktemp("server")
        servers.append(Server(sglang_python, directory, Setting(**setting)))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def _written(kind: str, directories: pytest.TempPathFactory) -> Path:
    models = pytest.importorskip("sglang_models")
    path: Path = models.write(kind, directories.mktemp("model") / kind)
    return path
