"""`pagoda pin` and `pagoda unpin` against a server over a fake engine."""

from __future__ import annotations

import io
import json
import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from pagoda.cli import pin_tables
from pagoda.cli.pin_tables import show_pins
from pagoda.core.pins import PinWish
from pagoda.serve import ServeConfig, Server
from pagoda.testing.cache import FakeCache
from pagoda.testing.engine import FakeEngine

TEXT = "x" * 64
IDS = tuple(TEXT.encode())


@dataclass
class Remote:
    """A server's URL, and what reached its engine."""

    url: str
    cache: FakeCache


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> Iterator[Remote]:
    """A server with the key `k`, which the environment holds."""
    monkeypatch.setenv("PAGODA_API_KEY", "k")
    engine, ready = FakeEngine(), queue.Queue()
    server = Server(engine, ServeConfig(port=0, api_key="k", grace_s=1.0), on_ready=ready.put)
    thread = threading.Thread(target=server.run)
    thread.start()
    yield Remote(ready.get(timeout=10), engine.cache)
    server.stop()
    thread.join(10)


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    """A file with four blocks of text."""
    file = tmp_path / "system.txt"
    file.write_text(TEXT)
    return str(file)


def test_a_prefix_is_pinned_shown_and_unpinned(pagoda, remote: Remote, prefix: str) -> None:
    """The whole way: flags become a wish, the table has the pin, and it ends by its name."""
    flags = ["--owner", "search", "--expires", "2h", "--budget", "10%", "--salt", "a"]
    pinned = pagoda("pin", "--prefix-file", prefix, *flags, "--url", remote.url)
    assert pinned.status == 0
    assert "4 blocks" in pinned.out
    wish = PinWish(owner="search", expires_s=7200, budget=0.1)
    assert remote.cache.asked[-1][:4] == ("pin", IDS, "a", wish)
    shown = pagoda("pin", "ls", "--url", remote.url)
    assert shown.status == 0
    assert "search" in shown.out
    (pin,) = json.loads(pagoda("pin", "ls", "--url", remote.url, "--json").out)["pins"]
    ended = pagoda("unpin", pin["id"], "--url", remote.url)
    assert (ended.status, ended.out) == (0, "pins ended: 1\n")
    assert "nothing is pinned" in pagoda("pin", "ls", "--url", remote.url).out


def test_an_owners_pins_are_listed_and_end_together(pagoda, remote: Remote, prefix: str) -> None:
    """And nobody else's."""
    for owner in ("a", "b", "b"):
        pagoda("pin", "--prefix-file", prefix, "--owner", owner, "--url", remote.url)
    listed = pagoda("pin", "ls", "--owner", "b", "--url", remote.url, "--json")
    assert [pin["owner"] for pin in json.loads(listed.out)["pins"]] == ["b", "b"]
    ended = pagoda("unpin", "--owner", "b", "--url", remote.url, "--json")
    assert json.loads(ended.out) == {"unpinned": 2}


def test_a_refusal_is_told_with_its_sum_and_status_2(
    pagoda, remote: Remote, tmp_path: Path
) -> None:
    """A budget that is exceeded is the asker's to settle."""
    long = tmp_path / "long.txt"
    long.write_text("x" * 2000)
    refused = pagoda("pin", "--prefix-file", str(long), "--owner", "a", "--url", remote.url)
    assert refused.status == 2
    assert "0 of 64 blocks" in refused.err


@pytest.mark.parametrize(
    "args",
    [
        ["pin"],
        ["pin", "--owner", "a"],
        ["pin", "--prefix-file", "FILE"],
        ["pin", "--prefix-file", "FILE", "--owner", "a", "--expires", "soon"],
        ["pin", "--prefix-file", "FILE", "--owner", "a", "--budget", "much"],
        ["pin", "--prefix-file", "FILE", "--owner", "a", "--budget", "nan"],
        ["pin", "--prefix-file", "FILE", "--owner", "a", "--budget", "1e999%"],
        ["pin", "--prefix-file", "FILE", "--owner", "\udcff"],
        ["pin", "ls", "--owner", "\udcff"],
        ["unpin", "x" * 70_000],
        ["pin", "--prefix-file", "nowhere", "--owner", "a"],
        ["unpin"],
        ["unpin", "x", "--owner", "a"],
    ],
)
def test_what_is_not_said_well_is_refused(
    pagoda, remote: Remote, prefix: str, args: list[str]
) -> None:
    """Status 2, and nothing reaches the engine."""
    given = [prefix if arg == "FILE" else arg for arg in args]
    assert pagoda(*given, "--url", remote.url).status == 2
    assert remote.cache.asked == []


