"""Reading: prefixes, folded repeats, wrapped lines, order, odd chunks, hostile bytes."""

from __future__ import annotations

import json
import time
from unittest import mock

import pytest
from doctor_logs import excerpts
from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda.advise.doctor import Doctor, Watcher, diagnose, signs
from pagoda.advise.doctor.examine import Examination
from pagoda.advise.doctor.normalise import MAX_LINE_CHARS, normalise, undress
from pagoda.advise.doctor.scan import NeedleScan

BY_NAME = {log.name: log.text for log in excerpts()}
PREEMPTED = "WARNING 01-01 00:00:00 [s.py:1] Sequence group 1 is preempted by PreemptionMode.SWAP"
PIECES = st.sampled_from([line for text in BY_NAME.values() for line in text.split("\n")])


def test_prefixes_are_peeled_in_any_nesting() -> None:
    """Pod, actor, level, time and file leave the message; rank, node and level are kept."""
    line = normalise(
        "[pod/llm-0/engine] \x1b[36m(Worker_TP3 pid=12, ip=10.0.0.2)\x1b[0m "
        "ERROR 04-08 03:47:19 [core.py:61] it broke"
    )
    assert line.message == "it broke"
    assert (line.rank, line.node, line.level, line.remote) == (3, "llm-0", "ERROR", True)
    assert line.time_s == ((31 + 29 + 31 + 7) * 24 + 3) * 3600 + 47 * 60 + 19


@pytest.mark.parametrize(
    ("raw", "rank", "node"),
    [
        ("[2025-02-10 21:15:43 DP1 TP6 EP6] begin", 6, ""),
        ("[rank3]:[E219 08:58:32.606 ProcessGroupNCCL.cpp:616] [Rank 3] stop", 3, ""),
        ("n7:900:1200 [5] NCCL INFO x", None, "n7"),
        ("Mar 03 11:02:41 gpu-a07 kernel: NVRM: x", None, "gpu-a07"),
        ("12: torch started", 12, ""),
        ("vllm-1  | (EngineCore_DP0 pid=3) INFO 01-01 00:00:00 [a.py:1] x", None, "vllm-1"),
        ("(Worker_TP1 pid=7) what(): [PG ID 0 PG GUID 0(default_pg) Rank 15] x", 15, ""),
    ],
)
def test_rank_and_node_are_found(raw: str, rank: int | None, node: str) -> None:
    """Each launcher's way to name a rank or a node is understood."""
    line = normalise(raw)
    assert (line.rank, line.node) == (rank, node)


@pytest.mark.parametrize(
    "raw",
    [
        "2026-12-01T10:00:00.400Z info    uvicorn.error: Started server process [7]",
        "[2026-12-01 10:00:00 +0000] [7] [INFO] uvicorn.error: Started server process [7]",
        "INFO 12-01 10:00:00 [on.py:62] uvicorn.error: Started server process [7]",
        '{"level": "info", "logger": "uvicorn.error", "message": "Started server process [7]"}',
    ],
)
def test_a_loggers_name_is_no_evidence(raw: str) -> None:
    """uvicorn logs its normal start under the name uvicorn.error, which reads like an exception."""
    line = normalise(raw)
    assert (line.level, line.logger) == ("INFO", "uvicorn.error")
    assert diagnose([("a", raw.encode())]).verdict == "healthy"


def test_an_exception_in_lower_case_is_one() -> None:
    """Bare, or in a line of a grave level, such a name is what a Python library raised."""
    for raw in ("zlib.error: Error -3", "ERROR 12-01 10:00:00 [a.py:1] zlib.error: Error -3"):
        assert normalise(raw).logger == ""
        assert diagnose([("a", raw.encode())]).verdict == "insufficient"


def test_a_programs_json_record_is_read_within_others() -> None:
    """A container's record around a program's, or a pod's name before it, hides nothing."""
    record = {"level": "error", "logger": "store", "message": "write failed: [Errno 28]"}
    outer = json.dumps({"log": json.dumps(record) + "\n", "stream": "stderr"})
    for raw in (json.dumps(record), outer, f"[pod/llm-0/engine] {json.dumps(record)}"):
        line = normalise(raw)
        assert (line.level, line.message) == ("ERROR", "store: write failed: [Errno 28]")


RECORDS = st.recursive(
    st.text(max_size=20) | st.sampled_from(["\x1b[31mred", "[36mcyan", '{"level": "info"}', "}"]),
    lambda inner: st.builds(
        lambda before, record: before + json.dumps(record, ensure_ascii=False),
        st.sampled_from(["", "> ", "a: "]),
        st.dictionaries(
            st.sampled_from(["log", "message", "level", "time", "logger", "exception"]),
            inner | st.sampled_from(["info", "error"]),
        ),
    ),
    max_leaves=8,
)


