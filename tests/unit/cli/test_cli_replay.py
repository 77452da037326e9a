"""`pagoda replay`: tables, JSON, and what is said of wrong input."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from replay_sample import sample, write_sample
from trace_lines import SIZE, runs_lines

from pagoda.core.policy import DRIVE_DEFAULT
from pagoda.lab.replay.policies import POLICIES
from pagoda.settings import Settings

Pagoda = Callable[..., Any]
SIZED = ("--block-tokens", str(SIZE))


@pytest.fixture
def trace(tmp_path: Path) -> str:
    """A small trace as a file."""
    return str(write_sample(tmp_path / "sample.runs"))


def cells(text: str, first: str) -> list[list[str]]:
    """The rows of tables that begin with a word, cut into cells."""
    rows = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    return [row for row in rows if row[0] == first]


def test_the_table_shows_what_the_json_says(pagoda: Pagoda, trace: str, tmp_path: Path) -> None:
    """Every figure: hits of each policy at each capacity, and its share of the gap."""
    wanted = ("--policy", "lru,lfu,belady", "--capacity", "2%,5%,80")
    shown = pagoda("replay", trace, *SIZED, *wanted, "--json", str(tmp_path / "report.json"))
    report = json.loads((tmp_path / "report.json").read_text())
    assert shown.status == 0
    for policy in ("lru", "lfu", "belady"):
        rows = [row for row in report["rows"] if row["policy"] == policy]
        hits, *gaps = cells(shown.out, policy)
        assert hits[1:4] == [f"{row['token_hit_pct']:.2f}" for row in rows]
        if policy == "lfu":
            assert gaps == [[policy, *(f"{row['gap_closed_pct']:.2f}" for row in rows)]]
    unique = report["trace"]["unique_blocks"]
    counts = [row["capacity_blocks"] for row in report["rows"][:3]]
    assert counts == [unique * 2 // 100, unique * 5 // 100, 80]
    assert f"{unique:,} unique blocks" in " ".join(shown.out.split())


def test_the_bound_is_above_everything(pagoda: Pagoda, trace: str) -> None:
    """At every capacity, whatever the policy; hits never exceed what was asked."""
    done = pagoda("replay", trace, *SIZED, "--policy", "all", "--json", "-")
    rows = json.loads(done.out)["rows"]
    bound = {row["capacity"]: row["token_hit_pct"] for row in rows if row["policy"] == "belady"}
    assert len(bound) == 4
    assert all(row["token_hit_pct"] <= bound[row["capacity"]] + 1e-9 <= 100 for row in rows)


def test_results_do_not_depend_on_jobs(pagoda: Pagoda, trace: str) -> None:
    """Nor on whether the trace was read by name or told wrong of its sessions; only the times
    differ."""
    reports = []
    for jobs in ("1", "4"):
        wanted = ("--policy", "all", "--hint-accuracy", "0.9", "--seed", "3", "--jobs", jobs)
        report = json.loads(pagoda("replay", trace, *SIZED, *wanted, "--json", "-").out)
        for row in report["rows"]:
            assert row.pop("seconds") >= 0
            assert row.pop("us_per_access") >= 0
        reports.append(report)
    assert reports[0] == reports[1]
    assert reports[0]["hints"] == {"accuracy": 0.9, "seed": 3}


def test_two_tiers_show_what_the_json_says(pagoda: Pagoda, trace: str, tmp_path: Path) -> None:
    """A line for every policy, kind of writing and pair of sizes."""
    wanted = ("--policy", "lru", "--host", "2%,4%", "--drive", "8%", "--writes", "spill,all")
    target = tmp_path / "report.json"
    shown = pagoda("replay", trace, *SIZED, *wanted, "--json", str(target))
    rows = json.loads(target.read_text())["rows"]
    lines = [row for kind in ("spill", "all") for row in cells(shown.out, f"lru, {kind}")]
    assert [line[1:6] for line in lines] == [
        [
            row["capacity"],
            f"{row['token_hit_pct']:.2f}",
            f"{row['drive_hit_pct']:.2f}",
            f"{row['mean_stall_ms']:,.1f}",
            f"{row['p99_stall_ms']:,.1f}",
        ]
        for row in rows
    ]
    assert [row["capacity"] for row in rows[:2]] == ["2% + 8%", "4% + 8%"]


def test_two_tiers_say_what_their_figures_rest_on(
    pagoda: Pagoda, trace: str, tmp_path: Path
) -> None:
    """Each assumption in a line below the table, as in the JSON, those that a flag said marked; the
    table's last line names them."""
    target = tmp_path / "report.json"
    wanted = ("--host", "2%", "--drive", "8%", "--drive-gb-s", "3", "--json", str(target))
    shown = pagoda("replay", trace, *SIZED, "--policy", "heat", *wanted)
    stated = json.loads(target.read_text())["assumptions"]
    text = " ".join(shown.out.split())
    for number, one in enumerate(stated, start=1):
        assert f"{number}{'*' if one['given'] else ''} {one['text']}" in text
    assert [one["text"] for one in stated if one["given"]] == ["the drive reads 3 GB/s"]
    said = " ".join(one["text"] for one in stated)
    for figure in ("163,840 B", "0.1 ms", "lru on drives", "1 × its size a day"):
        assert figure in said
    assert len(cells(shown.out, "rests on")) == 1


