"""The plan of a load: deterministic, complete, shaped as its profile says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.core.errors import SettingsError
from pagoda.lab.bench.load import LoadSettings, Profile, plan
from pagoda.lab.bench.words import Words


@given(
    st.sampled_from(Profile), st.integers(1, 60), st.integers(1, 12), st.integers(0, 2**32),
)  # fmt: skip
def test_plan_asks_exactly_the_requests_asked_for(
    profile: Profile, requests: int, sessions: int, seed: int
) -> None:
    """Whatever the split, the questions add up to --requests and none is missing a pause."""
    settings = LoadSettings(
        profile=profile, requests=requests, sessions=sessions, seed=seed, words=5
    )
    planned = plan(settings)
    assert sum(len(session.questions) for session in planned) == requests
    assert all(len(s.questions) == len(s.pauses_s) and s.pauses_s[0] == 0 for s in planned)
    assert planned == plan(settings)


def test_seed_changes_the_text() -> None:
    """Two seeds share no opening, so a second run is not answered from the first one's cache."""
    openings = [{session.opening for session in plan(LoadSettings(seed=seed))} for seed in (1, 2)]
    assert not openings[0] & openings[1]


def test_shared_prefix_shares_one_document() -> None:
    """All conversations of the profile begin with the same document and ask one question."""
    planned = plan(LoadSettings(profile=Profile.SHARED_PREFIX, requests=20, words=300))
    assert len({session.opening for session in planned}) == 1
    assert len({session.questions for session in planned}) > 1
    assert len(planned[0].opening.split()) >= 300


def test_sessions_do_not_share_their_openings() -> None:
    """Sessions of the multi-turn profile are different users."""
    planned = plan(LoadSettings(requests=16, sessions=8))
    assert len({session.opening for session in planned}) == 8


def test_arrivals_are_poisson_at_the_rate() -> None:
    """Gaps between arrivals have the mean and the variation (about 1) of a Poisson process."""
    settings = LoadSettings(
        profile=Profile.SHARED_PREFIX, requests=4000, rate_per_s=20.0, words=0, seed=3
    )
    starts = [s.starts_s for s in plan(settings) if s.starts_s is not None]
    gaps = [after - before for before, after in zip([0.0, *starts], starts, strict=False)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert len(starts) == 4000
    assert mean == pytest.approx(1 / 20, rel=0.05)
    assert deviation / mean == pytest.approx(1.0, rel=0.06)


def test_rate_counts_requests_not_sessions() -> None:
    """With five turns a session, sessions arrive five times more rarely than requests."""
    settings = LoadSettings(requests=5000, sessions=1000, rate_per_s=10.0, words=0)
    starts = [s.starts_s for s in plan(settings) if s.starts_s is not None]
    assert starts[-1] == pytest.approx(500, rel=0.1)


def test_closed_loop_plans_no_moments() -> None:
    """Without a rate, conversations begin when a client is free."""
    assert all(session.starts_s is None for session in plan(LoadSettings()))


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("requests", {"requests": 0}),
        ("sessions", {"sessions": -1}),
        ("concurrency", {"concurrency": 0}),
        ("rate", {"rate_per_s": 0.0}),
        ("rate", {"rate_per_s": float("nan")}),
        ("think", {"think_s": -1.0}),
        ("words", {"words": -1}),
        ("max-tokens", {"max_tokens": 0}),
        ("duration", {"duration_s": 0.0}),
        ("timeout", {"timeout_s": float("nan")}),
    ],
)
def test_bad_settings_name_their_flag(key: str, changes: dict[str, float]) -> None:
    """A value out of range is refused with the flag's name, NaN included."""
    with pytest.raises(SettingsError) as caught:
        LoadSettings(**changes)  # type: ignore[arg-type]
    assert caught.value.key == key


def test_document_has_the_length_asked_for() -> None:
    """A document is as long as asked, to the end of its sentence; zero words are no text."""
    assert Words(seed=0, name="a").document(0) == ""
    words = len(Words(seed=0, name="a").document(500).replace("Note", "").split())
    assert 500 <= words < 500 * 1.1
