"""Every bad request is a 4xx in OpenAI's shape, and the server goes on."""

from __future__ import annotations

import json
import logging

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from pagoda.core.errors import RequestError
from pagoda.serve.schema import HARMLESS, OFF_VALUES, ChatBody, CompletionBody
from pagoda.testing.engine import FakeEngine

SECRET = "the-secret-prompt"


def assert_openai_error(response: httpx.Response, status: int, code: str | None = None) -> dict:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert set(response.json()) == {"error"}
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert error["message"]
    assert code is None or error["code"] == code
    return error


def chat_with(**fields: object) -> dict:
    return {"messages": [{"role": "user", "content": SECRET}], **fields}


BAD_COMMON = {
    "unknown model": ({"model": "other"}, 404),
    "model of wrong type": ({"model": 7}, 400),
    "negative max_tokens": ({"max_tokens": -1}, 400),
    "zero max_tokens": ({"max_tokens": 0}, 400),
    "huge max_tokens": ({"max_tokens": 10**9}, 400),
    "gigantic max_tokens": ({"max_tokens": 10**300}, 400),
    "fractional max_tokens": ({"max_tokens": 1.5}, 400),
    "max_tokens as text": ({"max_tokens": "5"}, 400),
    "boolean max_tokens": ({"max_tokens": True}, 400),
    "negative temperature": ({"temperature": -0.1}, 400),
    "huge temperature": ({"temperature": 1e300}, 400),
    "temperature as text": ({"temperature": "hot"}, 400),
    "top_p of zero": ({"top_p": 0}, 400),
    "top_p over one": ({"top_p": 1.01}, 400),
    "top_k below -1": ({"top_k": -2}, 400),
    "min_p of one": ({"min_p": 1}, 400),
    "seed beyond 64 bits": ({"seed": 2**63}, 400),
    "n of zero": ({"n": 0}, 400),
    "n over the limit": ({"n": 17}, 400),
    "10,000 stop strings": ({"stop": ["x"] * 10_000}, 400),
    "17 stop strings": ({"stop": [str(i) for i in range(17)]}, 400),
    "empty stop string": ({"stop": [""]}, 400),
    "endless stop string": ({"stop": "x" * 257}, 400),
    "stop of wrong type": ({"stop": [1]}, 400),
    "stop as object": ({"stop": {}}, 400),
    "many stop tokens": ({"stop_token_ids": list(range(65))}, 400),
    "stream as text": ({"stream": "yes"}, 400),
    "stream_options alone": ({"stream_options": {"include_usage": True}}, 400),
    "unknown stream option": ({"stream": True, "stream_options": {"usage": True}}, 400),
    "endless salt": ({"cache_salt": "x" * 257}, 400),
    "unknown field": ({"temprature": 1}, 400),
    "penalty": ({"presence_penalty": 0.5}, 400),
    "boolean for zero": ({"presence_penalty": False}, 400),
    "tools": ({"tools": [{"type": "function"}]}, 400),
    "json mode": ({"response_format": {"type": "json_object"}}, 400),
    "bias": ({"logit_bias": {"5": 1}}, 400),
    "best_of": ({"best_of": 2}, 400),
}
BAD_CHAT = {
    "no messages": ({"messages": []}, 400),
    "4097 messages": ({"messages": [{"role": "user", "content": "x"}] * 4097}, 400),
    "messages of wrong type": ({"messages": SECRET}, 400),
    "a message of wrong type": ({"messages": [SECRET]}, 400),
    "no content": ({"messages": [{"role": "user"}]}, 400),
    "null content": ({"messages": [{"role": "assistant", "content": None}]}, 400),
    "unknown role": ({"messages": [{"role": "wizard", "content": "x"}]}, 400),
    "tool role": ({"messages": [{"role": "tool", "content": "x", "tool_call_id": "1"}]}, 400),
    "image": (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        400,
    ),
    "refused by template": ({"messages": [{"role": "user", "content": "\x00refuse"}]}, 400),
    "over the context": ({"messages": [{"role": "user", "content": SECRET * 500}]}, 400),
    "top_logprobs alone": ({"top_logprobs": 2}, 400),
    "too many logprobs": ({"logprobs": True, "top_logprobs": 21}, 400),
    "logprobs as number": ({"logprobs": 3}, 400),
    "two different limits": ({"max_tokens": 3, "max_completion_tokens": 4}, 400),
}
BAD_PROMPTS = {
    "empty": "",
    "empty list": [],
    "empty among others": ["a", ""],
    "empty ids among others": [[1], []],
    "null": None,
    "number": 5,
    "object": {"a": 1},
    "mixed": ["a", 1],
    "fractions": [1.5],
    "booleans": [True],
    "deep": [[[1]]],
    "negative id": [-1],
    "id over the vocabulary": [257],
    "huge id": [10**30],
    "over the context": [1] * 4096,
    "long text over the context": SECRET * 500,
    "too many": ["a"] * 129,
}