@given(RECORDS)
@settings(max_examples=300, deadline=None)
def test_undressing_twice_changes_nothing(raw: str) -> None:
    """Whatever records are within each other, one undressing takes off all of them, and ends."""
    once = undress(raw)
    assert undress(once) == once


def test_json_within_a_message_stays() -> None:
    """A client's error quotes JSON: it has no level, so it is no record."""
    raw = 'refused: {"message": "too long"}'
    assert normalise(raw).message == raw


def test_folded_repeats_count() -> None:
    """A line that stands for fifteen counts fifteen."""
    line = "WARNING 01-01 00:00:00 scheduler.py:1] Sequence group 1 is preempted by x"
    doctor = Doctor()
    doctor.feed("a", f"{line} [repeated 15x across cluster]\n{line}\n".encode())
    assert doctor.examination.facts.count("preempted") == 16


def test_repeated_lines_at_the_top_are_not_one_wrapped_line() -> None:
    """Bare lines of one width, all the same: nothing broke them, and each counts."""
    line = "RuntimeError: CUDA error: invalid device ordinal"
    report = diagnose([("a", "\n".join([line, line, line, "$ nvidia-smi -L", ""]).encode())])
    assert [event.line for event in report.causes[0].evidence] == [1, 2, 3]


def _bare(count: int, line: str) -> bytes:
    """Lines of one width that differ in their number alone."""
    return "".join(f"{line.format(number)}\n" for number in range(count)).encode()


def test_bare_lines_of_one_width_each_count() -> None:
    """Without a prefix anywhere nothing shows that a terminal broke them, whatever they say."""
    waits = diagnose([("a", _bare(40, "cmpl-{:02d} is still in WAITING_FOR_REMOTE_KVS state."))])
    assert [finding.cause.id for finding in waits.causes] == ["remote_kv_never_came"]
    doctor = Doctor()
    doctor.feed("a", _bare(8, "RuntimeError: CUDA error: invalid device ordinal on rank {}"))
    facts = doctor.examination.facts
    assert {event.line for event in facts.events(*facts.tallies)} == set(range(1, 9))


@pytest.mark.parametrize(
    "before",
    [
        "INFO 01-01 00:00:00 [worker.py:1] rank {} starts up on the device that it was given",
        "    raise RuntimeError('CUDA error: no device is left for rank {} of all')",
    ],
)
def test_an_exception_continues_no_line(before: str) -> None:
    """Lines of one width before bare exceptions are whole; their level is not the exception's."""
    error = "RuntimeError: CUDA error: invalid device ordinal"
    report = diagnose([("a", _bare(8, f"{before}\n{error}"))])
    lines = {event.line for event in report.causes[0].evidence if event.text == error}
    assert lines
    assert all(line % 2 == 0 for line in lines)


def test_a_log_that_begins_within_a_wrapped_message_is_joined() -> None:
    """Later lines with prefixes show the width that broke the first message, too."""
    cut = "scheduler failed while it was loading the model weights of this rank: torch.OutOfMem"
    rest = "oryError: CUDA out of memory. Tried to allocate 3.91 GiB on this device"
    whole = f"[2026-04-04 04:04:04 TP0] {'the next step is as usual ' * 3}"
    wrapped = [whole[: len(cut)], whole[len(cut) :]]
    report = diagnose([("a", "\n".join([cut, rest, *wrapped * 3]).encode())])
    assert report.causes[0].evidence[0].text == cut + rest


def test_wrapped_lines_are_joined() -> None:
    """A message broken at the terminal's width is understood, under its first line's number."""
    line = (
        "[2026-04-04 04:04:04 TP0] The scheduler failed while it was loading: torch.OutOfMem"
        "oryError: CUDA out of memory. Tried to allocate 3.91 GiB on this device in a loop"
    )
    width = 80
    wrapped = [line[at : at + width] for at in range(0, len(line), width)]
    text = "\n".join(["[2026-04-04 04:04:03 TP0] ok", *wrapped * 3]) + "\n"
    report = diagnose([("a", text.encode())])
    assert report.causes[0].cause.id == "gpu_out_of_memory"
    assert [event.line for event in report.causes[0].evidence][:2] == [2, 2 + len(wrapped)]


def test_newest_first_is_recognised() -> None:
    """Times that run backwards mark a file that was printed from its end."""
    lines = [f"[2026-01-01 00:00:{second:02} TP0] step {second}" for second in range(30)]
    doctor = Doctor()
    doctor.feed("a", "\n".join(reversed(lines)).encode())
    doctor.feed("b", "\n".join(lines).encode())
    for name in ("a", "b"):
        doctor.close(name)
    facts = doctor.examination.facts
    assert (facts.newest_first("a"), facts.newest_first("b")) == (True, False)