def rows_of(pagoda: Pagoda, *wanted: str) -> list[dict[str, Any]]:
    """The rows of a report, without what a processor took."""
    done = pagoda("replay", *SIZED, *wanted, "--json", "-")
    rows: list[dict[str, Any]] = json.loads(done.out)["rows"]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def test_a_server_as_it_comes_can_be_replayed(pagoda: Pagoda, trace: str) -> None:
    """Unless flags say otherwise a what-if has the policies and the admission of the settings, and
    two tiers their policy on drives."""
    host, drive = Settings().host, Settings().drive
    sizes = ("--host", "2%", "--drive", "8%")
    own = ("--policy", host.policy, "--drive-policy", drive.policy, "--writes", drive.admission)
    assert rows_of(pagoda, trace, "--what-if", *sizes) == rows_of(
        pagoda, trace, "--what-if", *sizes, *own
    )
    for row in rows_of(pagoda, trace, *sizes):
        assert row["drive_policy"] == drive.policy


def test_drives_have_a_policy_of_their_own(pagoda: Pagoda, trace: str) -> None:
    """`same` is that of memory, of each in turn, and it is what rules there."""
    sizes = ("--host", "1%", "--drive", "3%", "--writes", "all")
    same = rows_of(pagoda, trace, *sizes, "--policy", "lru,lfu", "--drive-policy", "same")
    assert [row["drive_policy"] for row in same] == ["lru", "lfu"]
    for row in same:
        asked = ("--policy", row["policy"], "--drive-policy", row["policy"])
        assert rows_of(pagoda, trace, *sizes, *asked) == [row]
    mixed = rows_of(pagoda, trace, *sizes, "--policy", "lfu")
    assert mixed[0]["drive_policy"] == "lru"
    assert mixed[0]["token_hit_pct"] != same[1]["token_hit_pct"]


