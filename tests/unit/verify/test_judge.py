"""Differences of answers, and what they prove, without a server."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.verify.answers import Answer, BadAnswer, Position, parse_answer
from pagoda.verify.compare import difference
from pagoda.verify.counters import parse_counters
from pagoda.verify.judge import Finding, Reason, Trial, Verdict, judge, overall

TOKENS = st.sampled_from(["a", "b", "c", "d"])
LOGPROBS = st.integers(-40, 0).map(lambda tenths: tenths / 8)
POSITIONS = st.builds(Position, TOKENS, LOGPROBS, st.dictionaries(TOKENS, LOGPROBS, max_size=3))


def answer(positions: Sequence[Position], *, cached: int = 48) -> Answer:
    """One of those tokens."""
    text = "".join(position.token for position in positions)
    return Answer(
        text=text, positions=tuple(positions), prompt_tokens=65, cached=cached, restored=None
    )


def plain(shift: float, *, cached: int = 48, token: str = "a") -> Answer:
    """Three tokens, all of whose log-probabilities are shifted."""
    top = {"a": -0.5 - shift, "b": -2.0 - shift}
    return answer([Position(token, top.get(token, -3.0), top)] * 3, cached=cached)


def trial(
    *, cold: float = 0.0, noise: float = 0.0, crowd: float = 0.0, restored: Answer | None = None
) -> Trial:
    """Answers whose repeats lie `noise` apart, whose cold ones lie `cold` off and whose ones
    among others lie `crowd` off."""
    made = Trial(65)
    made.cold = [plain(cold, cached=0), plain(cold + noise, cached=0)]
    made.device = [plain(0.0), plain(noise)]
    made.crowd_device = [plain(crowd)]
    made.restored = made.crowd_restored = [restored or plain(0.0)]
    return made


@given(st.lists(POSITIONS, max_size=5), st.lists(POSITIONS, max_size=5))
def test_a_difference_is_symmetric_and_nothing_for_the_same(
    one: list[Position], other: list[Position]
) -> None:
    """And it names the first token that differs, as a naive comparison does."""
    found = difference(answer(one), answer(other))
    assert found == difference(answer(other), answer(one))
    tokens = [p.token for p in one], [p.token for p in other]
    naive = next(
        (
            at
            for at in range(max(map(len, tokens)))
            if tokens[0][at : at + 1] != tokens[1][at : at + 1]
        ),
        None,
    )
    assert found.first_token == naive
    assert difference(answer(one), answer(one)).logprob == 0.0
    assert difference(answer(one), answer(one)).first_token is None


@given(st.lists(POSITIONS, min_size=1, max_size=4), st.data())
def test_a_changed_log_probability_shows(positions: list[Position], data: st.DataObject) -> None:
    """However the lists of alternatives look, the chosen token's own is compared."""
    at = data.draw(st.integers(0, len(positions) - 1))
    moved = list(positions)
    moved[at] = Position(positions[at].token, positions[at].logprob - 7.0, positions[at].top)
    assert (difference(answer(positions), answer(moved)).logprob or 0) >= 7.0


def test_alternatives_are_compared_too() -> None:
    """The chosen token is as likely as before, the second one is not; or another stands there."""
    same = Position("a", -0.5, {"a": -0.5, "b": -2.0})
    for top in ({"a": -0.5, "b": -2.5}, {"a": -0.5, "c": -1.5}):
        found = difference(answer([same]), answer([Position("a", -0.5, top)]))
        assert (found.first_token, found.logprob) == (None, 0.5)


@pytest.mark.parametrize(
    ("case", "concurrent", "verdict"),
    [
        (trial(restored=plain(0.001)), False, Verdict.DIFFERS),
        (trial(restored=plain(0.00001)), False, Verdict.EQUAL),
        (trial(restored=plain(0.0, token="b")), False, Verdict.DIFFERS),
        (trial(noise=0.1, restored=plain(0.2)), False, Verdict.EQUAL),
        (trial(noise=0.1, restored=plain(0.2, token="b")), False, Verdict.EQUAL),
        (trial(noise=0.1, restored=plain(0.4)), False, Verdict.DIFFERS),
        (trial(noise=0.6, restored=plain(9.0)), False, Verdict.UNKNOWN),
        (trial(cold=0.2, restored=plain(0.1)), False, Verdict.DIFFERS),
        (trial(cold=0.2, restored=plain(0.1, cached=32)), False, Verdict.EQUAL),
        (trial(cold=0.2, restored=plain(0.8, cached=32)), False, Verdict.UNKNOWN),
        (trial(cold=0.2, restored=plain(1.5, cached=32)), False, Verdict.DIFFERS),
        (trial(cold=1.5), False, Verdict.DIFFERS),
        (trial(crowd=0.1, restored=plain(0.2)), True, Verdict.EQUAL),
        (trial(crowd=0.1, restored=plain(0.5)), True, Verdict.UNKNOWN),
        (trial(crowd=0.1, restored=plain(2.0)), True, Verdict.DIFFERS),
        (trial(restored=plain(0.001)), True, Verdict.DIFFERS),
    ],
)  # fmt: skip
def test_verdicts(case: Trial, concurrent: bool, verdict: Verdict) -> None:
    """Exact where repeats are, three floors else; another prefix or others beside it leave open
    what is not gross."""
    assert judge(case, doubt=None, concurrent=concurrent).verdict is verdict


