"""The official client against the server, unchanged."""

from __future__ import annotations

import json

import openai
import pytest

from pagoda.engine.api import Usage
from pagoda.serve.job import total_usage
from pagoda.testing.engine import FakeEngine

MESSAGES = [{"role": "user", "content": "hi 你好"}]
ECHOED = "user: hi 你好\n"


def test_models_can_be_listed_and_fetched(serving):
    """The one model is there under its name, and no other is."""
    client = serving.client()
    assert [model.id for model in client.models.list().data] == ["fake"]
    assert client.models.retrieve("fake").id == "fake"
    with pytest.raises(openai.NotFoundError) as refusal:
        client.models.retrieve("org/other")
    assert refusal.value.code == "model_not_found"


def test_a_model_may_be_served_under_another_name(serve):
    """The configured name, slashes included, is the one that clients use and see."""
    client = serve(model_name="org/model").client()
    assert client.models.retrieve("org/model").id == "org/model"
    answer = client.chat.completions.create(model="org/model", messages=MESSAGES)
    assert answer.model == "org/model"


def test_a_chat_is_answered_with_usage(serve):
    """Text, finish reason, counts and cached tokens arrive in OpenAI's fields."""
    client = serve(FakeEngine(cached=(16, 32))).client()
    answer = client.chat.completions.create(model="fake", messages=MESSAGES)
    assert answer.choices[0].message.content == ECHOED
    assert answer.choices[0].finish_reason == "stop"
    size = len(ECHOED.encode())
    assert answer.usage.prompt_tokens == size
    assert answer.usage.completion_tokens == size + 1
    assert answer.usage.total_tokens == 2 * size + 1
    assert answer.usage.prompt_tokens_details.cached_tokens == 48


def test_a_streamed_chat_says_the_same_as_a_whole_one(serving):
    """The deltas add up; the role comes with the first token; usage comes last if asked for."""
    chunks = list(
        serving.client().chat.completions.create(
            model="fake", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
        )
    )
    parts = [chunk.choices[0] for chunk in chunks[:-1]]
    assert "".join(part.delta.content or "" for part in parts) == ECHOED
    assert [part.delta.role for part in parts] == ["assistant"] + [None] * (len(parts) - 1)
    assert parts[0].delta.content
    assert [part.finish_reason for part in parts] == [None] * (len(parts) - 1) + ["stop"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == len(ECHOED.encode()) + 1
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert len({chunk.id for chunk in chunks}) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("prompt", "texts"),
    [
        ("ab", ["ab"]),
        (["ab", "cd"], ["ab", "cd"]),
        ([97, 98], ["ab"]),
        ([[97], [98, 99]], ["a", "bc"]),
    ],
    ids=["string", "strings", "ids", "lists of ids"],
)
def test_each_shape_of_prompt_is_completed(serving, prompt, texts, stream):
    """Strings and token ids, one or many, n of each: choices are numbered prompt by prompt."""
    answer = serving.client().completions.create(model="fake", prompt=prompt, n=2, stream=stream)
    got = [""] * (2 * len(texts))
    for part in answer if stream else [answer]:
        for choice in part.choices:
            got[choice.index] += choice.text
    assert got == [text for text in texts for _ in range(2)]


def test_usage_counts_a_prompt_once_and_every_choices_tokens(serve):
    """n choices of two prompts: prompts and cached tokens are not multiplied by n."""
    client = serve(FakeEngine(cached=(1, 0))).client()
    usage = client.completions.create(model="fake", prompt=["ab", "cde"], n=3, max_tokens=2).usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (5, 12)
    assert usage.prompt_tokens_details.cached_tokens == 2


def test_cached_tokens_are_those_of_the_choice_that_found_the_fewest():
    """What the second choice found because the first one computed it is no saving."""
    usages = [Usage(prompt_tokens=64, cached_device=cached) for cached in (48, 16, 0, 32)]
    total = total_usage(dict(enumerate(usages)), n=2)
    assert total["prompt_tokens"] == 128
    assert total["prompt_tokens_details"]["cached_tokens"] == 16 + 0


