"""Events of pages on drives: what is told once, to whom, and as what."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from sglang_host import Host, name_of, random_page, soon

from pagoda.connect.announced import Announced
from pagoda.connect.names import NamesFile
from pagoda.connect.sglang.events import PageEvents, hash_of, publisher
from pagoda.core.errors import SettingsError
from pagoda.core.identity import Key, NamespaceId
from pagoda.store.executor import Lane

_A_ROUND_S = 1e9  # long enough for every page to be looked after


class Socket:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[list[bytes]] = []
        self.bound = ""
        self.closed = False

    def send_multipart(self, parts: list[bytes]) -> None:
        self.sent.append(parts)

    def setsockopt(self, option: int, value: int) -> None:
        assert (option, value) == (1, 0)

    def bind(self, endpoint: str) -> None:
        if endpoint.startswith("tcp://taken"):
            raise ZMQError("Address already in use")
        self.bound = endpoint

    def close(self) -> None:
        self.closed = True

    def batches(self) -> list[Any]:
        return [json.loads(parts[2]) for parts in self.sent]


class ZMQError(Exception):
    """As pyzmq's, which is no OSError."""


def _encode(content: object) -> bytes:
    return json.dumps(content).encode()


class AtOnce:
    """An executor that does everything when it is asked to."""

    def submit(self, lane: Lane, job: Callable[[], None]) -> None:
        del lane
        job()

    def wait(self, timeout_s: float) -> None:
        del timeout_s

    def close(self) -> None:
        """Nothing is left."""


class Told:
    """Events over pages that are `there`, whose names a directory keeps."""

    def __init__(self, directory: Path, there: set[str]) -> None:
        self.there = there
        self.socket = Socket()
        self.events = PageEvents(self.socket, _encode, tokens=16, replica=2)
        space = NamespaceId(bytes(32))
        file = NamesFile(directory, space, engine="sglang", name_bytes=32)
        self.events.open(Announced(Key, self._held, file=file, executor=AtOnce()))

    def _held(self, keys: Sequence[Key]) -> list[bool]:
        return [key.hex() in self.there for key in keys]

    def publish(self) -> list[Any]:
        """The events of one call, in which every page is looked after."""
        before = len(self.socket.sent)
        self.events.publish(_A_ROUND_S)
        return [one for _, batch, _ in self.socket.batches()[before:] for one in batch]


def _hashes(names: Sequence[str]) -> list[int]:
    return [hash_of(bytes.fromhex(name)) for name in names]


def test_pages_are_told_once_when_they_come_and_once_when_they_go(tmp_path: Path) -> None:
    """In SGLang's words: batches with a time, a replica and a number that rises."""
    names = [name_of(number) for number in range(3)]
    told = Told(tmp_path, set(names))
    told.events.stored(names[:2])
    told.events.stored(names[1:])
    [came] = told.publish()
    assert came == {
        "type": "BlockStored",
        "block_hashes": _hashes(names),
        "parent_block_hash": None,
        "token_ids": [],
        "block_size": 16,
        "lora_id": None,
        "medium": "DISK",
    }
    told.events.stored(names)
    assert told.publish() == []
    told.there.discard(names[1])
    gone = {"type": "BlockRemoved", "block_hashes": _hashes(names[1:2]), "medium": "DISK"}
    assert told.publish() == [gone]
    assert told.publish() == []
    told.there.add(names[1])
    told.events.stored([names[1]])
    [again] = told.publish()
    assert again["block_hashes"] == _hashes(names[1:2])
    assert [batch[2] for batch in told.socket.batches()] == [2, 2, 2]
    assert [int.from_bytes(parts[1], "big") for parts in told.socket.sent] == [0, 1, 2]


def test_what_an_earlier_process_stored_is_told_again(tmp_path: Path) -> None:
    """All that is still there, before anything new."""
    names = [name_of(number) for number in range(1000)]
    there = set(names)
    before = Told(tmp_path, there)
    before.events.stored(names)
    before.publish()
    before.events.close(1.0)
    assert before.socket.closed
    there.difference_update(names[500:])
    after = Told(tmp_path, there)
    told: list[int] = []
    while events := after.publish():
        assert all(one["type"] == "BlockStored" for one in events)
        told += [block for one in events for block in one["block_hashes"]]
    assert sorted(told) == sorted(_hashes(names[:500]))


