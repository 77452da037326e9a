"""The arithmetic of `pagoda bench engine`: windows, chunks, verdicts, children."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch is absent")

from pagoda.core.errors import EngineClosed, SettingsError
from pagoda.engine.api import Engine, FinishReason, Request, Update, Usage
from pagoda.lab.bench import child
from pagoda.lab.bench.engine import restore, run
from pagoda.lab.bench.engine.asking import ask_all
from pagoda.lab.bench.engine.chunks import chunks
from pagoda.lab.bench.engine.memory import grown
from pagoda.lab.bench.engine.setup import Setup, prompts
from pagoda.lab.bench.figures import Figure, Part
from pagoda.lab.bench.window import Decoded, agreement, decode_rate


def decoded(first_s: float, gap_s: float, tokens: int) -> Decoded:
    moments = tuple(first_s + i * gap_s for i in range(tokens))
    return Decoded(tokens=tuple(range(tokens)), moments_s=moments)


def setup(directory: Path, **changes: Any) -> Setup:
    return Setup(model=Path("model"), directory=directory, threads=2, **changes)


def test_rate_counts_only_the_time_when_all_decode() -> None:
    """Slow prefills before the last first token, and the tail after the first end, do not
    count: two sequences at 10 tokens/s each are 20 tokens/s."""
    batch = [decoded(0.0, 0.1, 200), decoded(10.0, 0.1, 50)]
    assert decode_rate(batch) == pytest.approx(20.0, rel=0.03)


def test_rate_of_prompts_that_never_overlap_is_refused() -> None:
    """Without a moment in which all decode there is no such rate."""
    with pytest.raises(AssertionError, match="ask for more tokens"):
        decode_rate([decoded(0.0, 0.1, 5), decoded(10.0, 0.1, 5)])


@given(st.lists(st.integers(0, 3), max_size=8), st.lists(st.integers(0, 3), max_size=8))
def test_agreement_is_the_common_prefix(left: list[int], right: list[int]) -> None:
    """1 for equal answers only; the same from both sides; what follows a difference is not
    counted."""
    a, b = (Decoded(tokens=tuple(side), moments_s=()) for side in (left, right))
    share = agreement([a], [b])
    longest = max(len(left), len(right))
    prefix = max(n for n in range(longest + 1) if left[:n] == right[:n] and n <= len(left))
    assert share == agreement([b], [a])
    assert share == (prefix / longest if longest else 1.0)


@given(st.integers(0, 3000), st.integers(1, 3000), st.sampled_from([64, 128, 512]))
def test_chunks_cover_a_prompt_and_end_on_multiples_of_64(
    start: int, length: int, longest: int
) -> None:
    """Chunks are neighbours, at most `longest`, and all but the last end on a multiple of 64."""
    parts = list(chunks(start, start + length, longest=longest))
    assert [position for part in parts for position in part] == list(range(start, start + length))
    assert all(0 < len(part) <= longest for part in parts)
    assert all(part.stop % 64 == 0 for part in parts[:-1])


class WordCodec:
    """A token a word."""

    def encode(self, text: str) -> list[int]:
        return [sum(word.encode()) for word in text.split()]


def test_prompts_are_different_and_spread() -> None:
    """Lengths run evenly from the shortest to the longest; no prompt begins as another does."""
    made = prompts(WordCodec(), count=5, shortest=128, longest=512)  # type: ignore[arg-type]
    assert [len(one) for one in made] == [128, 224, 320, 416, 512]
    assert len({tuple(one[:32]) for one in made}) == 5


class ScriptedEngine:
    """Answers each request from a thread-less script."""

    def __init__(self, finish: FinishReason) -> None:
        self.finish = finish
        self.requests: list[Request] = []

    def submit(self, request: Request, sink: Callable[[Update], None]) -> None:
        self.requests.append(request)
        usage = Usage(prompt_tokens=len(request.prompt), cached_restored=16)
        sink(Update(request_id=request.id, token_ids=(7, 8), usage=usage))
        time.sleep(0.002)
        sink(Update(request_id=request.id, token_ids=(9,), finish=self.finish, usage=usage))


def test_asking_notes_a_moment_for_every_token() -> None:
    """Tokens that come in one update share its moment; the salt keeps runs apart."""
    scripted = ScriptedEngine(FinishReason.LENGTH)
    engine: Engine = scripted  # type: ignore[assignment]
    asked = ask_all(engine, [[1, 2], [3]], new_tokens=3, salt="s")
    assert [one.decoded.tokens for one in asked] == [(7, 8, 9)] * 2
    moments = asked[0].decoded.moments_s
    assert moments[0] == moments[1] < moments[2]
    assert asked[0].usage.cached_tokens == 16
    assert {request.salt for request in scripted.requests} == {"s"}
    assert all(request.sampling.ignore_eos for request in scripted.requests)


def test_failed_request_fails_the_bench() -> None:
    """An answer that the engine cut short is not a measurement."""
    engine: Engine = ScriptedEngine(FinishReason.ERROR)  # type: ignore[assignment]
    with pytest.raises(EngineClosed, match="ended early"):
        ask_all(engine, [[1]], new_tokens=3, salt="s")


def a_run(**changes: Any) -> dict[str, Any]:
    whole = {
        "computed_s": 2.2,
        "restored_s": 0.1,
        "read_s": 0.04,
        "store_read_s": 0.05,
        "restored_tokens": 2032,
        "computed_cached_tokens": 0,
        "same_answer": True,
    }
    return whole | changes


@pytest.mark.parametrize(
    ("changes", "met"),
    [
        ({}, [True, True]),
        ({"computed_s": 1.0}, [False, True]),
        ({"restored_s": 0.2, "computed_s": 9.0}, [True, False]),
        ({"same_answer": False}, [False, False]),
        ({"restored_tokens": 16}, [False, False]),
        ({"computed_cached_tokens": 16}, [False, False]),
    ],
)
def test_restore_is_judged_by_speed_and_truth(
    changes: dict[str, Any], met: list[bool], tmp_path: Path
) -> None:
    """A fast first token counts only for a whole prefix, the same answer, and against a prompt
    that was really computed."""
    part = restore._part(setup(tmp_path), [a_run(**changes)])
    assert [figure.met for figure in part.figures] == met


def test_quick_run_judges_nothing(tmp_path: Path) -> None:
    """What a quick run prints is not a verdict."""
    part = restore._part(setup(tmp_path, quick=True), [a_run()])
    assert [figure.met for figure in part.figures] == [None, None]


def test_report_holds_the_chosen_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the named parts run, each in a directory that is gone afterwards."""
    figure = Figure(name="a", value=1.0, unit="s", goal="<= 2", met=True)
    seen: list[Path] = []

    def part(given: Setup, say: Callable[[str], None]) -> Part:
        given.directory.mkdir()
        seen.append(given.directory)
        say("working")
        return Part(figures=[figure], rows=[])

    monkeypatch.setattr(run, "PARTS", {"one": part, "two": part})
    found = run.measure_engine(setup(tmp_path), ["two"], lambda _: None)
    assert list(found["parts"]) == ["two"]
    assert found["parts"]["two"]["figures"][0]["met"] is True
    assert list(tmp_path.iterdir()) == []
    assert list(run.measure_engine(setup(tmp_path), [], lambda _: None)["parts"]) == ["one", "two"]
    with pytest.raises(SettingsError, match="three"):
        run.measure_engine(setup(tmp_path), ["three"], lambda _: None)


