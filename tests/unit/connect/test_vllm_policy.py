"""PagodaPolicy under vLLM's calls: its decisions are those of core/policy, told what happened as
plainly as can be (support/vllm_policy_model.py)."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import vllm_policy_fakes as fakes
from hypothesis import example, given, settings
from hypothesis import strategies as st
from vllm_policy_model import NaiveHost

from pagoda.connect.vllm.chains import Chains
from pagoda.connect.vllm.hosted import HostedChunks
from pagoda.core.errors import SettingsError
from pagoda.core.identity import Key
from pagoda.core.pins import PinWish
from pagoda.core.policy import REGISTRY, Ending, Hint, Lru, Request

_CHUNKS = 16
driver = fakes.from_engines("policy_driver")
recorder = fakes.from_engines("policy_recorder")
PagodaPolicy = fakes.pagoda_policy()


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No file of settings lies about."""
    monkeypatch.chdir(tmp_path)


def _with_policy(name: str) -> Any:
    """A policy whose time moves by a millisecond whenever it is looked at: what a seed brings
    about, pins that expire too, is the same on a busy machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PAGODA_HOST_POLICY", name)
        policy = PagodaPolicy(_CHUNKS)
    wall_ms = itertools.count(10**12)
    policy.hosted.clock = lambda: next(wall_ms) / 1000
    policy.pins._wall_ms = lambda: next(wall_ms)
    return policy


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("name", REGISTRY)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32))
@example(seed=12285)  # a pin that is over in the middle of another's coming
def test_every_decision_is_the_policys_own(name: str, groups: int, seed: int) -> None:
    """Whatever vLLM asks: each eviction is what the policy names that was told of the same
    requests, chunks, leases and pins; and the two never lose each other."""
    policy = _with_policy(name)
    naive = NaiveHost()
    recorder.listen(policy, naive.take)
    manager = fakes.Manager(_CHUNKS, policy)

    def check() -> None:
        policy.hosted.check_invariants()
        policy.pins.check_invariants()
        naive.settle()
        assert naive.policy.tracked() == set(naive.here.values())

    driver.Traffic(manager, fakes.ReqContext, seed=seed, groups=groups).run(250, check)


def test_the_traffic_is_one_that_tells() -> None:
    """Evictions, refusals, pinned chunks that stay and some that must go: all of it happens."""
    policy = _with_policy("heat")
    naive = NaiveHost()
    recorder.listen(policy, naive.take)
    traffic = driver.Traffic(fakes.Manager(_CHUNKS, policy), fakes.ReqContext, seed=5)
    pinned: list[int] = []
    traffic.run(4000, lambda: pinned.append(policy.hosted.pinned.count()))
    assert naive.evictions > 200
    assert traffic.refused > 0
    assert max(pinned) > 4
    assert 0 < naive.pinned_evicted < len(naive.evicted) / 10, "pinned chunks go last"


class Hosted:
    """A policy behind vLLM's manager, and requests of one group."""

    def __init__(self, policy: Any, chunks: int) -> None:
        self.policy = policy
        self.manager = fakes.Manager(chunks, policy)
        self._number = 0

    def ask(self, names: list[bytes], params: dict[str, Any] | None = None) -> bool:
        """A request from its look-up to its end; False when nothing was stored."""
        self._number += 1
        context = fakes.ReqContext(str(self._number), params)
        for at, name in enumerate(names):
            context.set_offload_key_position(name, 16 * (at + 1))
        output = self.manager.prepare_store(names, context)
        if output is not None:
            self.manager.complete_store(output.keys_to_store, context, True)
        self.manager.on_request_finished(context)
        return output is not None

    def there(self, names: list[bytes]) -> list[bool]:
        """Which chunks are in host memory."""
        return [self.policy.get(name) is not None for name in names]


def chain(first: int, count: int) -> list[bytes]:
    """Names of a prompt of its own."""
    return [bytes([first, at]) * 16 + bytes(4) for at in range(count)]


class Listening(Lru):
    """A policy that notes what it is told of requests."""

    def __init__(self, slots: int) -> None:
        super().__init__(slots)
        self.told: list[Request | Ending] = []

    def begin(self, request: Request) -> None:
        self.told.append(request)

    def end(self, request: Request, ending: Ending) -> None:
        assert request in self.told, "nothing ends that has not begun"
        self.told.append(ending)