@pytest.fixture(scope="module")
def checked():
    """Starlette's test client: the same application, without a socket."""
    from starlette.testclient import TestClient

    from pagoda.serve import ServeConfig, create_app

    engine = FakeEngine()
    client = TestClient(create_app(engine, ServeConfig()), base_url="http://127.0.0.1")
    yield client
    assert engine.live == 0
    engine.close()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize(("fields", "status"), BAD_COMMON.values(), ids=BAD_COMMON)
def test_bad_fields_are_refused_by_both_endpoints(checked, path, fields, status):
    """Wrong types, values out of range and what is not implemented, each with the field's name."""
    prompt = chat_with() if "chat" in path else {"prompt": SECRET}
    error = assert_openai_error(checked.post(path, json={**prompt, **fields}), status)
    assert error["param"].split("[")[0].split(".")[0] in {*fields, "stream_options"}
    assert SECRET not in json.dumps(error)


@pytest.mark.parametrize(("fields", "status"), BAD_CHAT.values(), ids=BAD_CHAT)
def test_bad_chats_are_refused(checked, fields, status):
    """Nothing that a chat template could choke on, or that we would have to guess."""
    response = checked.post("/v1/chat/completions", json=chat_with(**fields))
    error = assert_openai_error(response, status)
    assert SECRET not in json.dumps(error)


@pytest.mark.parametrize("prompt", BAD_PROMPTS.values(), ids=BAD_PROMPTS)
def test_bad_prompts_are_refused(checked, prompt):
    """Every shape but the four, empty ones, foreign ids, too long or too many."""
    response = checked.post("/v1/completions", json={"prompt": prompt, "max_tokens": 1})
    error = assert_openai_error(response, 400)
    assert error["param"] == "prompt"
    assert SECRET not in json.dumps(error)


BAD_BODIES = {
    "nothing": b"",
    "malformed": b'{"messages": [',
    "not UTF-8": b'{"prompt": "\xff\xfe"}',
    "lone surrogate": b'{"prompt": "\\ud800"}',
    "NaN": b'{"prompt": "x", "temperature": NaN}',
    "Infinity": b'{"prompt": "x", "temperature": Infinity}',
    "NaN in a field without effect": b'{"prompt": "x", "metadata": NaN}',
    "overflow": b'{"prompt": "x", "temperature": 1e999}',
    "overflow where anything goes": b'{"prompt": [1e999]}',
    "deep lists": b'{"prompt": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "deep objects": b'{"a":' * 100_000,
    "endless number": b'{"prompt": "x", "max_tokens": ' + b"9" * 100_000 + b"}",
    "a list": b"[]",
    "a string": b'"x"',
    "null": b"null",
    "not JSON": b"prompt=x",
    "a million wrong items": b'{"prompt": [' + b"{}," * 1_000_000 + b"{}]}",
    "a million wrong stops": b'{"prompt": "x", "stop": [' + b"{}," * 1_000_000 + b"{}]}",
}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/cache/reset"])
@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES)
def test_bad_bodies_are_refused(checked, path, body):
    """Whatever the bytes are, they are a 400 at most."""
    headers = {"content-type": "application/json"}
    response = checked.post(path, content=body, headers=headers)
    assert_openai_error(response, 400)
    assert len(response.content) < 1000


