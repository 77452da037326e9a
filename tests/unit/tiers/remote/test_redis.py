"""Valkey and Redis: addresses without a server, and behaviour with a real one."""

from __future__ import annotations

import random
import socket
from pathlib import Path

import pytest
from redis_server import RedisServer, free_port, running

from pagoda.core.errors import TierError, TierFault, TierFull, TierReadOnly, TierTimeout
from pagoda.testing.clock import FakeClock
from pagoda.tiers.remote.breaker import GuardedShared, State, Tolerance
from pagoda.tiers.remote.redis import RedisConfig, RedisTier, redacted

pytest.importorskip("redis")

NAME = "ab" * 32 + "/" + "cd" * 32
VALUE = [memoryview(b"header"), memoryview(b"payload")]


def tier_at(url: str, **options: object) -> RedisTier:
    return RedisTier(RedisConfig(**{"url": url, "timeout_s": 10.0} | options))


def refusal(tier: RedisTier) -> TierError:
    """What a put and a get are refused with; texts hold neither names nor secrets."""
    with pytest.raises(TierError) as info:
        tier.put([NAME], [VALUE])
    assert "cd" * 8 not in str(info.value)
    assert "s3cret" not in str(info.value) + repr(info.value)
    assert info.value.__cause__ is None
    assert info.value.remedy
    return info.value


# Without a server.


@pytest.mark.parametrize(
    "url",
    [
        "http://h",
        "redis://h:port",
        "redis://u:s3cret@h:port",
        "rediss://h?ssl_cert_reqs=none",
        "redis://u:s3cret@[::1/0",
        "redis://h/blocks",
        "redis://h/1/2",
    ],
)
def test_a_bad_address_is_refused_with_an_example_and_without_its_password(url):
    """Options too: ssl_cert_reqs=none would switch verification off. A database that is no
    number would be database 0 to the client."""
    with pytest.raises(TierFault, match="no address of a Valkey or Redis server") as info:
        tier_at(url)
    assert "redis://host:6379/0" in info.value.remedy
    assert "s3cret" not in str(info.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:s3cret@h:1/2?db=3", "redis://h:1/2"),
        ("rediss://:p%40ss@[::1]:5", "rediss://[::1]:5"),
        ("unix:///run/s.sock", "unix:///run/s.sock"),
    ],
)
def test_addresses_are_shown_without_credentials(url, shown):
    """User, password and options are left out."""
    assert redacted(url) == shown


def test_a_password_is_in_no_repr():
    """Configurations end up in logs."""
    assert "s3cret" not in repr(RedisConfig(url="redis://h", password="s3cret"))


def test_a_server_that_is_down_is_noticed_at_the_first_call():
    """Not at the start of an engine; the error names the address."""
    url = f"redis://user:s3cret@127.0.0.1:{free_port()}/0"
    error = refusal(tier_at(url))
    assert isinstance(error, TierFault)
    assert redacted(url) in str(error)


def test_a_server_that_does_not_answer_is_a_timeout():
    """Each wait for bytes is bounded."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        tier = tier_at(f"redis://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.05)
        assert isinstance(refusal(tier), TierTimeout)


# With one.


@pytest.mark.server
def test_values_expire_when_asked_to(tmp_path):
    """The server is told an expiry in milliseconds, or none."""
    with running(tmp_path) as server:
        tier_at(server.url, ttl_s=3600.5).put([NAME], [VALUE])
        tier_at(server.url).put(["a/b"], [VALUE])
        client = tier_at(server.url)._client
        assert 3_500_000 < client.pttl(NAME) <= 3_600_500
        assert client.pttl("a/b") == -1


@pytest.mark.server
def test_what_is_no_value_is_in_nobodys_way(tmp_path):
    """Somebody's list, or an empty string, under a block's name: it is there, it is no block,
    other names of the same call are read, and it can be deleted and written over."""
    import redis

    names = [f"{'ab' * 32}/{number:064x}" for number in range(4)]
    with running(tmp_path) as server:
        tier = tier_at(server.url)
        client = redis.Redis(port=server.port)
        tier.put([names[0]], [VALUE])
        client.rpush(names[1], "garbage")
        client.set(names[2], b"")
        assert tier.has(names) == [True, True, True, False]
        found = [None if value is None else bytes(value) for value in tier.get(names, 100)]
        assert found == [b"headerpayload", b"", b"", None]
        tier.put([names[1]], [VALUE])
        tier.drop([names[2]])
        found = [None if value is None else bytes(value) for value in tier.get(names, 100)]
        assert found == [b"headerpayload", b"headerpayload", None, None]
        client.close()
        tier.close()


def test_one_round_trip_moves_a_bounded_number_of_bytes(tmp_path, monkeypatch):
    """A batch larger than the bound is cut, and comes back whole and in order."""
    names = [f"a/{i}" for i in range(10)]
    values = [[memoryview(bytes([i]) * 1000)] for i in range(10)]
    with running(tmp_path) as server:
        tier = tier_at(server.url, batch_bytes=2500)
        trips: list[bool] = []
        pipeline = tier._client.pipeline

        def counted(*, transaction: bool) -> object:
            trips.append(transaction)
            return pipeline(transaction=transaction)

        monkeypatch.setattr(tier._client, "pipeline", counted)
        tier.put(names, values)
        assert trips == [False] * 5
        trips.clear()
        assert [bytes(v or b"") for v in tier.get(names, 1200)] == [bytes(v[0]) for v in values]
        assert trips == [False] * 5


@pytest.mark.server
def test_an_answer_that_repeats_the_command_is_not_quoted(tmp_path):
    """A server without SET names what it was sent."""
    with running(tmp_path, "--rename-command", "SET", "") as server:
        assert type(refusal(tier_at(server.url))) is TierFault


@pytest.mark.server
def test_a_password_is_asked_for_and_taken_from_the_settings(tmp_path):
    """Wrong, missing, in the URL, and overriding the URL's."""
    with running(tmp_path, "--requirepass", "s3cret") as server:
        for url in (server.url, server.url.replace("//", "//:nots3cret@")):
            error = refusal(tier_at(url))
            assert isinstance(error, TierFault)
            assert "refuses this user or password" in error.message
            assert "password_file" in error.remedy
        tier_at(server.url.replace("//", "//:s3cret@")).put([NAME], [VALUE])
        tier_at(server.url.replace("//", "//:wrong@"), password="s3cret").put([NAME], [VALUE])