def test_a_policy_hears_of_a_request_with_its_whole_prompt_and_then_of_its_answer() -> None:
    """Before its first chunk comes, though vLLM offers chunk by chunk; and with what it says of
    its session. Another time, when nothing is lacking, it hears of it at the end."""
    hosted = HostedChunks(16, Listening, clock=lambda: 7.0)
    ends = {Key(name): 16 * (at + 1) for at, name in enumerate(chain(1, 4))}
    prompt = list(ends)
    visit = hosted.visit(Chains(ends), Hint.TOOL)
    for at, name in enumerate(prompt):
        hosted.lacks(visit, [name])
        hosted.add(name, at)
    answer = [Key(name) for name in chain(2, 2)]
    ends.update({answer[0]: 80, answer[1]: 96})
    hosted.lacks(visit, answer[:1])
    hosted.add(answer[0], 9)
    assert hosted.over(visit, [[*prompt, answer[0]]]) == prompt
    again = hosted.visit(Chains(dict(ends)))
    assert hosted.over(again, [prompt]) == prompt
    policy = hosted._policy
    assert isinstance(policy, Listening)
    [came, over, back, gone] = policy.told
    assert isinstance(came, Request)
    assert (came.keys, came.tokens, came.hint) == (prompt, 64, Hint.TOOL)
    assert isinstance(over, Ending)
    assert (over.keys, over.output_tokens) == ([*prompt, answer[0]], 16)
    assert (back.keys, gone.keys) == (prompt, prompt)
    assert {one.at_s for one in policy.told} == {7.0}


def test_nothing_is_kept_of_requests_that_are_over() -> None:
    """Whoever runs for months does not grow: no table has a request that ended."""
    policy = _with_policy("heat")
    traffic = driver.Traffic(fakes.Manager(_CHUNKS, policy), fakes.ReqContext, seed=9)
    traffic.run(600, lambda: None)
    traffic.drain()
    assert not policy.hosted._awaited_by
    assert not policy.hosted._policy._open


PROMPT = chain(1, 4)
PIN = {"pagoda_pin": {"owner": "search"}}


def _press(host: Hosted, first: int = 100) -> None:
    """Twenty prompts, each of which comes once: more than there is room for."""
    for number in range(first, first + 20):
        host.ask(chain(number, 4))


def test_a_pinned_prompt_outlives_pressure_and_an_unpinned_one_does_not() -> None:
    """Until its owner unpins it."""
    host = Hosted(PagodaPolicy(16), 16)
    host.ask(PROMPT, PIN)
    host.ask(chain(2, 4))
    _press(host)
    assert all(host.there(PROMPT))
    assert not any(host.there(chain(2, 4)))
    host.ask(chain(3, 1), {"pagoda_unpin": "search"})
    _press(host, 140)
    assert not any(host.there(PROMPT))


def test_a_pin_ends_by_itself() -> None:
    """Without anybody's asking, though nothing but evictions go on."""
    host, now_ms = Hosted(PagodaPolicy(16), 16), 0
    host.policy.pins._wall_ms = lambda: now_ms
    host.ask(PROMPT, {"pagoda_pin": {"owner": "search", "expires_s": 60.0}})
    now_ms = 59_999
    _press(host)
    assert all(host.there(PROMPT))
    now_ms = 60_000
    _press(host, 140)
    assert not any(host.there(PROMPT))


def test_a_pin_is_judged_at_one_moment() -> None:
    """What is over when it comes, and when it ends itself, are told of the same look at the time:
    a pin that is over by then leaves its budget to it."""
    policy = PagodaPolicy(16)
    looks = itertools.count(0, 1000)
    policy.pins._wall_ms = lambda: next(looks)
    names = [Key(name) for name in chain(1, 8)]
    policy.pins.add(names[:4], PinWish(owner="a", expires_s=1.0))
    pin = policy.pins.add(names[4:], PinWish(owner="a", expires_s=1.0))
    assert pin.until_ms == 2000
    assert policy.hosted.pinned.keys == set(names[4:])
    policy.pins.check_invariants()


def test_a_renewed_pin_holds_for_what_it_names_now() -> None:
    """A chunk that it named before, and that no other pin names, goes with the next pressure."""
    policy = PagodaPolicy(16)
    names = [Key(name) for name in chain(1, 3)]
    policy.pins.add(names, PinWish(owner="a"))
    policy.pins.add(names[1:], PinWish(owner="a"))
    policy.pins.check_invariants()
    assert policy.hosted.pinned.keys == set(names[1:])
    assert policy.pins.remove("a") == 1
    assert not policy.hosted.pinned.keys


def test_pins_never_stand_in_the_way_and_hold_for_what_comes_back() -> None:
    """When all else is being read, pinned chunks go; once they are back, they stay again."""
    host = Hosted(PagodaPolicy(8), 8)
    host.ask(chain(1, 2), PIN)
    host.ask(chain(2, 6))
    reader = fakes.ReqContext("reader")
    host.manager.prepare_load(chain(2, 6), reader)
    assert host.ask(chain(3, 2))
    assert not any(host.there(chain(1, 2)))
    assert all(host.there(chain(2, 6)))
    host.manager.complete_load(chain(2, 6), reader)
    host.ask(chain(1, 2))
    _press(host)
    assert all(host.there(chain(1, 2)))


