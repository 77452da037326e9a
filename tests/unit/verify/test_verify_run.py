"""`pagoda verify` against servers that are right, wrong, or tell too little."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from canary_server import Behaviour, CanaryServer, canary_server

from pagoda.core.errors import (
    ModelUnknown,
    ServerError,
    ServerForeign,
    ServerRefused,
    ServerTimeout,
    ServerUnreachable,
    SettingsError,
)
from pagoda.verify import Client, Plan, Reason, Report, Verdict, Verification
from pagoda.verify.ask import Prompt, settle
from pagoda.verify.crowd import Crowd
from pagoda.verify.judge import Trial

LENGTHS = (47, 48, 49, 65)


def verify(url: str, *, timeout_s: float = 10.0, key: str = "", **plan: object) -> Report:
    """One run that never sleeps."""
    client = Client(url, api_key=key, timeout_s=timeout_s)
    try:
        chosen = Plan(**{"lengths": LENGTHS, **plan})
        run = Verification(client, chosen, rng=random.Random(3), sleep=lambda seconds: None)
        return run.run()
    finally:
        client.close()


def judged(behaviour: Behaviour, **plan: object) -> Report:
    """One run against a server that behaves so."""
    with canary_server(behaviour) as server:
        return verify(server.url, **plan)


@pytest.mark.parametrize(
    "behaviour",
    [
        Behaviour(),
        Behaviour(metrics=False),
        Behaviour(chat=True),
        Behaviour(salts="ignored"),
        Behaviour(salts="refused"),
        Behaviour(salts="refused", chat=True),
        Behaviour(reports="nothing"),
        Behaviour(reset="/cache/reset"),
        Behaviour(reset="/flush_cache", metrics=False),
        Behaviour(shape=0.05),
        Behaviour(noise=0.02),
        Behaviour(stores_after=1),
        Behaviour(busy=3),
        Behaviour(busy=3, reset="/flush_cache"),
        Behaviour(tiers=True),
        Behaviour(reset="", device_tokens=320),
    ],
    ids=str,
)
def test_a_server_that_restores_what_it_computed_is_equal(behaviour: Behaviour) -> None:
    """Whatever of cached tokens, metrics, salts and endpoints it has, as long as something shows
    that blocks were restored; and prompts of every length are proven, alone and among others."""
    report = judged(behaviour, limit=400)
    assert (report.verdict, report.reason) == (Verdict.EQUAL, None), report.as_text()
    assert {finding.concurrent for finding in report.findings} == {False, True}
    ways = 2 if behaviour.tiers else 1
    assert [finding.tokens for finding in report.findings] == [*LENGTHS, *LENGTHS] * ways
    assert report.requests <= 400


@pytest.mark.parametrize(
    "behaviour",
    [
        Behaviour(wrong=0.01),
        Behaviour(wrong=0.01, metrics=False),
        Behaviour(wrong=0.01, chat=True),
        Behaviour(wrong=0.01, salts="refused"),
        Behaviour(wrong=0.01, shape=0.05),
        Behaviour(below_wrong=0.01, tiers=True),
        Behaviour(wrong=0.3, noise=0.02),
        Behaviour(wrong=2.0, lower_block=32, shape=0.05),
        Behaviour(wrong=0.01, reset="", device_tokens=320),
        Behaviour(wrong_token=True),
        Behaviour(wrong_token=True, logprobs="absent"),
        Behaviour(wrong_token=True, logprobs="refused"),
    ],
    ids=str,
)
def test_a_server_that_restores_wrong_bytes_differs(behaviour: Behaviour) -> None:
    """However small the difference, as long as repeats are exact; a run that is a little noisy
    needs a larger one, and one whose restored prefix is of another length a gross one."""
    report = judged(behaviour, limit=400)
    assert (report.verdict, report.reason) == (Verdict.DIFFERS, Reason.RESTORED), report.as_text()
    wrong = [finding for finding in report.findings if finding.verdict is Verdict.DIFFERS]
    assert {finding.concurrent for finding in wrong} >= {False}
    if behaviour.wrong_token:
        assert {finding.first_token for finding in wrong} != {None}
    else:
        assert all((finding.difference or 0) > (finding.floor or 0) for finding in wrong)


def test_an_error_among_others_is_found() -> None:
    """Each prompt alone was right; when all were restored at the same time, each was wrong."""
    together = 3  # resets: to try the endpoint, for each alone, for all
    report = judged(Behaviour(wrong=0.01, wrong_from=together))
    assert {f.verdict for f in report.findings if not f.concurrent} == {Verdict.EQUAL}
    assert {f.verdict for f in report.findings if f.concurrent} == {Verdict.DIFFERS}
    assert report.verdict is Verdict.DIFFERS


def test_batches_that_move_answers_among_others_are_no_error() -> None:
    """The first crowd showed nothing of it, the one that restored did: more crowds, of prompts that
    were never restored, show that the device cache alone answers so."""
    together = 3
    report = judged(Behaviour(restless=0.1, wrong_from=together))
    assert report.verdict is Verdict.EQUAL, report.as_text()
    assert max(f.floor or 0 for f in report.findings if f.concurrent) >= 0.1
    assert {f.floor for f in report.findings if not f.concurrent} == {0.0}
    assert report.requests <= 250
    both = judged(Behaviour(restless=0.1, wrong=2.0, wrong_from=together))
    assert both.verdict is Verdict.DIFFERS


@pytest.mark.parametrize("requests", range(12))
def test_more_crowds_are_not_sent_than_the_limit_leaves(requests: int) -> None:
    """Two canaries: they are computed, and then answered together while there are two left."""
    with canary_server(Behaviour()) as server:
        asker = settle(
            Client(server.url, api_key="", timeout_s=10.0),
            model="tiny",
            prompt=Prompt("one two", "a"),
        )
        before = len(server.bodies)
        prompts = [Prompt("three four", "b"), Prompt("five six", "b")]
        trials = [Trial(2, device=[asker.ask(prompt)]) for prompt in prompts]
        rounds = Crowd(asker, prompts, trials).more(
            requests=requests, rng=random.Random(1), sleep=lambda _: None
        )
        asked = len(server.bodies)
        count = len(list(rounds))
        assert asked == before + 2
        assert len(server.bodies) - asked == (2 + 2 * count if count else 0) <= requests
        assert count == max(0, requests // 2 - 1)


def test_a_server_that_dies_after_a_difference_still_differs() -> None:
    """What was found before is not lost with the connection."""
    with canary_server(Behaviour(wrong=0.01)) as server:
        verify(server.url, lengths=(48,))
        last = len(server.bodies)
    with canary_server(Behaviour(wrong=0.01, hang_from=last)) as server:
        report = verify(server.url, lengths=(48,), timeout_s=3.0)
    assert report.verdict is Verdict.DIFFERS
    assert {finding.concurrent for finding in report.findings} == {False}


def test_a_device_cache_that_is_wrong_differs() -> None:
    """Neither repeats nor restored answers can tell it; the computed ones do."""
    report = judged(Behaviour(device_wrong=3.0))
    assert (report.verdict, report.reason) == (Verdict.DIFFERS, Reason.DEVICE)


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (Behaviour(caches=False), Reason.NOT_CACHED),
        (Behaviour(lower=False, logprobs="absent"), Reason.NO_LOGPROBS),
        (Behaviour(lower=False, noise=2.0), Reason.NOT_DETERMINISTIC),
        (Behaviour(lower=False, reports="nothing"), Reason.NOT_RESTORED),
        (Behaviour(logprobs="absent"), Reason.NO_LOGPROBS),
        (Behaviour(logprobs="refused"), Reason.NO_LOGPROBS),
        (Behaviour(noise=2.0), Reason.NOT_DETERMINISTIC),
        (Behaviour(noise=2.0, wrong=5.0), Reason.NOT_DETERMINISTIC),
        (Behaviour(reports="always"), Reason.COLD_CLAIM),
        (Behaviour(reports="on repeats", lower=False), Reason.CONTRADICTION),
        (Behaviour(reports="nothing", metrics=False), Reason.NO_EVIDENCE),
        (Behaviour(reset="", metrics=False), Reason.NO_EVIDENCE),
        (Behaviour(reset=""), Reason.NOT_PUSHED_OUT),
        (Behaviour(empty=True), Reason.EMPTY),
    ],
    ids=str,
)
def test_what_proves_nothing_is_not_called_equal(behaviour: Behaviour, reason: Reason) -> None:
    """Each way to learn too little has its own reason, and never a verdict."""
    report = judged(behaviour)
    assert (report.verdict, report.reason) == (Verdict.UNKNOWN, reason), report.as_text()


def test_a_small_difference_behind_another_prefix_is_left_open() -> None:
    """The device held 48 tokens, below it lay 32: sums of another order may explain 0.4."""
    report = judged(Behaviour(lower_block=32, wrong=0.3, shape=0.05), lengths=(49,))
    assert (report.verdict, report.reason) == (Verdict.UNKNOWN, Reason.OTHER_SHAPE)


def test_prompts_shorter_than_a_block_do_not_spoil_the_proof() -> None:
    """Nothing of them is ever stored; the longer ones are proven."""
    report = judged(Behaviour(lower_block=48), lengths=(40, 48, 49, 100))
    by_length = {f.tokens: f.reason for f in report.findings if not f.concurrent}
    assert by_length == {40: Reason.DEVICE_ONLY, 48: Reason.DEVICE_ONLY, 49: None, 100: None}
    assert (report.verdict, report.reason) == (Verdict.EQUAL, None)
    assert report.restored_tokens() == 2 * (48 + 96)


@pytest.mark.parametrize(
    "behaviour",
    [
        Behaviour(lower=False),
        Behaviour(lower=False, metrics=False),
        Behaviour(lower=False, shape=0.05),
        Behaviour(lower=False, tiers=True),
    ],
    ids=str,
)
def test_a_device_cache_alone_is_proven_and_called_so(behaviour: Behaviour) -> None:
    """Nothing lies below it, or what does has given nothing back: equal, with that reason, and
    no restored token; cannot tell for whoever needs more."""
    report = judged(behaviour)
    assert (report.verdict, report.reason) == (Verdict.EQUAL, Reason.DEVICE_ONLY), report.as_text()
    assert report.restored_tokens() == 0
    report = judged(behaviour, need_restored=True)
    assert (report.verdict, report.reason) == (Verdict.UNKNOWN, Reason.NOT_RESTORED)


def test_what_is_said_to_be_computed_anew_is_compared_as_well() -> None:
    """A layer that restores other bytes and reports none of them is not called equal."""
    with canary_server(Behaviour(wrong=0.01, reports="truth", metrics=False)) as server:
        answer = server.answer

        def lying(body: dict[str, Any], *, chat: bool) -> dict[str, Any]:
            before = server.restored_tokens
            told = answer(body, chat=chat)
            if server.restored_tokens > before:
                told["usage"]["prompt_tokens_details"]["cached_tokens"] = 0
            return told

        server.answer = lying  # type: ignore[method-assign]
        report = verify(server.url)
    assert (report.verdict, report.reason) == (Verdict.DIFFERS, Reason.ANEW), report.as_text()


def test_a_connector_of_which_nothing_is_known_is_emptied_on_request_only() -> None:
    """Another's connector may lose what it stored; tiers that vLLM's metrics tell of do not."""
    for behaviour, deep, emptied in (
        (Behaviour(), False, False),
        (Behaviour(), True, True),
        (Behaviour(tiers=True), False, True),
        (Behaviour(tiers=True, reset="/flush_cache"), True, False),
    ):
        with canary_server(behaviour) as server:
            verify(server.url, lengths=(49,), deep=deep)
            assert any("reset_external" in path for path in server.resets) is emptied


def test_sglang_is_asked_where_cached_tokens_lay() -> None:
    """Its usage has their number alone: how many were restored stands in a part of its own, and
    proves it without metrics. No other server is sent that field."""
    with canary_server(Behaviour(reset="/flush_cache", metrics=False)) as server:
        report = verify(server.url, lengths=(49, 65))
        assert server.bodies[-1]["return_cached_tokens_details"] is True
    assert [f.counted_by for f in report.findings] == [("usage",)] * 4
    assert [f.restored for f in report.findings if not f.concurrent] == [48, 64]
    with canary_server(Behaviour()) as server:
        verify(server.url, lengths=(49,))
        assert all("return_cached_tokens_details" not in body for body in server.bodies)


def test_an_endpoint_that_wants_another_key_is_told_and_left_alone() -> None:
    """A server whose administrators have a key of their own is flooded without it, else reset."""
    behaviour = Behaviour(reset="/flush_cache", reset_key="admin", device_tokens=320)
    for key, way in (("", "flooding"), ("admin", "/flush_cache")):
        told: list[str] = []
        with canary_server(behaviour) as server:
            client = Client(server.url, api_key=key, timeout_s=10.0)
            plan = Plan(lengths=(49,), limit=300)
            run = Verification(
                client, plan, rng=random.Random(3), tell=told.append, sleep=lambda s: None
            )
            report = run.run()
            client.close()
        assert (report.verdict, report.pushed_out) == (Verdict.EQUAL, (way,))
        assert any("wants another key" in line for line in told) is (not key)


def test_a_server_that_stays_busy_is_a_typed_error() -> None:
    """It says that it did not empty its cache: nothing that it then answers is called restored."""
    for reset, told in (("/reset_prefix_cache", "did not succeed"), ("/flush_cache", "400")):
        with (
            canary_server(Behaviour(busy=10**6, reset=reset)) as server,
            pytest.raises(ServerRefused, match=told),
        ):
            verify(server.url)


def test_a_pagoda_server_is_left_as_it_was() -> None:
    """Every salt that was used is cleared there, nothing on servers of others; after a
    difference all stays, to be looked into."""
    with canary_server(Behaviour(reset="/cache/reset")) as server:
        verify(server.url)
        assert set(server.cleared) == set(salts_of(server))
    for behaviour in (Behaviour(), Behaviour(reset="/cache/reset", wrong=0.5)):
        with canary_server(behaviour) as server:
            verify(server.url)
            assert server.cleared == []


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [
        (Behaviour(hang_from=1), ServerTimeout),
        (Behaviour(hang_from=40), ServerTimeout),
        (Behaviour(garbage=b"<html>"), ServerForeign),
        (Behaviour(garbage=b"[" * 100_000), ServerForeign),
        (Behaviour(garbage=b'{"choices": 3}'), ServerForeign),
        (Behaviour(garbage=b'{"choices": [{"text": 1}], "usage": {"prompt_tokens": 9}}'),
         ServerForeign),
        (Behaviour(models={"a": 1}), ServerForeign),
        (Behaviour(models=[]), ServerForeign),
        (Behaviour(status=500), ServerRefused),
        (Behaviour(status=404), ServerRefused),
        (Behaviour(key="other"), ServerRefused),
    ],
    ids=lambda value: str(value)[:80],
)  # fmt: skip
def test_a_server_that_cannot_be_used_is_a_typed_error(
    behaviour: Behaviour, error: type[ServerError]
) -> None:
    """One that hangs at once or later, sends garbage, refuses."""
    timeout_s = 0.5 if error is ServerTimeout else 30.0  # a busy machine makes no other one late
    with canary_server(behaviour) as server, pytest.raises(error) as told:
        verify(server.url, timeout_s=timeout_s, key="secret-key")
    assert told.value.url == server.url
    assert "secret-key" not in str(told.value)


def test_an_answer_without_an_end_is_cut_off() -> None:
    """Its memory is bounded, whatever the server sends."""
    with (
        canary_server(Behaviour(garbage=b"x" * (9 << 20))) as server,
        pytest.raises(ServerForeign, match="longer than 8 MiB"),
    ):
        verify(server.url)


def test_nobody_there_and_no_such_model() -> None:
    """A closed port, and a name that is not served."""
    with canary_server(Behaviour()) as server:
        with pytest.raises(ModelUnknown, match="serves tiny"):
            verify(server.url, model="huge")
        url = server.url
    with pytest.raises(ServerUnreachable):
        verify(url)


def test_a_plan_that_needs_more_than_the_limit_is_refused() -> None:
    """Before anything is sent."""
    with canary_server(Behaviour()) as server:
        with pytest.raises(SettingsError, match="may take"):
            verify(server.url, limit=20)
        with pytest.raises(SettingsError, match="at least"):
            verify(server.url, lengths=(5,))
        assert server.bodies == []


def test_flooding_stays_within_the_limit_and_calls_no_endpoint() -> None:
    """Asked to flood, a server's endpoint is left alone."""
    with canary_server(Behaviour(device_tokens=320)) as server:
        report = verify(server.url, limit=300, flood=True)
        assert server.resets == []
        assert report.requests == len(server.bodies) <= 300
        assert (report.verdict, report.pushed_out) == (Verdict.EQUAL, ("flooding",))


def salts_of(server: CanaryServer) -> Sequence[str]:
    """Of every request."""
    return [body["cache_salt"] for body in server.bodies]


def test_no_two_runs_share_a_salt_and_nothing_but_canaries_is_sent() -> None:
    """Salts are drawn; a body has no field that could switch caching off."""
    with canary_server(Behaviour()) as server:
        client = Client(server.url, api_key="", timeout_s=10.0)
        for seed in (1, 2):
            plan = Plan(lengths=(48,))
            Verification(client, plan, rng=random.Random(seed), sleep=lambda s: None).run()
        client.close()
        first, second = server.bodies[0], server.bodies[-1]
        assert first["cache_salt"] != second["cache_salt"]
        assert len(set(salts_of(server))) > 6
        assert {name for body in server.bodies for name in body} == {
            "model", "prompt", "max_tokens", "temperature", "seed", "logprobs", "cache_salt",
        }  # fmt: skip