@pytest.mark.server
def test_an_acl_user_that_may_only_read_is_read_only(tmp_path):
    """Reading goes on, with no more rights than the guide says, in any database; writing is
    refused as read-only."""
    rule = "reader on >s3cret ~* -@all +getrange +exists +scan +ping +select"
    with running(tmp_path, "--user", *rule.split()) as server:
        url = f"{server.url[:-1]}3"
        tier_at(url).put([NAME], [VALUE])
        reader = tier_at(url, user="reader", password="s3cret")
        assert reader.get([NAME], 100) == [memoryview(b"headerpayload")]
        assert reader.has([NAME]) == [True]
        assert list(reader.names("")) == [NAME]
        assert isinstance(refusal(reader), TierReadOnly)


@pytest.mark.server
def test_a_full_server_is_full_and_still_read(tmp_path):
    """maxmemory with noeviction refuses writes only."""
    with running(tmp_path, "--maxmemory", "3mb", "--maxmemory-policy", "noeviction") as server:
        tier = tier_at(server.url)
        tier.put([NAME], [VALUE])
        with pytest.raises(TierFull, match="maxmemory"):
            tier.put([f"a/{i}" for i in range(8)], [[memoryview(bytes(1 << 20))]] * 8)
        assert tier.has([NAME]) == [True]


@pytest.mark.server
def test_a_replica_is_read_only(tmp_path):
    """READONLY is not a fault of the server."""
    with running(tmp_path, "--replicaof", "127.0.0.1", "1") as server:
        assert isinstance(refusal(tier_at(server.url)), TierReadOnly)


@pytest.mark.server
def test_tls_is_verified_against_the_named_authority(tmp_path):
    """With its certificate it works; without, nothing is sent."""
    with running(tmp_path, tls=True) as server:
        tier = tier_at(server.url, ca_file=str(tmp_path / "cert.pem"))
        tier.put([NAME], [VALUE])
        assert tier.has([NAME]) == [True]
        assert "certificate" in refusal(tier_at(server.url)).message.lower()


@pytest.mark.server
def test_a_unix_socket_works(tmp_path):
    """unix:///path."""
    with running(tmp_path) as server:
        tier = tier_at(f"unix://{server.socket}")
        tier.put([NAME], [VALUE])
        assert tier.has([NAME, "a/b"]) == [True, False]


@pytest.mark.server
def test_a_restarted_server_costs_no_failed_call(tmp_path):
    """A connection that the server closed is replaced."""
    with running(tmp_path) as server:
        tier = tier_at(server.url)
        tier.put([NAME], [VALUE])
        server.kill()
        server.start()
        assert tier.has([NAME]) == [False]


@pytest.mark.server
def test_a_killed_server_opens_the_breaker_and_its_return_closes_it(tmp_path: Path):
    """kill -9 in the middle: failures, then refusals without a call, then one trial."""
    clock = FakeClock()
    with running(tmp_path) as server:
        guard = GuardedShared(
            tier_at(server.url), clock=clock, rng=random.Random(1), tolerance=Tolerance(threshold=2)
        )
        guard.put([NAME], [VALUE])
        server.kill()
        for _ in range(2):
            with pytest.raises(TierFault, match="connect"):
                guard.has([NAME])
        assert guard.reads.state is State.OPEN
        restarted(server)
        with pytest.raises(TierFault, match="left alone"):
            guard.has([NAME])
        clock.advance(60)
        assert guard.has([NAME]) == [False]
        assert guard.reads.state is State.CLOSED


def restarted(server: RedisServer) -> None:
    """The server is back, empty."""
    server.start()
