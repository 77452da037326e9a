"""`pagoda verify` against vLLM's own HTTP server: sound tiers, broken ones, and none.

Exit codes are those of the command, run as an operator runs it. The same servers then show that
what was computed before a signal is on the drive behind it, where vLLM is given time to end.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from verify_command import verify
from vllm_harness import pagoda_tier
from vllm_server import VllmServer

from pagoda.store.inspect import DriveInspector

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]

_DEEP = "/reset_prefix_cache?reset_external=true"
_TIME_TO_END = ("--shutdown-timeout", "30")  # without it vLLM kills its engine at once

Serve = Callable[..., VllmServer]


@pytest.fixture
def serve(vllm_python: Path, demo_model: Path, tmp_path: Path) -> Iterator[Serve]:
    """Starts a server: serve(tier, …). It is ended with the test."""
    servers: list[VllmServer] = []

    def begin(*tiers: Any, **more: Any) -> VllmServer:
        directory = tmp_path / f"server-{len(servers)}"
        servers.append(VllmServer(vllm_python, demo_model, directory, *tiers, **more))
        servers[-1].wait()
        return servers[-1]

    yield begin
    for server in servers:
        server.close()


def _of(report: dict[str, Any], emptied: str) -> list[dict[str, Any]]:
    """The findings after one way to push out."""
    return [finding for finding in report["findings"] if finding["emptied"] == emptied]


def _chunks_on(drive: Path) -> int:
    return len(DriveInspector(drive).entries()[0])


def test_a_sound_tier_is_equal_and_a_broken_one_differs(serve: Serve, tmp_path: Path) -> None:
    """PagodaTier restores what was computed, from host memory and from the drive. Then it serves
    other bits, and then another prompt's chunk: only what came from the drive differs, and the
    verdict does."""
    fault = tmp_path / "fault"
    tier = pagoda_tier(tmp_path / "kv")
    broken = {**tier, "type": "BrokenTier", "module_path": "broken_tier", "fault": str(fault)}
    server = serve(broken, flags=_TIME_TO_END)
    status, report = verify(server.url, "--lengths", "127,129,257")
    assert (status, report["verdict"]) == (0, "equal"), report
    for way in report["pushed_out"]:
        alone = [one for one in _of(report, way) if not one["concurrent"]]
        assert [one["restored"] for one in alone] == [None, 128, 256]
        assert [one["difference"] for one in alone[1:]] == [0.0, 0.0]
    for kind in ("bits", "another"):
        fault.write_text(kind)
        status, report = verify(server.url, "--lengths", "129")
        assert (status, report["verdict"]) == (1, "differs"), (kind, report)
        assert {one["verdict"] for one in _of(report, "/reset_prefix_cache")} == {"equal"}
        alone = _of(report, _DEEP)[0]
        assert (alone["verdict"], alone["restored"]) == ("differs", 128)
    _stop_and_find_all(server, tmp_path / "kv", signal.SIGTERM)


def test_the_in_tree_file_tier_is_equal(serve: Serve, tmp_path: Path) -> None:
    """vLLM's own tier of files is verified as well, with Pagoda's below it."""
    files = {"type": "fs", "root_dir": str(tmp_path / "files")}
    server = serve(files, pagoda_tier(tmp_path / "kv"), flags=_TIME_TO_END)
    status, report = verify(server.url, "--lengths", "129")
    assert (status, report["verdict"]) == (0, "equal"), report
    assert next(one["restored"] for one in _of(report, _DEEP)) == 128
    assert 'tier="1:fs"' in server.metrics()
    _stop_and_find_all(server, tmp_path / "kv", signal.SIGINT)


def test_a_device_cache_alone(serve: Serve) -> None:
    """No layer below it: equal, of the device cache alone; and prompts shorter than a block
    prove nothing."""
    server = serve()
    status, report = verify(server.url, "--lengths", "129")
    assert (status, report["verdict"]) == (0, "equal"), report
    assert "device cache alone" in report["reason"]
    status, report = verify(server.url, "--lengths", "127")
    assert (status, report["reason"]) == (3, "nothing was cached, even on the device")


def _stop_and_find_all(server: VllmServer, drive: Path, how: signal.Signals) -> None:
    """Ask for five blocks more, send the signal at once, and count them on the drive. The last
    one vLLM hands down with the request's end, in a step that it may not come to."""
    before = _chunks_on(drive)
    answer = server.ask(" ".join(f"Number {n} follows {n - 1}." for n in range(70, 200)))
    blocks = answer["usage"]["prompt_tokens"] // 128
    assert blocks >= 5
    server.stop(how)
    assert _chunks_on(drive) - before in (blocks - 1, blocks), server.said()[-2000:]