def test_chat_logprobs_carry_bytes_and_alternatives(serving):
    """A token that is half a character has the bytes it stands for."""
    answer = serving.client().chat.completions.create(
        model="fake", messages=MESSAGES, logprobs=True, top_logprobs=2
    )
    tokens = answer.choices[0].logprobs.content[:-1]
    assert bytes(byte for token in tokens for byte in token.bytes) == ECHOED.encode()
    assert all([len(token.top_logprobs) == 2 for token in tokens])
    assert tokens[0].top_logprobs[0].token == tokens[0].token == "u"


def test_streamed_logprobs_equal_whole_ones(serving):
    """Chunk by chunk, no token's log-probability is lost, even where its text is withheld."""
    ask = {"model": "fake", "messages": MESSAGES, "logprobs": True, "stop": ["x你"]}
    client = serving.client()
    whole = client.chat.completions.create(**ask).choices[0].logprobs.content
    streamed = [
        token
        for chunk in client.chat.completions.create(**ask, stream=True)
        for token in (chunk.choices[0].logprobs.content if chunk.choices[0].logprobs else [])
    ]
    assert streamed == whole


@pytest.mark.parametrize("stream", [False, True])
def test_completion_logprobs_have_the_older_shape(serving, stream):
    """Four parallel lists, with places in the text that go on across chunks."""
    answer = serving.client().completions.create(
        model="fake", prompt="abc", logprobs=2, max_tokens=3, stream=stream
    )
    parts = list(answer) if stream else [answer]
    found = [part.choices[0].logprobs for part in parts]
    assert [token for one in found for token in one.tokens] == ["a", "b", "c"]
    assert [place for one in found for place in one.text_offset] == [0, 1, 2]
    assert [value for one in found for value in one.token_logprobs] == [-0.5] * 3
    assert found[0].top_logprobs[0] == {"a": -0.5, "b": -1.0}


def test_logprobs_without_alternatives_are_the_chosen_ones_only(serving):
    """logprobs=0 and logprobs=true alone report no alternatives, but are not off."""
    client = serving.client()
    older = client.completions.create(model="fake", prompt="a", logprobs=0, max_tokens=1)
    assert older.choices[0].logprobs.top_logprobs == [None]
    chat = client.chat.completions.create(
        model="fake", messages=MESSAGES, logprobs=True, max_tokens=1
    )
    assert chat.choices[0].logprobs.content[0].top_logprobs == []


def test_sampling_fields_reach_the_engine(serving):
    """What a client asks for is what the engine is told."""
    serving.client().chat.completions.create(
        model="fake",
        messages=MESSAGES,
        temperature=0.5,
        top_p=0.25,
        max_completion_tokens=3,
        seed=7,
        stop="zz",
        extra_body={
            "top_k": 4,
            "min_p": 0.125,
            "ignore_eos": True,
            "stop_token_ids": [9],
            "cache_salt": "tenant",
        },
    )
    request = serving.engine.submitted[0]
    how = request.sampling
    assert (how.temperature, how.top_p, how.top_k, how.min_p) == (0.5, 0.25, 4, 0.125)
    assert (how.max_tokens, how.seed, how.stop, how.stop_token_ids) == (3, 7, ("zz",), (9,))
    assert how.ignore_eos
    assert how.logprobs is None
    assert request.salt == "tenant"


def test_defaults_are_openais(serving):
    """null is the default; a chat may fill the context, a completion has 16 tokens."""
    serving.chat(temperature=None, top_p=None, n=None, stop=None, seed=None, tools=None)
    serving.complete()
    chat, completion = (request.sampling for request in serving.engine.submitted)
    assert (chat.temperature, chat.top_p, chat.top_k, chat.min_p) == (1.0, 1.0, 0, 0.0)
    assert chat.max_tokens == 4096 - len(b"user: hi\n")
    assert completion.max_tokens == 16


