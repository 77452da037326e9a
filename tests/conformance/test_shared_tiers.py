"""Every shared store of Pagoda's own passes the public conformance suite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis_server import running
from s3_double import S3Double, serving

from pagoda.testing.faulty_shared import FaultyShared
from pagoda.testing.memory_shared import MemoryShared
from pagoda.testing.shared_conformance import SharedTierConformance
from pagoda.tiers.remote.open import RemoteConfig, open_shared
from pagoda.tiers.remote.port import SharedTier


class TestMemory(SharedTierConformance):
    """A dictionary."""

    @pytest.fixture
    def tier(self) -> SharedTier:
        return MemoryShared()


class TestLiesSwitchedOff(SharedTierConformance):
    """The fault wrapper changes nothing until it is told to."""

    @pytest.fixture
    def tier(self) -> SharedTier:
        return FaultyShared(MemoryShared())


class TestDirectory(SharedTierConformance):
    """Files, through obstore."""

    @pytest.fixture
    def tier(self, tmp_path: Path) -> Iterator[SharedTier]:
        pytest.importorskip("obstore")
        tier = open_shared(RemoteConfig(url=f"file://{tmp_path}/kv"))
        yield tier
        tier.close()


class TestS3(SharedTierConformance):
    """Obstore's S3 client over HTTP, against a double of the server."""

    @pytest.fixture
    def tier(self) -> Iterator[SharedTier]:
        pytest.importorskip("obstore")
        with serving(S3Double()) as endpoint:
            tier = open_shared(
                RemoteConfig(
                    url="s3://kv/some/prefix",
                    endpoint=endpoint,
                    user="key",
                    password="secret",
                    timeout_s=20.0,
                )
            )
            yield tier
            tier.close()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A redis-server for the module's tests."""
    pytest.importorskip("redis")
    with running(tmp_path_factory.mktemp("redis")) as server:
        yield server.url


@pytest.mark.server
class TestRedis(SharedTierConformance):
    """A real server, over TCP."""

    @pytest.fixture
    def tier(self, url: str) -> Iterator[SharedTier]:
        tier = open_shared(RemoteConfig(url=url, timeout_s=20.0))
        yield tier
        tier.close()
