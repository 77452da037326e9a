"""A shared level as it runs in production: real clients, real threads, real keys."""

from __future__ import annotations

import random
import secrets
from collections import Counter

import pytest
from redis_server import running
from shared_harness import SIZE, SPACE, block_of, dirty, keys_of, truth

from pagoda.core.events import Degraded, Event, Reason
from pagoda.core.identity import Key
from pagoda.core.outcome import Corrupt, Hit, Outcome, Unavailable
from pagoda.seal.envelope import PLAIN, Envelope
from pagoda.seal.keyring import Keyring
from pagoda.seal.mac import Signer
from pagoda.store.executor import Runtime, ThreadExecutor
from pagoda.store.orders import Orders
from pagoda.store.queue import Pending
from pagoda.store.restore import Restore
from pagoda.store.shared import SharedConfig, SharedLevel
from pagoda.testing.clock import FakeClock
from pagoda.tiers.remote.breaker import GuardedShared
from pagoda.tiers.remote.open import RemoteConfig, open_shared
from pagoda.tiers.remote.sealed import SealedShared


class Threaded:
    """A node with I/O threads; its clock moves only when told to."""

    def __init__(
        self, url: str, *, envelope: Envelope = PLAIN, signer: Signer | None = None
    ) -> None:
        self.clock = FakeClock()
        self.executor = ThreadExecutor(load_threads=2, store_threads=2)
        self.events: list[Event] = []
        self.released: Counter[Key] = Counter()
        runtime = Runtime(executor=self.executor, clock=self.clock, observer=self.events.append)
        self.orders = Orders(runtime)
        guard = GuardedShared(
            open_shared(RemoteConfig(url=url, timeout_s=20.0)),
            clock=self.clock,
            rng=random.Random(0),
        )
        self.level = SharedLevel(
            SealedShared(guard, envelope=envelope, signer=signer),
            guard,
            runtime=runtime,
            orders=self.orders,
            config=SharedConfig(block_bytes=SIZE),
            bars=lambda namespace: False,
        )

    def settle(self) -> None:
        while self.orders.flying or not self.level.idle:
            self.executor.wait(0.2)
            self.orders.take_in()
            self.level.expire()

    def share(self, keys: list[Key]) -> None:
        self.level.offer(
            [
                Pending(block_of(keys, i), lambda key=key: self.released.update([key]), 1e9)
                for i, key in enumerate(keys)
            ]
        )
        self.settle()

    def find(self, keys: list[Key]) -> int:
        self.level.probe(SPACE, keys)
        self.settle()
        return self.level.known_prefix(keys)

    def read(self, keys: list[Key]) -> list[Outcome]:
        """Outcomes; every hit's bytes are the block's."""
        restore = Restore(keys, [dirty() for _ in keys], deadline_s=self.clock() + 2.0)
        self.level.fetch(restore, range(len(keys)))
        self.settle()
        for key, buffer, outcome in zip(keys, restore.into, restore.outcomes, strict=True):
            assert not isinstance(outcome, Hit) or buffer == truth(key)
        return restore.outcomes

    def told(self, kind: type) -> list[Event]:
        """Events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def close(self) -> None:
        self.level.close()
        self.executor.close()


def protected(how: str) -> dict[str, object]:
    """Seals with a fresh key, or without one."""
    keyring = Keyring({1: secrets.token_bytes(32)})
    if how == "encrypted":
        pytest.importorskip("cryptography")
        return {"envelope": Envelope.of("raw", keyring, setting="remote")}
    if how == "signed":
        pytest.importorskip("blake3")
        return {"signer": Signer(keyring, setting="remote.key_file")}
    return {}


@pytest.mark.parametrize("how", ["plain", "encrypted", "signed"])
def test_two_nodes_share_a_directory(tmp_path, how):
    """Whoever has no key plants nothing where there is one."""
    pytest.importorskip("obstore")
    url, seals, keys = f"file://{tmp_path}/kv", protected(how), keys_of(40)
    nodes = [Threaded(url, **seals) for _ in range(2)]
    nodes[0].share(keys[:30])
    assert nodes[0].released == Counter(keys[:30])
    assert nodes[1].find(keys) == 30
    assert nodes[1].read(keys[:30]) == [Hit("remote")] * 30

    stranger = Threaded(url)
    stranger.share(keys)
    nodes[1].clock.advance(60)
    assert nodes[1].find(keys[30:]) == 10
    planted = nodes[1].read(keys[30:])
    if seals:
        assert all(isinstance(outcome, Corrupt) for outcome in planted)
        assert stranger.find(keys[30:31]) == 1, "a stranger remembers"
        assert not list((tmp_path / "kv").rglob(keys[30].hex())), "what was planted is deleted"
    for node in (*nodes, stranger):
        node.close()


@pytest.mark.server
def test_a_server_killed_in_the_middle_costs_blocks_and_comes_back_by_itself(tmp_path):
    """kill -9: unavailable, left alone, then tried again; no exception, nothing leaked."""
    pytest.importorskip("redis")
    prompts = [keys_of(4, salt=salt) for salt in range(4)]
    with running(tmp_path) as server:
        node = Threaded(server.url)
        for keys in prompts:
            node.share(keys)
        server.kill()
        for keys in prompts[:3]:
            assert node.read(keys) == [Unavailable("remote", Reason.IO_ERROR)] * 4
        assert [event.detail for event in node.told(Degraded)] == ["reads are paused"]
        assert node.level.known_prefix(prompts[3]) == 0

        server.start()
        node.clock.advance(61)
        assert node.find(prompts[0]) == 0, "the trial succeeds, and the server is empty"
        node.share(prompts[0])
        node.clock.advance(61)
        assert node.find(prompts[0]) == 4
        assert node.read(prompts[0]) == [Hit("remote")] * 4
        node.close()