def test_another_content_type_is_refused(checked):
    """A form that a web page may send without asking does not reach the engine."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        response = checked.post(
            "/v1/completions", content=b'{"prompt":"x"}', headers={"content-type": kind}
        )
        assert_openai_error(response, 415, "unsupported_media_type")


def test_unknown_paths_and_methods_are_openai_errors(checked):
    """404 and 405 have the same shape as everything else, and 405 says what is allowed."""
    assert_openai_error(checked.get("/v1/nothing"), 404, "not_found")
    assert_openai_error(checked.get("/v1/models/"), 404)
    refused = checked.get("/v1/completions")
    assert_openai_error(refused, 405, "method_not_allowed")
    assert refused.headers["allow"] == "POST"


@pytest.mark.parametrize("name", sorted(OFF_VALUES))
def test_what_is_not_implemented_passes_only_when_off(name):
    """null and the off values pass; anything else is refused by name, never ignored."""
    for off in (None, *OFF_VALUES[name]):
        assert CompletionBody.model_validate({"prompt": "x", name: off}).prompt == "x"
    with pytest.raises(RequestError) as refusal:
        CompletionBody.model_validate({"prompt": "x", name: {"on": 1}})
    assert (refusal.value.param, refusal.value.code) == (name, "unsupported_parameter")


@pytest.mark.parametrize("name", sorted(HARMLESS))
def test_harmless_fields_are_tolerated(name):
    """Labels and hints that cannot change an answer do no harm."""
    assert ChatBody.model_validate(chat_with(**{name: "x"})).messages[0].content == SECRET


def test_an_unknown_fields_long_or_odd_name_is_not_repeated(checked):
    """An error message does not become a mirror for whatever was sent."""
    response = checked.post("/v1/completions", json={"prompt": "x", SECRET * 10: 1})
    assert SECRET not in assert_openai_error(response, 400, "unknown_parameter")["message"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(field=st.sampled_from(sorted({*ChatBody.model_fields, *OFF_VALUES})), value=json_values)
def test_no_value_of_any_field_raises_anything_but_a_refusal(field, value):
    """Any JSON in any field is understood or refused by one of the two expected errors."""
    try:
        body = ChatBody.model_validate(chat_with(**{field: value}))
    except (RequestError, ValidationError):
        return
    assert body.messages


def test_a_body_over_the_limit_is_refused_before_it_is_read(serve):
    """By its announced size, or when it turns out to be too long."""
    serving = serve(max_body_bytes=1000)
    announced = serving.complete("x" * 2000)
    assert_openai_error(announced, 413, "body_too_large")

    def chunks():
        yield from (b"x" * 300 for _ in range(10))

    unannounced = httpx.post(
        serving.url + "/v1/completions",
        content=chunks(),
        headers={"content-type": "application/json"},
    )
    assert_openai_error(unannounced, 413, "body_too_large")
    assert serving.complete("x").status_code == 200


def test_all_bodies_together_are_bounded(serve, eventually):
    """Large bodies that would add up beyond the limit are told to come back."""
    serving = serve(max_body_bytes=1000, max_buffered_bytes=1500)
    with serving.connect() as other:
        other.sendall(
            b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\n"
            b"content-type: application/json\r\ncontent-length: 1000\r\n\r\n" + b" " * 900
        )
        assert eventually(lambda: serving.traffic.buffered_bytes == 900)
        assert_openai_error(serving.complete("x" * 800), 429, "rate_limit_exceeded")
    assert eventually(lambda: serving.traffic.buffered_bytes == 0)
    assert serving.complete("x" * 800, max_tokens=1).status_code == 200


def test_too_many_waiting_sequences_are_told_to_come_back(serve):
    """Over max_waiting a request gets 429 and Retry-After; places return with first tokens."""
    engine = FakeEngine(token_s=0.2)
    serving = serve(engine, max_waiting=4)
    with serving.client().chat.completions.create(
        model="fake", messages=chat_with()["messages"], n=4, stream=True
    ) as stream:
        refused = serving.chat(max_tokens=1)
        assert_openai_error(refused, 429, "rate_limit_exceeded")
        assert refused.headers["retry-after"] == "1"
        next(iter(stream))
        assert serving.chat(max_tokens=1).status_code == 200


def test_an_unexpected_failure_is_a_500_without_details(serving, monkeypatch, caplog):
    """Neither the answer nor the log repeats an exception's message: it may hold a prompt."""

    def explode(request, sink):
        raise ZeroDivisionError(SECRET)

    monkeypatch.setattr(serving.engine, "submit", explode)
    with caplog.at_level(logging.DEBUG):
        response = serving.complete(SECRET)
    error = assert_openai_error(response, 500, "internal_error")
    assert error["type"] == "server_error"
    assert SECRET not in response.text
    assert SECRET not in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_prompts_and_keys_are_never_logged(serve, caplog):
    """Served, refused and malformed requests alike leave no words behind, at any level."""
    serving = serve(api_key="sk-private")
    with caplog.at_level(logging.DEBUG):
        for body in ({"prompt": SECRET}, {"prompt": [SECRET, 5]}, {"prompt": SECRET, "n": -1}):
            for key in ("sk-private", "sk-wrong"):
                headers = {"authorization": f"Bearer {key}"}
                serving.post(f"/v1/completions?q={SECRET}", body, headers=headers)
    records = [r for r in caplog.records if not r.name.startswith(("httpx", "httpcore"))]
    shown = "\n".join(record.getMessage() for record in records)
    assert SECRET not in shown
    assert "sk-" not in shown
