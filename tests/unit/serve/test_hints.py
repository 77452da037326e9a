"""What a request may say of its session, and how it reaches the engine."""

from __future__ import annotations

from typing import Any

import pytest

from pagoda.core.policy import Hint
from pagoda.serve.hints import HEADER
from pagoda.serve.schema import SESSION_HINTS

PLACES = ("body", "transfer", "header")


def saying(hint: str, place: str) -> dict[str, Any]:
    """What is sent along for a hint to be given in one place."""
    if place == "header":
        return {"headers": {HEADER: hint}}
    field = {"pagoda": {"session": hint}}
    return field if place == "body" else {"kv_transfer_params": {"pagoda_session": hint}}


def ask(serving: Any, path: str, *said: dict[str, Any]) -> Any:
    """A request that says all of this."""
    body: dict[str, Any] = {"max_tokens": 1}
    headers: dict[str, str] = {}
    for one in said:
        headers |= one.get("headers", {})
        body |= {name: value for name, value in one.items() if name != "headers"}
    if path == "/v1/completions":
        body["prompt"] = "hi"
    else:
        body["messages"] = [{"role": "user", "content": "hi"}]
    return serving.post(path, body, headers=headers)


def test_every_hint_but_none_can_be_said() -> None:
    """What policies know is what requests may say."""
    assert {*SESSION_HINTS} == {hint.value for hint in Hint} - {Hint.NONE.value}


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("hint", SESSION_HINTS)
def test_a_hint_reaches_the_engine(serving: Any, path: str, place: str, hint: str) -> None:
    """From either endpoint, in any of the three places."""
    assert ask(serving, path, saying(hint, place)).status_code == 200
    assert serving.engine.submitted[-1].hint is Hint(hint)


def test_nothing_said_is_no_hint(serving: Any) -> None:
    """Also where the fields are there and empty."""
    for said in ({}, {"pagoda": None}, {"pagoda": {"session": None}}, {"kv_transfer_params": {}}):
        assert ask(serving, "/v1/completions", said).status_code == 200
        assert serving.engine.submitted[-1].hint is Hint.NONE


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("wrong", ["none", "open", "", "alive,tool"])
def test_another_word_is_refused(serving: Any, place: str, wrong: str) -> None:
    """With the words that are known, and before anything is computed."""
    answer = ask(serving, "/v1/completions", saying(wrong, place))
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == "invalid_value"
    assert all(hint in error["message"] for hint in SESSION_HINTS)
    assert serving.engine.submitted == []


def test_hints_that_contradict_each_other_are_refused(serving: Any) -> None:
    """Two that agree are one."""
    agreeing = [saying("tool", place) for place in PLACES]
    assert ask(serving, "/v1/completions", *agreeing).status_code == 200
    for place in PLACES[:2]:
        said = (saying("alive", place), saying("closed", "header"))
        answer = ask(serving, "/v1/completions", *said)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "pagoda.session")


def test_other_transfer_parameters_are_refused(serving: Any) -> None:
    """Nothing that would change an answer is ignored."""
    answer = ask(serving, "/v1/completions", {"kv_transfer_params": {"do_remote_prefill": True}})
    assert answer.status_code == 400