def test_silence_after_the_initialisation_is_a_cause_only_when_it_lasts() -> None:
    """An absence rule: the clock tells a hang from a log that simply ends."""
    text = b"n1:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 2 via P2P/IPC - Init COMPLETE\n"
    watcher = Watcher()
    assert watcher.take("a", text, idle_s=1.0) == ()
    told = watcher.take("a", b"", idle_s=300.0)
    assert [finding.cause.id for finding in told] == ["peer_to_peer_hang"]
    assert "300 s" in told[0].sentence


def test_progress_after_the_initialisation_ends_the_suspicion() -> None:
    """What follows an initialisation shows that nothing hangs."""
    watcher = Watcher()
    text = b"n1:1:1 [0] NCCL INFO Init COMPLETE\n"
    later = b"INFO 01-01 00:00:00 [x.py:1] Loading weights took 3 s\n"
    assert watcher.take("a", text + later, idle_s=300.0) == ()


def test_many_waits_for_remote_kv_are_a_cause_and_a_few_are_not() -> None:
    """Waiting is normal; waiting again and again without an end is not."""
    line = b"DEBUG 01-01 00:00:00 [s.py:1] cmpl-1 is still in WAITING_FOR_REMOTE_KVS state.\n"
    assert diagnose([("a", line * 3)]).verdict == "healthy"
    assert diagnose([("a", line * 40)]).causes[0].cause.id == "remote_kv_never_came"


def test_a_live_log_tells_each_cause_once() -> None:
    """New causes are told when they appear, and never again."""
    watcher = Watcher()
    first = watcher.take("a", BY_NAME["hash_seed_differs"].encode())
    again = watcher.take("a", BY_NAME["hash_seed_differs"].encode())
    second = watcher.take("a", BY_NAME["gpu_off_bus"].encode())
    assert [finding.cause.id for finding in first] == ["hash_seed_differs"]
    assert again == ()
    assert [finding.cause.id for finding in second] == ["gpu_off_bus"]
    assert watcher.report().causes[0].cause.id == "gpu_off_bus"


def test_the_last_line_of_a_live_log_counts_at_its_end() -> None:
    """Without a newline a line may go on, until the log is closed; then its cause is told."""
    watcher = Watcher()
    assert watcher.take("a", b"CUDA error: invalid device ordinal") == ()
    assert [finding.cause.id for finding in watcher.close("a")] == ["gpu_ordinal"]
    assert watcher.close("a") == ()
    assert watcher.report().verdict == "cause"


@settings(max_examples=40, deadline=None)
@given(st.lists(PIECES, min_size=1, max_size=30), st.integers(1, 400))
def test_chunks_do_not_matter(pieces: list[str], size: int) -> None:
    """However the bytes are cut, the same evidence is found. Whether a terminal wrapped the lines
    is judged from the first chunk, and left out here."""
    data = "\n".join(pieces).encode()
    whole, cut = Doctor(), Doctor()
    with mock.patch("pagoda.advise.doctor.lines._WRAP_BYTES", ()):
        whole.feed("a", data)
        for at in range(0, len(data), size):
            cut.feed("a", data[at : at + size])
        for doctor in (whole, cut):
            doctor.close("a")
    assert {sign: tally.count for sign, tally in whole.examination.facts.tallies.items()} == {
        sign: tally.count for sign, tally in cut.examination.facts.tallies.items()
    }


@settings(max_examples=20, deadline=None)
@given(st.integers(0, len(PREEMPTED) - 1))
def test_a_line_counts_once_wherever_it_lies(cut: int) -> None:
    """Only a line longer than the longest allowed is split, not one across a multiple of that."""
    lead = "x" * (MAX_LINE_CHARS - cut - 1)
    filler = "x" * (MAX_LINE_CHARS - len(PREEMPTED) - 2)
    data = "\n".join([lead, *[PREEMPTED, filler] * 10, ""]).encode()
    assert all(data.find(b"W", at) == at for at in range(len(lead) + 1, len(data), MAX_LINE_CHARS))
    whole, cut_up = Doctor(), Doctor()
    whole.feed("a", data)
    for at in range(len(data)):
        cut_up.feed("a", data[at : at + 1])
    assert [doctor.examination.facts.count("preempted") for doctor in (whole, cut_up)] == [10, 10]