def test_a_drives_life_is_that_of_the_tier_on_it(pagoda: Pagoda, trace: str) -> None:
    """A drive of which no size was said is as large as the tier; more room is more drive; one that
    was said to be larger lives longer in proportion."""
    wanted = ("--what-if", "--host", "2%", "--drive", "40MiB")
    token = ("--kv-bytes-per-token", "64KiB")
    rows = {row["what"]: row for row in rows_of(pagoda, trace, *wanted, *token)}
    for row in rows.values():
        assert row["rated_tb"] == pytest.approx(row["drive_blocks"] * SIZE * (64 << 10) / 1e12)
    now, more = rows["as it is"], rows["2 × drive room"]
    assert more["rated_tb"] == 2 * now["rated_tb"]
    lives = []
    for factor in (1.5, 1000, 2000):
        large = ("--drive-tb", str(now["rated_tb"] * factor))
        said = {row["what"]: row for row in rows_of(pagoda, trace, *wanted, *token, *large)}
        assert said["as it is"]["rated_tb"] == pytest.approx(now["rated_tb"] * factor)
        assert said["2 × drive room"]["rated_tb"] == pytest.approx(now["rated_tb"] * max(2, factor))
        lives.append(said["as it is"]["drive_life_years"])
    assert lives[2] == pytest.approx(2 * lives[1], rel=0.01)


def test_help_names_every_policy(pagoda: Pagoda, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the live store and the bound, the defaults, and what the columns mean."""
    monkeypatch.setenv("COLUMNS", "200")
    text = " ".join(pagoda("replay", "--help").out.replace("│", " ").split())
    assert ", ".join(POLICIES) in text
    assert f"Default: {DRIVE_DEFAULT}" in text
    assert "µs a block" in text
    assert "the stall is what a request waits" in text


def test_what_if_answers_with_its_assumptions(pagoda: Pagoda, trace: str, tmp_path: Path) -> None:
    """Each line shows what the JSON says, and below it stands what it rests on."""
    target = tmp_path / "report.json"
    wanted = ("--policy", "lru", "--recompute-ms", "0.2", "--kv-bytes-per-token", "64KiB")
    shown = pagoda("replay", "--what-if", trace, *SIZED, *wanted, "--json", str(target))
    report = json.loads(target.read_text())
    assert shown.status == 0
    for row in report["rows"]:
        (line,) = cells(shown.out, row["what"])
        assert line[3:6] == [
            f"{row['token_hit_pct']:.2f}",
            f"{row['drive_hit_pct']:.2f}",
            f"{row['mean_first_token_ms']:,.1f}",
        ]
    said = [one["text"] for one in report["assumptions"] if one["given"]]
    assert "a token takes 0.2 ms to compute" in said
    assert "a token's KV takes 65,536 B" in said
    text = " ".join(shown.out.split())
    assert all(one["text"] in text for one in report["assumptions"])


def test_bytes_are_sized_by_a_model(pagoda: Pagoda, trace: str) -> None:
    """As many blocks as with the bytes that the model's token takes, said by hand."""
    wanted = ("--policy", "lru", "--json", "-", "--capacity", "64MiB")
    by_model = pagoda("replay", trace, *SIZED, *wanted, "--model", "llama-3.1-8b")
    by_hand = pagoda("replay", trace, *SIZED, *wanted, "--kv-bytes-per-token", "128KiB")
    blocks = [json.loads(done.out)["rows"][0]["capacity_blocks"] for done in (by_model, by_hand)]
    assert blocks == [(64 << 20) // (SIZE * (128 << 10))] * 2


def test_a_malformed_line_is_named_or_skipped(pagoda: Pagoda, tmp_path: Path) -> None:
    """Status 2 with its number; with --on-bad skip it is counted, named, and the rest is as if
    it were not there."""
    lines = runs_lines(sample())
    good = str(write_sample(tmp_path / "good.runs", lines))
    bad = str(write_sample(tmp_path / "bad.runs", [*lines[:3], "not a request", *lines[3:]]))
    wanted = (*SIZED, "--policy", "lru")
    failed = pagoda("replay", bad, *wanted)
    assert failed.status == 2
    assert "line 4" in failed.err
    skipped = pagoda("replay", bad, *wanted, "--on-bad", "skip")
    assert skipped.status == 0
    assert "line 4:" in skipped.out
    expected = cells(pagoda("replay", good, *wanted).out, "lru")
    assert [row[:5] for row in cells(skipped.out, "lru")] == [row[:5] for row in expected]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (("--policy", "lru,seive"), "did you mean sieve?"),
        (("--policy", ""), "known: "),
        (("--capacity", "5%,4G"), "GiB (1024)"),
        (("--capacity", "20GiB"), "--kv-bytes-per-token"),
        (("--capacity", "0"), "less than one block"),
        (("--host", "1%"), "--host and --drive go together"),
        (("--host", "1%,2%", "--drive", "1%,2%,3%"), "2 sizes of --host, 3 of --drive"),
        (("--host", "1%", "--drive", "4%", "--capacity", "1%"), "--capacity is of one tier"),
        (("--host", "1%,1.0%", "--drive", "4%"), "names two sizes twice"),
        (("--host", "1%", "--drive", "4%", "--writes", "some"), "known: spill"),
        (("--what-if", "--capacity", "1%"), "--what-if is about two tiers"),
        (("--what-if", "--policy", "all"), "one policy"),
        (("--kv-bytes-per-token", "0", "--capacity", "1%"), "--kv-bytes-per-token is 0"),
        (("--model", "llama-3.1-8b", "--kv-bytes-per-token", "1kB"), "two answers"),
        (("--model", "no-such-model"), "no-such-model"),
        (("--hint-accuracy", "1.5"), "--hint-accuracy"),
        (("--jobs", "0"), "--jobs"),
        (("--recompute-ms", "nan"), "--recompute-ms"),
        (("--dwpd", "inf"), "--dwpd"),
        (("--drive-policy", "lru"), "two tiers"),
        (("--what-if", "--drive-policy", "lru,heat"), "name one"),
        (("--what-if", "--drive-policy", "lrru"), "did you mean lru?"),
        (("--what-if", "--drive-policy", ""), "known: "),
        (("--what-if", "--drive-tb", "0.000001"), "less than the tier on it"),
        (("--what-if", "--other-drive-tb", "0.000001"), "--other-drive-tb"),
        (("--host", "1%", "--drive", "4%", "--drive-tb", "0.000001"), "less than the tier on it"),
        (("--plot", "picture"), "let the name end in"),
        (("--plot", "picture.docx"), "let the name end in"),
        (("--drive-tb", "1e308"), "--drive-tb"),
    ],
)
def test_wrong_flags_are_refused(
    pagoda: Pagoda, trace: str, wanted: tuple[str, ...], said: str
) -> None:
    """Status 2, nothing on standard output, and a word of what to do."""
    done = pagoda("replay", trace, *SIZED, *wanted)
    assert (done.status, done.out) == (2, "")
    assert said in done.err


