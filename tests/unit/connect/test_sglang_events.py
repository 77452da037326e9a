"""Events of pages on drives: what is told once, to whom, and as what."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from sglang_host import name_of

from pagoda.connect.sglang.events import PageEvents, hash_of, publisher
from pagoda.core.errors import SettingsError


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


def test_pages_are_told_once_when_they_come_and_once_when_they_go() -> None:
    """In SGLang's words: batches with a time, a replica and a number that rises."""
    socket = Socket()
    events = PageEvents(socket, _encode, tokens=16, replica=2)
    there: set[str] = set()

    def present(names: Sequence[str]) -> list[bool]:
        return [name in there for name in names]

    names = [name_of(number) for number in range(3)]
    there.update(names)
    events.stored(names[:2])
    events.stored(names[1:])
    events.publish(present)
    events.publish(present)
    events.stored(names)
    events.publish(present)
    [(_, [told], replica)] = socket.batches()
    assert replica == 2
    assert told == {
        "type": "BlockStored",
        "block_hashes": [hash_of(name) for name in names],
        "parent_block_hash": None,
        "token_ids": [],
        "block_size": 16,
        "lora_id": None,
        "medium": "DISK",
    }
    there.discard(names[1])
    events.publish(present)
    events.publish(present)
    [_, (_, [gone], _)] = socket.batches()
    assert gone == {"type": "BlockRemoved", "block_hashes": [hash_of(names[1])], "medium": "DISK"}
    assert [int.from_bytes(parts[1], "big") for parts in socket.sent] == [0, 1]
    there.add(names[1])
    events.stored([names[1]])
    events.publish(present)
    assert socket.batches()[2][1][0]["block_hashes"] == [hash_of(names[1])]


def test_every_announced_page_has_its_turn_to_be_looked_after() -> None:
    """However many there are, none that left stays announced for ever."""
    socket = Socket()
    events = PageEvents(socket, _encode, tokens=16, replica=0)
    names = [name_of(number) for number in range(1000)]
    events.stored(names)
    for _ in range(100):
        events.publish(lambda some: [False] * len(some))
    told = [one for _, batch, _ in socket.batches() for one in batch]
    gone = [block for one in told if one["type"] == "BlockRemoved" for block in one["block_hashes"]]
    assert sorted(gone) == sorted(hash_of(name) for name in names)


def test_hashes_are_those_of_sglangs_own_events() -> None:
    """The first 64 bits of a page's name, signed."""
    assert hash_of("00000000000000ff" + "0" * 48) == 255
    assert hash_of("ffffffffffffffff" + "0" * 48) == -1
    assert hash_of("8000000000000000" + "0" * 48) == -(2**63)


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