@settings(max_examples=60, deadline=2000)
@given(st.lists(st.one_of(st.binary(max_size=300), PIECES.map(str.encode)), max_size=20))
def test_no_bytes_break_it(pieces: list[bytes]) -> None:
    """Any bytes at all give a report."""
    report = diagnose([("a", b"\n".join(pieces)), ("b", b"".join(pieces))])
    assert report.verdict in {"healthy", "cause", "insufficient"}
    assert (report.verdict == "cause") == bool(report.causes)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [needle for sign in signs() for needle in sign.needles] + [" ", "\n", ": ", "(", "é"]
        ),
        max_size=300,
    )
)
def test_no_heap_of_needles_breaks_it(words: list[str]) -> None:
    """Lines made of nothing but needles, in any order, give a report."""
    report = diagnose([("a", "".join(words).encode())])
    assert report.verdict in {"healthy", "cause", "insufficient"}


@pytest.mark.parametrize("sign", signs(), ids=lambda sign: sign.id)
def test_no_pattern_is_slow_on_a_hostile_line(sign: object) -> None:
    """Repeats of a sign's own needles, and near misses, take a bounded number of seconds."""
    from pagoda.advise.doctor.model import Sign

    assert isinstance(sign, Sign)
    examination = Examination([sign])
    hostile = [needle * 4000 for needle in sign.needles[:6]]
    hostile += [f"{needle} " * 3000 for needle in sign.needles[:3]]
    hostile += [needle + "a" * 5000 for needle in sign.needles[:3]]
    start = time.process_time()
    examination.feed("a", "\n".join(hostile).encode() + b"\n")
    assert time.process_time() - start < 5.0


def test_a_line_without_an_end_does_not_grow_memory() -> None:
    """Three megabytes without a newline are cut, and a fault within is still seen."""
    doctor = Doctor()
    filler = b"x" * (1 << 20)
    for part in (filler, b" CUDA out of memory. " + filler, filler):
        doctor.feed("a", part)
        carried = doctor.examination.carried_bytes
        assert carried <= 2 << 20
    doctor.close("a")
    assert doctor.report().causes[0].cause.id == "gpu_out_of_memory"


def test_a_flood_of_one_warning_is_thinned_and_still_counted() -> None:
    """A hundred thousand equal warnings are counted within a tenth, and a rare fault is seen."""
    line = b"WARNING 01-01 00:00:00 scheduler.py:1] Sequence group 1 is preempted by x\n"
    rare = b"n1:1:1 [0] x NCCL WARN Error: failed to extend /dev/shm/nccl-x to 1 bytes\n"
    doctor = Doctor()
    doctor.feed("a", line * 50_000 + rare + line * 50_000)
    doctor.close("a")
    assert abs(doctor.examination.facts.count("preempted") - 100_000) < 10_000
    assert doctor.report().causes[0].cause.id == "nccl_shm_too_small"


@settings(max_examples=60, deadline=None)
@given(
    st.binary(max_size=2000), st.lists(st.text("abcdef_ -", min_size=5, max_size=12), min_size=1)
)
def test_the_scan_finds_what_a_search_finds(data: bytes, needles: list[str]) -> None:
    """Every occurrence of every needle lies at a hit of its window."""
    chosen = list(dict.fromkeys(needles))
    chunk = b"".join((data, chosen[0].encode(), data, chosen[-1].upper().encode(), data))
    scan = NeedleScan(chosen)
    where, codes = scan.hits(chunk)
    for number, needle in enumerate(scan.needles):
        at = chunk.lower().find(needle.encode())
        while at >= 0:
            inside = (where >= at) & (where <= at + len(needle) - 5)
            assert any(number in scan.needles_of(int(code)) for code in codes[inside])
            at = chunk.lower().find(needle.encode(), at + 1)


@pytest.mark.parametrize(
    "line",
    [
        "INFO 01-01 00:00:00 [retry.py:1] will retry after CUDA out of memory",
        "DEBUG 01-01 00:00:00 [health.py:1] watching for: GPU has fallen off the bus",
        "[2026-01-01 00:00:00] server_args=ServerArgs(on_error='CUDA out of memory', tp_size=1)",
        "WARNING 01-01 00:00:00 [a.py:1] non-default args: {'note': 'No space left on device'}",
    ],
)
def test_a_fault_that_is_only_mentioned_is_not_believed(line: str) -> None:
    """Lines at INFO and DEBUG, and printed settings, name faults without having any."""
    assert diagnose([("a", line.encode())]).verdict == "healthy"


@pytest.mark.parametrize("level", ["INFO", "WARNING", "ERROR"])
def test_what_engines_say_calmly_is_believed_all_the_same(level: str) -> None:
    """Waiting for GPUs is announced at INFO and is still the cause."""
    line = f"{level} 01-01 00:00:00 [ray.py:1] Waiting for creating a placement group of specs"
    assert diagnose([("a", line.encode())]).causes[0].cause.id == "ray_no_place"
