"""The endpoints under /cache: shapes, refusals, and that salts and prompts stay where they are."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import pytest

from pagoda.core.errors import EngineBusy, EngineClosed, RequestError
from pagoda.core.holdings import Scope, tenant_id
from pagoda.testing.cache import FakeCache, cleared
from pagoda.testing.engine import FakeEngine

TEXT = "x" * 64
IDS = list(b"x" * 64)
CALLS = [
    ("GET", "/cache", None),
    ("GET", "/cache/tiers", None),
    ("POST", "/cache/drain", {"tier": "drive"}),
    ("POST", "/cache/lookup", {"prompt": TEXT}),
    ("POST", "/cache/clear", {"all": True}),
    ("GET", "/cache/quarantine", None),
    ("GET", "/cache/ttl", None),
    ("POST", "/cache/ttl", {"seconds": 1.0}),
    ("GET", "/cache/prefetch", None),
    ("POST", "/cache/prefetch", {"prompt": TEXT}),
    ("GET", "/cache/pins", None),
    ("POST", "/cache/pins", {"prompt": TEXT, "owner": "a"}),
    ("DELETE", "/cache/pins?owner=a", None),
    ("POST", "/cache/reset", {"scope": "device"}),
]


def ask(serving: Any, method: str, path: str, body: object = None, **more: Any) -> httpx.Response:
    """One request."""
    return httpx.request(method, serving.url + path, json=body, timeout=10, **more)


def cache_of(serving: Any) -> FakeCache:
    """The engine's caches, which keep what was asked."""
    return serving.engine.cache


@pytest.mark.parametrize(("method", "path", "body"), CALLS)
def test_every_call_needs_the_key_when_there_is_one(serve, method, path, body) -> None:
    """Without it nothing reaches the engine; with it the call is carried out."""
    serving = serve(api_key="secret")
    assert ask(serving, method, path, body).status_code == 401
    wrong = ask(serving, method, path, body, headers={"authorization": "Bearer other"})
    assert wrong.status_code == 401
    assert cache_of(serving).asked == []
    assert serving.engine.resets == []
    right = ask(serving, method, path, body, headers={"authorization": "Bearer secret"})
    assert right.is_success


@pytest.mark.parametrize(("method", "path", "body"), CALLS[:-1])
def test_without_a_key_only_local_names_are_answered(serving, method, path, body) -> None:
    """A web page's own name for 127.0.0.1 clears nothing."""
    answer = ask(serving, method, path, body, headers={"host": "evil.example"})
    assert answer.status_code == 403
    assert cache_of(serving).asked == []


def test_holdings_are_listed_and_narrowed(serving) -> None:
    """The query's names reach the engine as a scope; the tier is picked from the answer."""
    lines = ask(serving, "GET", "/cache").json()["holdings"]
    assert [(line["tier"], line["blocks"]) for line in lines] == [("host", 3), ("drive", 5)]
    assert set(lines[0]) == {
        "tier", "namespace", "tenant", "current", "blocks", "size_bytes", "tokens",
        "longest_chain", "oldest_s", "newest_s",
    }  # fmt: skip
    query = "/cache?tenant=ab&namespace=cd&older_than_s=60&tier=drive"
    lines = ask(serving, "GET", query).json()["holdings"]
    assert [line["tier"] for line in lines] == ["drive"]
    scope = Scope(tenant="ab", namespace="cd", older_than_s=60)
    assert cache_of(serving).asked[-1] == ("holdings", scope)


@pytest.mark.parametrize(
    "query", ["cache_salt=x", "older_than_s=x", "older_than_s=-1", "older_than_s=inf", "Tenant=a"]
)
def test_a_query_that_is_not_understood_is_refused(serving, query: str) -> None:
    """Never a list of more than was asked for; a salt in a URL would be logged."""
    assert ask(serving, "GET", f"/cache?{query}").status_code == 400
    assert cache_of(serving).asked == []


@pytest.mark.parametrize("path", ["/cache/lookup", "/cache/prefetch"])
@pytest.mark.parametrize(
    ("body", "prompt"),
    [
        ({"prompt": TEXT}, tuple(IDS)),
        ({"prompt": IDS}, tuple(IDS)),
        ({"prompt": [TEXT]}, tuple(IDS)),
        ({"messages": [{"role": "user", "content": "hi"}]}, tuple(b"user: hi\n")),
    ],
)
def test_prompts_are_encoded_as_for_an_answer(serving, path, body, prompt) -> None:
    """Text, ids or messages; the salt says whose."""
    assert ask(serving, "POST", path, body | {"cache_salt": "s"}).is_success
    assert cache_of(serving).asked == [(path.rpartition("/")[2], prompt, "s")]


def test_a_tier_is_drained_by_its_name(serving) -> None:
    """The answer says how it stands, and so does the list; another name is not found."""
    more = {"slots": 8, "pinned": 0, "policy": "lru", "leader": ""}
    drive = {"tier": "drive", "standing": "draining", "blocks": 5, **more}
    assert ask(serving, "POST", "/cache/drain", {"tier": "drive"}).json() == drive
    tiers = ask(serving, "GET", "/cache/tiers").json()["tiers"]
    host = {"tier": "host", "standing": "serving", "blocks": 3, **more}
    assert tiers == [host, drive]
    assert ask(serving, "POST", "/cache/drain", {"tier": "drive7"}).status_code == 404


@pytest.mark.parametrize("body", [{}, {"tier": ""}, {"tier": None}, {"name": "drive"}])
def test_a_drain_that_names_no_tier_is_refused(serving, body) -> None:
    """Nothing is drained by a slip."""
    assert ask(serving, "POST", "/cache/drain", body).status_code == 400
    assert cache_of(serving).asked == []