def test_seeds_are_given_or_drawn_and_differ_between_choices(serving):
    """The first choice has the request's own seed; without one, each request gets a fresh one."""
    for seed in (5, 5, None, None):
        serving.chat(seed=seed, n=3)
    seeds = [request.sampling.seed for request in serving.engine.submitted]
    first, again, drawn, other = (seeds[at : at + 3] for at in range(0, 12, 3))
    assert first == again
    assert first[0] == 5
    assert all(len(set(group)) == 3 for group in (first, drawn, other))
    assert not set(drawn) & set(other)
    serving.complete(["ab", "cd"], seed=5, n=2)
    assert [r.sampling.seed for r in serving.engine.submitted[12:]] == first[:2] * 2


def test_choices_are_interleaved_in_a_stream(serve):
    """With n=2 neither choice waits for the other's end."""
    client = serve(FakeEngine(token_s=0.002)).client()
    chunks = client.chat.completions.create(model="fake", messages=MESSAGES, n=2, stream=True)
    order = [chunk.choices[0].index for chunk in chunks]
    assert order.index(1) < len(order) - 1 - order[::-1].index(0)
    assert order.index(0) < len(order) - 1 - order[::-1].index(1)


def test_text_parts_roles_and_names_reach_the_template(serving):
    """Parts are joined by line feeds, developer is system, assistants' empty fields pass."""
    sent = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": "c", "refusal": None, "tool_calls": None},
        {"role": "user", "content": "d", "name": "eve"},
    ]
    answer = serving.client().chat.completions.create(model="fake", messages=sent)
    assert (
        answer.choices[0].message.content == "system: be brief\nuser: a\nb\nassistant: c\nuser: d\n"
    )


@pytest.mark.parametrize("stream", [False, True])
def test_stop_strings_are_cut_off(serving, stream):
    """The stop string is not part of the answer, and the reason is `stop`."""
    answer = serving.client().completions.create(
        model="fake", prompt="one two three", stop=["tw", "zz"], stream=stream
    )
    choices = [part.choices[0] for part in (answer if stream else [answer])]
    assert "".join(choice.text for choice in choices) == "one "
    assert choices[-1].finish_reason == "stop"


def test_an_engines_failure_is_a_500_or_an_error_event(serve):
    """The engine's own safe message reaches the client, before or in the middle of a stream."""
    client = serve(FakeEngine(fail_after=3)).client()
    with pytest.raises(openai.InternalServerError, match="failed on purpose") as failure:
        client.chat.completions.create(model="fake", messages=MESSAGES)
    assert failure.value.code == "engine_failed"
    stream = client.chat.completions.create(model="fake", messages=MESSAGES, stream=True)
    seen: list[str] = []
    with pytest.raises(openai.APIError, match="failed on purpose"):
        seen.extend(chunk.choices[0].delta.content for chunk in stream)
    assert seen == ["u", "s", "e"]


def test_one_failing_choice_ends_the_others(serve):
    """The engine is not left working for an answer that nobody gets."""
    serving = serve(FakeEngine(fail_after=4, script=lambda request: "long" * 100))
    assert serving.chat(n=4).status_code == 500
    assert serving.engine.live == 0 or len(serving.engine.cancelled) > 0


def test_a_closed_engine_is_a_503(serving):
    """A submit that the engine refuses for closing is not an internal error."""
    serving.engine.die()
    refused = serving.chat()
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "unavailable")


def test_event_lines_are_ascii_and_end_with_done(serving):
    """U+2028 and U+0085 in an answer cannot split an event for a naive line reader."""
    text = serving.complete("a\u2028b\u0085c", stream=True).content
    assert text.isascii()
    events = text.decode().split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    said = "".join(json.loads(e.removeprefix("data: "))["choices"][0]["text"] for e in events[:-2])
    assert said == "a\u2028b\u0085c"