@given(
    st.lists(
        st.tuples(
            st.integers(32, 600),
            st.sampled_from(Verdict),
            st.sampled_from([Reason.NOT_RESTORED, Reason.NO_LOGPROBS]),
        )
    )
)
def test_one_difference_decides_and_no_proof_is_no_equality(
    cases: list[tuple[int, Verdict, Reason]],
) -> None:
    """Equal needs a prompt that was proven, and none at least as long that was not."""
    findings = [
        Finding(tokens=tokens, concurrent=False, verdict=verdict, reason=reason)
        for tokens, verdict, reason in cases
    ]
    verdict, _ = overall(findings)
    kinds = {finding.verdict for finding in findings}
    proven = [f.tokens for f in findings if f.verdict is Verdict.EQUAL]
    open_ones = [f for f in findings if f.verdict is Verdict.UNKNOWN]
    if Verdict.DIFFERS in kinds:
        assert verdict is Verdict.DIFFERS
    elif proven and all(
        f.tokens < min(proven) and f.reason is Reason.NOT_RESTORED for f in open_ones
    ):
        assert verdict is Verdict.EQUAL
    else:
        assert verdict is Verdict.UNKNOWN


def test_a_prompt_of_which_nothing_came_back_spoils_the_proof_of_a_shorter_one() -> None:
    """The layer gave 49 tokens back and not 100: the longer is proven for the device alone."""
    short = Finding(tokens=49, concurrent=False, emptied="a", verdict=Verdict.EQUAL)
    silent = [
        Finding(
            tokens=tokens, concurrent=False, emptied=way, verdict=Verdict.EQUAL,
            reason=Reason.DEVICE_ONLY,
        )
        for tokens, way in ((100, "a"), (40, "a"), (49, "b"), (100, "b"))
    ]  # fmt: skip
    assert overall([short, *silent]) == (Verdict.UNKNOWN, Reason.NOT_RESTORED)
    assert overall([short, *silent[1:]]) == (Verdict.EQUAL, None)  # nothing is left for "b"
    assert overall(silent) == (Verdict.EQUAL, Reason.DEVICE_ONLY)
    assert overall(silent, need_restored=True) == (Verdict.UNKNOWN, Reason.NOT_RESTORED)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                "choices text message content usage prompt_tokens logprobs tokens top_logprobs "
                "token_logprobs prompt_tokens_details cached_tokens token logprob".split()
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON, st.booleans())
def test_garbage_is_never_an_answer_by_accident(body: object, chat: bool) -> None:
    """Any JSON is an answer with a positive count of tokens, or BadAnswer: nothing else."""
    try:
        found = parse_answer(body, chat=chat)
    except BadAnswer:
        return
    assert found.prompt_tokens > 0


@pytest.mark.parametrize(
    ("text", "restored"),
    [
        ("", None),
        ('pagoda_cached_tokens_total{place="device"} 5\n', 0.0),
        ('pagoda_cached_tokens_total{place="device"} 5\n'
         'pagoda_cached_tokens_total{place="restored"} 7\n', 7.0),
        ('vllm:external_prefix_cache_hits_total{engine="0"} 3\n'
         'vllm:external_prefix_cache_hits_total{engine="1"} 4\n', 7.0),
        ('sglang:cached_tokens_total{cache_source="host"} 2\n'
         'sglang:cached_tokens_total{cache_source="storage_file"} 3\n'
         'sglang:cached_tokens_total{cache_source="device"} 9\n', 5.0),
        ("other_total 5\n", None),
    ],
)  # fmt: skip
def test_counters_of_three_servers(text: str, restored: float | None) -> None:
    """What came from below the device, over all engines and places."""
    found = parse_counters(text)
    assert (None if found is None else found.restored) == restored