def test_a_lookup_tells_places(serving) -> None:
    """Tokens, tier by tier."""
    assert ask(serving, "POST", "/cache/lookup", {"prompt": IDS}).json() == {
        "prompt_tokens": 64,
        "block_tokens": 16,
        "resident_tokens": 32,
        "places": [
            {"tier": "device", "held": 0, "first": 0},
            {"tier": "host", "held": 32, "first": 32},
        ],
    }


@pytest.mark.parametrize(
    ("body", "scope"),
    [
        ({"all": True}, Scope()),
        ({"tenant": "ab"}, Scope(tenant="ab")),
        ({"cache_salt": ""}, Scope(salt="")),
        ({"namespace": "cd", "older_than_s": 5}, Scope(namespace="cd", older_than_s=5)),
        ({"prompt": IDS, "cache_salt": "s"}, Scope(prompt=tuple(IDS), salt="s")),
    ],
)
def test_a_clearing_asks_for_what_was_said(serving, body, scope) -> None:
    """Neither more nor less."""
    answer = ask(serving, "POST", "/cache/clear", body)
    assert cache_of(serving).asked == [("clear", scope)]
    assert answer.json() == {
        "dropped": {"host": 1, "drive": 2},
        "erased": 1,
        "scans": [{"tier": "drive", "headers": 7, "left": 0, "newer": 0}],
        "verified": True,
        "untouched": [],
    }


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"all": False},
        {"all": True, "tenant": "ab"},
        {"tenant": None},
        {"tenant": ""},
        {"prompt": TEXT, "messages": [{"role": "user", "content": "hi"}]},
        {"prompt": [TEXT, TEXT]},
        {"prompt": ""},
        {"tenant": "ab", "prompt": TEXT},
        {"older_than_s": -1},
        {"older_than_s": "1"},
        {"salt": "x"},
    ],
)
def test_a_clearing_that_is_not_clear_clears_nothing(serving, body) -> None:
    """An empty body is not everything, and a misspelt field is not left out."""
    assert ask(serving, "POST", "/cache/clear", body).status_code == 400
    assert cache_of(serving).asked == []


def test_a_clearing_holds_nobody_up(serving, eventually) -> None:
    """While headers are read back, others are answered; then its own answer comes."""
    cache = cache_of(serving)
    cache.hold = True
    answers: list[httpx.Response] = []
    waiting = threading.Thread(
        target=lambda: answers.append(ask(serving, "POST", "/cache/clear", {"all": True}))
    )
    waiting.start()
    assert eventually(lambda: cache.held)
    assert serving.chat().is_success
    assert answers == []
    cache.held[0].set_result(cleared())
    waiting.join(10)
    assert answers[0].json()["verified"]


def test_an_engine_that_ends_meanwhile_is_a_503(serving) -> None:
    """Whoever waits for a clearing hears of it."""
    cache_of(serving).failure = EngineClosed("gone")
    assert ask(serving, "POST", "/cache/clear", {"all": True}).status_code == 503


def test_an_engine_that_is_busy_is_a_503_to_be_tried_again(serving) -> None:
    """With the time to wait and what to do, not a failure of the server."""
    cache_of(serving).failure = EngineBusy("it did not come to it", remedy="ask again later")
    answer = ask(serving, "GET", "/cache")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_busy")
    assert int(answer.headers["retry-after"]) > 0
    assert "ask again later" in answer.json()["error"]["message"]


def test_times_to_live_are_set_shown_and_removed(serving) -> None:
    """By id, by salt, or for everybody; the answer is the whole list."""

    def post(**body: object) -> list[dict[str, object]]:
        return ask(serving, "POST", "/cache/ttl", body).json()["ttls"]

    assert post(seconds=60.0) == [{"tenant": None, "seconds": 60.0}]
    assert post(seconds=5, cache_salt="s")[1] == {"tenant": tenant_id("s"), "seconds": 5.0}
    assert post(seconds=None) == [{"tenant": tenant_id("s"), "seconds": 5.0}]
    assert ask(serving, "GET", "/cache/ttl").json()["ttls"] == post(seconds=None)


@pytest.mark.parametrize(
    "body",
    [{}, {"seconds": 0}, {"seconds": -1}, {"seconds": 1e12}, {"seconds": 1, "tenant": "a",
     "cache_salt": "b"}, {"seconds": True}, {"seconds": 1, "ttl": 2}],
)  # fmt: skip
def test_a_bad_time_to_live_is_refused(serving, body) -> None:
    """Nothing is set."""
    assert ask(serving, "POST", "/cache/ttl", body).status_code == 400
    assert cache_of(serving).asked == []


def test_a_prefetch_is_accepted_and_can_be_watched(serving) -> None:
    """202 at once, then progress until it is done."""
    begun = ask(serving, "POST", "/cache/prefetch", {"prompt": TEXT})
    assert (begun.status_code, begun.json()["state"]) == (202, "running")
    states = [ask(serving, "GET", "/cache/prefetch").json()["prefetches"][0] for _ in range(3)]
    assert [state["done"] for state in states] == [1, 2, 3]
    assert states[-1]["state"] == "done"


def test_what_the_engine_refuses_reaches_the_client(serve) -> None:
    """With its status, its code and its remedy."""
    serving = serve(FakeEngine())
    cache_of(serving).failure = RequestError(
        "no tenant ab is known", param="tenant", code="not_found", remedy="look at ls"
    )
    answer = ask(serving, "POST", "/cache/clear", {"tenant": "ab"})
    assert answer.status_code == 404
    assert "look at ls" in answer.json()["error"]["message"]