def test_growth_counts_from_the_first_quarter() -> None:
    """What is added after a quarter of the requests is growth, also in one step; what came
    before is the filling of the tiers."""
    marks = [256, 512, 736, 992, 1248, 1472, 1728, 1984]
    assert grown(marks, [50, 100, 160, 160, 160, 160, 160, 160]) == (512, 60)
    assert grown(marks, [50, 100, 100, 100, 100, 100, 100, 100]) == (512, 0)


def test_child_that_fails_says_why(tmp_path: Path) -> None:
    """A failing child is an error with the end of what it wrote, not an empty figure."""
    order = setup(tmp_path).to_json() | {"requests": 1}
    with pytest.raises(EngineClosed, match="no model directory"):
        child.run_child("memory", order)


def test_setup_survives_the_way_to_a_child(tmp_path: Path) -> None:
    """A child measures with the parent's settings."""
    given = setup(tmp_path, runs=5, quick=True)
    assert Setup.from_json(given.to_json()) == given


def test_plain_read_times_the_bytes_of_the_slab(tmp_path: Path) -> None:
    """The drive's own time is that of reading as many bytes from the slab."""
    (tmp_path / "slab.pagoda").write_bytes(bytes(12 << 20))
    assert 0 < restore.read_slab_s(tmp_path, 8 << 20) < 60


@pytest.mark.engine
@pytest.mark.skipif("PAGODA_DEMO_MODEL" not in os.environ, reason="PAGODA_DEMO_MODEL is not set")
def test_restart_restores_in_the_bench(tmp_path: Path) -> None:
    """The bench's own restart restores the prompt and answers the same, whatever it took."""
    given = Setup(
        model=Path(os.environ["PAGODA_DEMO_MODEL"]), directory=tmp_path, threads=2, quick=True
    )
    found = run.measure_engine(given, ["restore"], lambda _: None)
    row = found["parts"]["restore"]["rows"][0]
    assert row["same_answer"]
    assert row["restored_tokens"] == 2032
    assert row["pid"] != os.getpid()