@pytest.mark.parametrize("text", ["", "\n\n", None])
def test_a_file_without_a_request_is_refused(
    pagoda: Pagoda, tmp_path: Path, text: str | None
) -> None:
    """An empty trace, and one that is not there."""
    path = tmp_path / "trace"
    if text is not None:
        path.write_text(text)
    done = pagoda("replay", str(path))
    assert (done.status, done.out) == (2, "")
    assert str(path) in done.err


def test_progress_stays_off_standard_output(pagoda: Pagoda, trace: str) -> None:
    """Standard output is JSON alone; the stages are told on standard error."""
    done = pagoda("replay", trace, *SIZED, "--policy", "lru", "--json")
    assert json.loads(done.out)["trace"]["requests"] == 240
    assert done.err.splitlines()[:2] == ["reading sample.runs", "replaying"]


def test_a_size_of_one_tier_may_go_with_several_of_the_other(
    pagoda: Pagoda, trace: str, tmp_path: Path
) -> None:
    """Pairs are named once, not what they are made of."""
    out = tmp_path / "rows.json"
    sizes = ("--host", "5%,5%,10%", "--drive", "10%,20%,20%")
    done = pagoda(
        "replay", trace, *sizes, "--policy", "lru", "--writes", "all", "--json", str(out), *SIZED
    )
    assert done.status == 0
    rows = json.loads(out.read_text())["rows"]
    assert len(rows) == 3