@pytest.mark.parametrize("id", ["f", "", "../prefetch", "a b", "?owner=b", "f" * 16])
def test_a_pin_that_is_not_there_ends_nothing(pagoda, remote: Remote, prefix: str, id: str) -> None:
    """Whatever its name looks like."""
    pagoda("pin", "--prefix-file", prefix, "--owner", "b", "--url", remote.url)
    assert pagoda("unpin", id, "--url", remote.url).status == 2
    assert len(remote.cache.pins()) == 1


def test_a_key_that_is_not_ascii_is_sent_as_it_is(
    pagoda, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong one is refused by the server, which is told of it, and not by this side."""
    monkeypatch.setenv("PAGODA_API_KEY", "schlüssel")
    refused = pagoda("pin", "ls", "--url", remote.url)
    assert refused.status == 2
    assert "a valid API key is needed" in refused.err


def test_a_pin_ends_by_how_its_id_begins(pagoda, remote: Remote, prefix: str) -> None:
    """One that several have names them and ends none, not even others of the same call; a whole
    id is no beginning; the same pin twice ends once."""
    for owner in ("a", "b", "c"):
        pagoda("pin", "--prefix-file", prefix, "--owner", owner, "--url", remote.url)
    first, second, third = [pin.id for pin in remote.cache.pins()]
    vague = pagoda("unpin", third, first[:15], "--url", remote.url)
    assert vague.status == 2
    assert first in vague.err
    assert second in vague.err
    assert len(remote.cache.pins()) == 3
    remote.cache._pins[0] = replace(remote.cache._pins[0], id=f"ab{first[2:]}")
    ended = pagoda("unpin", "AB", f"ab{first[2:]}", "--url", remote.url)
    assert (ended.status, ended.out) == (0, "pins ended: 1\n")
    assert [pin.id for pin in remote.cache.pins()] == [second, third]


@given(
    owner=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=64),
    left_s=st.floats(0, 3e8),
    tiers=st.lists(st.text("abcdefgh", min_size=1, max_size=12), min_size=1, max_size=5),
    width=st.sampled_from([20, 40, 80, 10_000]),
)
def test_an_id_is_whole_at_every_width(
    owner: str, left_s: float, tiers: list[str], width: int
) -> None:
    """Whatever else there is to show; lines are as narrow as the console."""
    pins = [
        {
            "id": f"{at:016x}", "owner": owner, "until_s": time.time() + left_s, "blocks": 2**at,
            "places": [
                {"tier": tier, "granted": at % 2 == 0, "resident": at} for tier in tiers
            ],
        }
        for at in (0, 1, 30)
    ]  # fmt: skip
    out = io.StringIO()
    show_pins(pins, Console(file=out, width=width))
    lines = out.getvalue().splitlines()
    assert all(len(line) <= width for line in lines)
    for pin in pins:
        assert any(line.startswith(pin["id"]) for line in lines)
    if width == 10_000:
        assert len(lines) == len(pins) + 2
        assert all(owner in line for line in lines[2:])


def test_the_time_left_is_told_as_people_say_it(
    pagoda, remote: Remote, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two units, the nearest: the fake's pins end so long after second 1,000."""
    monkeypatch.setattr(pin_tables.time, "time", lambda: 1_000.2)
    flags = ("--prefix-file", prefix, "--owner", "a", "--url", remote.url)
    assert "ends in 1h 59m" in pagoda("pin", *flags, "--expires", "119min").out
    assert "1h 59m " in pagoda("pin", "ls", "--url", remote.url).out