def test_what_exceeds_the_budget_is_not_pinned(caplog: pytest.LogCaptureFixture) -> None:
    """The request is answered all the same, and the log says what to raise."""
    host = Hosted(PagodaPolicy(16), 16)
    with caplog.at_level(logging.WARNING, "pagoda.connect"):
        host.ask(chain(1, 6), PIN)  # of an owner's 4
    assert host.policy.hosted.pinned.count() == 0
    assert "pins.owner" in caplog.text


def test_clearing_ends_pins_and_forgets_what_was_learned() -> None:
    """A reset leaves nothing: neither chunks, nor pins, nor requests on their way."""
    host = Hosted(PagodaPolicy(16), 16)
    running = fakes.ReqContext("running")
    for at, name in enumerate(chain(7, 4)):
        running.set_offload_key_position(name, 16 * (at + 1))
    host.ask(PROMPT, PIN)
    host.manager.prepare_store(chain(7, 2), running)
    host.manager.reset_cache()
    assert host.policy.hosted.pinned.count() == 0
    host.manager.prepare_store(chain(7, 4), running)  # a request outlives it, and is heard of anew
    host.manager.on_request_finished(running)
    host.policy.hosted.check_invariants()
    assert host.there(chain(7, 4)) == [True] * 4
    assert not any(host.there(PROMPT))


@pytest.mark.parametrize(
    "params",
    [
        {"pagoda_session": "maybe"},
        {"pagoda_pin": "search"},
        {"pagoda_pin": {"owner": ""}},
        {"pagoda_pin": {"owner": "x", "expires_s": -1}},
        {"pagoda_pin": {"owner": "x", "for": 3}},
        {"pagoda_unpin": 3},
        {"pagoda_pins": {"owner": "x"}},
    ],
)
def test_what_cannot_be_is_told_once_and_passed_over(
    params: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """A request's parameters never stop the engine."""
    host = Hosted(PagodaPolicy(16), 16)
    with caplog.at_level(logging.WARNING, "pagoda.connect"):
        assert host.ask(PROMPT, params)
    assert len(caplog.records) == 1
    assert f"kv_transfer_params are not understood: {next(iter(params))}" in caplog.text
    assert host.policy.hosted.pinned.count() == 0


_DEEP: list[Any] = []
for _ in range(100_000):
    _DEEP = [_DEEP]  # no interpreter can print it


@pytest.mark.parametrize(
    "params",
    [
        "pagoda_pin",
        7,
        [["pagoda_pin", {"owner": "x"}]],
        {"pagoda_session": _DEEP},
        {"pagoda_pin": {"owner": "x", "expires_s": 10**400}},
        {"pagoda_pin": {"owner": "x", "expires_s": 1e308}},
        {"pagoda_pin": {"owner": "\ud800"}},
        {"pagoda_pin": {"owner": "x", "a\nforged line": 1}},
        {"pagoda_a\nforged line": 1},
        {"pagoda_" + "x" * 100_000: 1},
        {"pagoda_\ud800": 1},
    ],
    ids=[str(number) for number in range(11)],  # some cannot be printed
)
def test_whatever_a_client_sends_is_a_short_line_at_most(
    params: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing that can be sent is raised into vLLM's scheduler, or forges or floods its log."""
    host = Hosted(PagodaPolicy(16), 16)
    with caplog.at_level(logging.WARNING, "pagoda.connect"):
        assert host.ask(PROMPT, params)
    assert len(caplog.records) <= 1
    for record in caplog.records:
        assert record.getMessage().isprintable()
        assert len(record.getMessage()) < 300
    assert host.policy.hosted.pinned.count() == 0


def test_the_policy_is_the_one_of_the_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """heat unless a file says otherwise; a variable is stronger; PagodaTier's entry is strongest;
    an unknown name is refused."""

    def made() -> str:
        return type(PagodaPolicy(4).hosted._policy).__name__

    assert made() == "Heat"
    (tmp_path / "pagoda.toml").write_text('[host]\npolicy = "arc"\n')
    assert made() == "Arc"
    monkeypatch.setenv("PAGODA_HOST_POLICY", "sieve")
    assert made() == "Sieve"
    entry = {"type": "PagodaTier", "settings": {"host": {"policy": "lru"}, "drive": {"path": "x"}}}
    extra = {"secondary_tiers": [{"type": "fs"}, entry]}
    transfer = SimpleNamespace(kv_connector_extra_config=extra)
    vllm_config = SimpleNamespace(model_config=None, cache_config=None, kv_transfer_config=transfer)
    assert made() == "Lru"
    del vllm_config  # what `engine_config` finds above it
    monkeypatch.setenv("PAGODA_HOST_POLICY", "fastest")
    with pytest.raises(SettingsError, match=r"host\.policy"):
        made()
