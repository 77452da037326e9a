"""Pins over HTTP: shapes, refusals, and the field of a request that pins its prompt."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from pagoda.core.holdings import tenant_id
from pagoda.core.pins import PinLimits, PinWish
from pagoda.settings import Settings
from pagoda.settings.storage import pin_limits
from pagoda.testing.cache import FakeCache

TEXT = "x" * 64
IDS = tuple(TEXT.encode())


def ask(serving: Any, method: str, path: str, body: object = None, **more: Any) -> httpx.Response:
    """One request."""
    return httpx.request(method, serving.url + path, json=body, timeout=10, **more)


def cache_of(serving: Any) -> FakeCache:
    """The engine's caches, which keep what was asked."""
    return serving.engine.cache


def calls(serving: Any) -> list[str]:
    """What reached the engine's caches, by name."""
    return [call[0] for call in cache_of(serving).asked]


def test_a_prompt_is_pinned_listed_and_unpinned(serving) -> None:
    """The answer is the pin as it stands; a salt becomes a tenant and is shown nowhere."""
    body = {"prompt": TEXT, "owner": "a", "expires_s": 7200, "budget": 0.1, "cache_salt": "s3"}
    answer = ask(serving, "POST", "/cache/pins", body)
    assert answer.status_code == 200
    pinned = answer.json()
    assert set(pinned) == {
        "id", "owner", "tenant", "namespace", "blocks", "tokens", "budget", "until_s", "durable",
        "places",
    }  # fmt: skip
    assert pinned["tenant"] == tenant_id("s3")
    assert "s3" not in answer.text
    wish = PinWish(owner="a", expires_s=7200, budget=0.1)
    assert cache_of(serving).asked[0][:4] == ("pin", IDS, "s3", wish)
    assert ask(serving, "GET", "/cache/pins").json()["pins"] == [pinned]
    ended = ask(serving, "DELETE", f"/cache/pins/{pinned['id']}")
    assert ended.json() == {"unpinned": 1}
    again = ask(serving, "DELETE", f"/cache/pins/{pinned['id']}")
    assert (again.status_code, again.json()["error"]["code"]) == (404, "not_found")


def test_pins_are_listed_and_end_by_owner(serving) -> None:
    """A missing owner is not everybody."""
    for owner in ("a", "b", "a"):
        ask(serving, "POST", "/cache/pins", {"prompt": list(IDS), "owner": owner})
    listed = ask(serving, "GET", "/cache/pins?owner=a").json()["pins"]
    assert [pin["owner"] for pin in listed] == ["a", "a"]
    assert ask(serving, "DELETE", "/cache/pins").status_code == 400
    assert ask(serving, "DELETE", "/cache/pins?all=1").status_code == 400
    assert ask(serving, "DELETE", "/cache/pins?owner=a").json() == {"unpinned": 2}
    assert len(cache_of(serving).pins()) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"owner": "a"},
        {"prompt": TEXT},
        {"prompt": TEXT, "owner": ""},
        {"prompt": TEXT, "owner": "x" * 65},
        {"prompt": TEXT, "owner": "a", "expires_s": 0},
        {"prompt": TEXT, "owner": "a", "expires_s": "2h"},
        {"prompt": TEXT, "owner": "a", "budget": 0},
        {"prompt": TEXT, "owner": "a", "budget": 1.1},
        {"prompt": TEXT, "owner": "a", "forever": True},
        {"prompt": [TEXT, TEXT], "owner": "a"},
        {"prompt": TEXT, "messages": [{"role": "user", "content": "x"}], "owner": "a"},
    ],
)
def test_a_pin_that_is_not_well_said_reaches_nobody(serving, body: dict[str, object]) -> None:
    """Each is a plain refusal."""
    assert ask(serving, "POST", "/cache/pins", body).status_code == 400
    assert calls(serving) == []


def test_a_budget_that_is_exceeded_is_told_with_its_sum(serving) -> None:
    """The error has a code of its own, for programs."""
    answer = ask(serving, "POST", "/cache/pins", {"prompt": "x" * 2000, "owner": "a"})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "pin_budget_exceeded")
    assert "0 of 64 blocks" in error["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_may_pin_its_prompt(serving, stream: bool) -> None:
    """Before it is computed, under its salt; the answer is as always."""
    pin = {"owner": "search", "expires_s": 60}
    body = {"prompt": TEXT, "cache_salt": "s", "stream": stream, "pagoda": {"pin": pin}}
    answer = ask(serving, "POST", "/v1/completions", body)
    assert answer.status_code == 200
    wish = PinWish(owner="search", expires_s=60)
    assert cache_of(serving).asked == [("pin", IDS, "s", wish, 0.0)]


def test_a_chat_may_pin_its_prompt(serving) -> None:
    """All its messages, as they are encoded for the model."""
    turns = [{"role": "system", "content": TEXT}]
    body = {"messages": turns, "pagoda": {"pin": {"owner": "a"}}}
    assert ask(serving, "POST", "/v1/chat/completions", body).status_code == 200
    assert cache_of(serving).asked[0][1] == tuple(f"system: {TEXT}\n".encode())


def test_a_request_whose_pin_is_refused_is_not_run(serving) -> None:
    """Nothing that was asked for is left out silently."""
    body = {"prompt": "x" * 2000, "max_tokens": 1, "pagoda": {"pin": {"owner": "a"}}}
    answer = ask(serving, "POST", "/v1/completions", body)
    assert answer.json()["error"]["code"] == "pin_budget_exceeded"
    assert serving.engine.live == 0


@pytest.mark.parametrize(
    "pagoda",
    [{"pin": {}}, {"pin": {"owner": "a", "for": "ever"}}, {"pins": []}, {"pin": True}, []],
)
def test_a_field_that_is_not_well_said_is_refused(serving, pagoda: object) -> None:
    """And pins nothing."""
    body = {"prompt": TEXT, "pagoda": pagoda}
    assert ask(serving, "POST", "/v1/completions", body).status_code == 400
    assert calls(serving) == []


@pytest.mark.parametrize("pagoda", [None, {}, {"pin": None}])
def test_an_empty_field_asks_for_nothing(serving, pagoda: object) -> None:
    """null means the default, as everywhere."""
    body = {"prompt": TEXT, "pagoda": pagoda}
    assert ask(serving, "POST", "/v1/completions", body).status_code == 200
    assert calls(serving) == []


def test_one_prompt_at_a_time_is_pinned(serving) -> None:
    """Of several, some might be refused."""
    body = {"prompt": [TEXT, TEXT], "pagoda": {"pin": {"owner": "a"}}}
    assert ask(serving, "POST", "/v1/completions", body).status_code == 400
    assert calls(serving) == []


def test_settings_and_limits_have_the_same_defaults() -> None:
    """Half of a tier for all pins, a quarter for an owner, a day, thirty at the most."""
    assert pin_limits(Settings().pins) == PinLimits()
