"""Seeded defects: they fit the code, are taken back, and are found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pagoda.core import decide
from pagoda.lab.defects import hunt
from pagoda.lab.defects.catalogue import DEFECTS
from pagoda.lab.defects.hunt import CONTROL, Bounds, find
from pagoda.lab.defects.patch import PatchFailed, applied, check_fits


def test_every_patch_fits_the_code() -> None:
    """A refactoring that moves a seam has to move the defect with it."""
    for defect in DEFECTS:
        check_fits(defect)


def test_there_are_enough_of_them_in_enough_places() -> None:
    """At least 20 defects in at least 12 functions, each with a name and a story of its own."""
    assert len(DEFECTS) >= 20
    assert len({defect.seam for defect in DEFECTS}) >= 12
    assert len({defect.name for defect in DEFECTS}) == len(DEFECTS)
    assert len({defect.story for defect in DEFECTS}) == len(DEFECTS)


@pytest.mark.parametrize(
    "change",
    [
        {"old": "this text is nowhere"},
        {"old": "missing"},
        {"seam": "pagoda.core.decide:no_such_function"},
        {"seam": "pagoda.no_such_module:function"},
        {"seam": "pagoda.core.decide:Fetch"},
    ],
)
def test_a_patch_that_does_not_fit_is_an_error(change: dict[str, str]) -> None:
    """Absent, ambiguous, or in a place that is gone: never silently left out."""
    with pytest.raises(PatchFailed):
        check_fits(replace(DEFECTS[0], **change))


def test_a_patch_reaches_all_references_and_is_taken_back() -> None:
    """Modules that imported the function by name run the defect, too, until it ends."""
    sound = decide.make_room.__code__
    with applied(DEFECTS[0]):
        assert decide.make_room.__code__ is not sound
        from pagoda.core.residency import make_room

        assert make_room.__code__ is decide.make_room.__code__
    assert decide.make_room.__code__ is sound


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("evict-one-too-many", "room"),
        ("key-without-parent", "bytes"),
        ("generation-not-raised", "generation"),
        ("late-buffer-forgotten", None),
        ("deadline-ignored", "deadline"),
        ("hole-in-a-prefix", "prefix"),
    ],
)
def test_a_defect_is_found(name: str, check: str | None) -> None:
    """The quick ones; `pagoda lab defects` hunts them all."""
    finding = find(name, Bounds(seeds=range(1, 4), steps=4_000))
    assert finding.check is not None, "it survived"
    assert check in (None, finding.check)
    assert finding.steps > 0


def test_the_sound_code_is_clean() -> None:
    """The control, on the same seeds."""
    finding = find(CONTROL, Bounds(seeds=range(1, 4), steps=4_000))
    assert finding.check is None, finding.detail


def test_a_run_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect may make the store turn for ever; that is a finding, not a hang of the hunt."""
    monkeypatch.setattr(hunt, "_PATIENCE_S", 1)
    monkeypatch.setattr("pagoda.core.suspects.Suspects.expire", _for_ever)
    assert find(CONTROL, Bounds(seeds=range(1, 2), steps=1_000)).check == "liveness"


def _for_ever(self: object, now_s: float) -> None:
    while True:
        pass