def test_nothing_is_told_before_the_stores_are_open() -> None:
    """Of pages that were stored already neither."""
    socket = Socket()
    events = PageEvents(socket, _encode, tokens=16, replica=0)
    events.stored([name_of(1)])
    events.publish(1.0)
    events.close(1.0)
    assert socket.sent == []
    assert socket.closed


def test_hashes_are_those_of_sglangs_own_events() -> None:
    """The first 64 bits of a page's name, signed."""
    for digits, number in (("00000000000000ff", 255), ("f" * 16, -1), ("8" + "0" * 15, -(2**63))):
        assert hash_of(bytes.fromhex(digits + "0" * 48)) == number


@pytest.fixture
def sockets(monkeypatch: pytest.MonkeyPatch) -> list[Socket]:
    """Packages that are not installed here, and the sockets that were made."""
    made: list[Socket] = []

    def socket(kind: int) -> Socket:
        assert kind == 7
        made.append(Socket())
        return made[-1]

    zmq, msgspec, msgpack = (ModuleType(name) for name in ("zmq", "msgspec", "msgspec.msgpack"))
    context = SimpleNamespace(instance=lambda: SimpleNamespace(socket=socket))
    vars(zmq).update(Context=context, PUB=7, LINGER=1, ZMQError=ZMQError)
    vars(msgpack)["encode"] = _encode
    for module in (zmq, msgspec, msgpack):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return made


def test_replicas_publish_at_ports_of_their_own(sockets: list[Socket]) -> None:
    """Each has a cache of its own, as with SGLang's publishers."""
    for replica in (0, 2):
        publisher("tcp://127.0.0.1:5560", tokens=16, replica=replica)
    publisher("ipc:///run/pages", tokens=16, replica=1)
    assert [one.bound for one in sockets] == [
        "tcp://127.0.0.1:5560",
        "tcp://127.0.0.1:5562",
        "ipc:///run/pages-1",
    ]


def test_an_address_that_is_taken_is_told(sockets: list[Socket]) -> None:
    """Where, why, and what to do; and the socket is closed."""
    with pytest.raises(SettingsError, match="tcp://taken:1: Address already in use"):
        publisher("tcp://taken:1", tokens=16, replica=0)
    assert sockets[0].closed


def test_without_the_package_events_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is left waiting for events that never come."""
    monkeypatch.setitem(sys.modules, "zmq", None)
    with pytest.raises(SettingsError, match="cannot be published"):
        publisher("tcp://127.0.0.1:5560", tokens=16, replica=0)


def test_a_server_tells_of_its_pages_and_after_a_restart_of_those_that_are_left(
    build: Callable[..., Host], sockets: list[Socket]
) -> None:
    """Once all of a page is on the drive; nothing is told of other pools, and names are kept."""
    names = [name_of(number) for number in range(3)]
    address = "tcp://127.0.0.1:5560"
    host = build(kv_events=address)
    rng = random.Random(1)
    assert host.save(names, [random_page(rng, host.pools["kv"]) for _ in names])
    soon(lambda: len(sockets[0].sent) == 1)
    [(_, [came], replica)] = sockets[0].batches()
    assert (came["type"], came["block_hashes"], replica) == ("BlockStored", _hashes(names), 0)
    assert came["block_size"] == host.pools["kv"].page_size
    host.damage(names[1])
    assert host.load(names)[1] is None
    soon(lambda: len(sockets[0].sent) == 2)
    [gone] = sockets[0].batches()[1][1]
    assert (gone["type"], gone["block_hashes"]) == ("BlockRemoved", _hashes(names[1:2]))
    host.storage.close()
    assert sockets[0].closed
    build(kv_events=address)
    soon(lambda: len(sockets[1].sent) == 1)
    [(_, [left], _)] = sockets[1].batches()
    assert sorted(left["block_hashes"]) == sorted(_hashes([names[0], names[2]]))
