"""The connector in the real SGLang 0.5.23 on a CPU: what is restored equals what was computed.

Restored answers are compared with SGLang's own hit on the device, which computes the same tokens
in the same steps: tokens and log-probabilities are equal to the last bit. Each test looks at
Pagoda's counters as well, so that none passes because nothing was restored.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sglang_checks import (
    CACHED_TOKENS,
    REFUSED,
    RESTORED,
    SKIPPED,
    TOLD,
    ask_until_stored,
    prompt_of,
    restore,
    restore_in_the_end,
)
from sglang_harness import Answer, Server, StartFailed, pagoda_entry
from slab_damage import change_payloads

from pagoda.tiers.drive import slab
from pagoda.tiers.drive.lock import DirectoryLock

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]

_CACHED_BYTES = CACHED_TOKENS * 1024
_DEADLINE_S = 1.0


@pytest.fixture(scope="module")
def crashed(
    sglang: Any, tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Answer]:
    """The directory of a server that has answered prompt 1 and was killed, and that answer."""
    directory = tmp_path_factory.mktemp("kv")
    server = sglang(model=tiny_llama, entry=_entry(directory))
    _, local = ask_until_stored(server, prompt_of(1))
    server.kill()
    return directory, local


@pytest.fixture(scope="module")
def lasting(sglang: Any, tiny_llama: Path, crashed: tuple[Path, Answer]) -> Server:
    """A server over that directory."""
    server: Server = sglang(model=tiny_llama, entry=_entry(crashed[0]))
    return server


@pytest.fixture
def server(lasting: Server) -> Iterator[Server]:
    """The same, with drives that work before the test and after it."""
    yield lasting
    lasting.break_drives()


def _entry(directory: Path) -> dict[str, Any]:
    # Scrubbing would take changed bytes out of service before anybody asks.
    store = {"restore_deadline": f"{_DEADLINE_S}s", "scrub_rate": "0"}
    return pagoda_entry(directory, {"store": store})


def test_an_answer_restored_after_a_crash_is_the_device_hits_to_the_bit(
    server: Server, crashed: tuple[Path, Answer]
) -> None:
    """Another server restores what the first one computed before it was killed."""
    before = server.total(RESTORED)
    restored = restore(server, prompt_of(1))
    assert restored == crashed[1]
    assert restored.stored == CACHED_TOKENS
    server.wait_for(RESTORED, before + _CACHED_BYTES)


def test_an_answer_restored_after_a_flush_is_the_device_hits_to_the_bit(server: Server) -> None:
    """The same in one server, which says so in its metrics and copies nothing in memory."""
    _, local = ask_until_stored(server, prompt_of(2))
    before, told = server.total(RESTORED), server.total(TOLD)
    restored = restore(server, prompt_of(2))
    assert restored == local
    assert restored.stored == CACHED_TOKENS
    server.wait_for(RESTORED, before + _CACHED_BYTES)
    assert server.total(TOLD) == told + CACHED_TOKENS
    assert server.total("pagoda_bounced_copies_total") == 0


def test_a_salt_parts_what_is_stored(server: Server) -> None:
    """SGLang's own cache_salt is in the names of pages: another one finds nothing."""
    ask_until_stored(server, prompt_of(3))
    server.flush()
    assert server.ask(prompt_of(3), salt="another").cached == 0
    assert server.ask(prompt_of(3)).stored == CACHED_TOKENS


def test_changed_bytes_are_refused_and_computed_anew(
    server: Server, crashed: tuple[Path, Answer]
) -> None:
    """Payloads change under intact headers: none is served, and what is computed is stored again
    and restored."""
    cold, local = ask_until_stored(server, prompt_of(4))
    assert change_payloads(crashed[0]) > 0
    restored, refused = server.total(RESTORED), server.total(REFUSED)
    computed = restore(server, prompt_of(4))
    assert computed.cached == 0
    assert computed == cold
    server.wait_for(REFUSED, refused + 1, reason="corrupt")
    assert server.total(RESTORED) == restored
    assert restore_in_the_end(server, prompt_of(4), wanted=cold) == local


def test_changed_bytes_change_the_answer_when_nobody_looks(
    server: Server, crashed: tuple[Path, Answer]
) -> None:
    """The twin of the tests above: with the seal's check off, changed bytes are served, and seen.
    Else equality would prove nothing."""
    _, local = ask_until_stored(server, prompt_of(5))
    change_payloads(crashed[0])
    server.break_drives(unsealed=True)
    before = server.total(RESTORED)
    restored = restore(server, prompt_of(5))
    assert restored.stored == CACHED_TOKENS
    server.wait_for(RESTORED, before + _CACHED_BYTES)
    assert restored != local
    assert restored.tokens != local.tokens


def test_a_full_drive_stores_nothing_and_answers_as_before(server: Server) -> None:
    """No space on the medium: the answer is computed, twice, and storage goes on when there is."""
    server.break_drives(full=1.0)
    skipped = server.total(SKIPPED)
    cold = server.ask(prompt_of(6))
    server.wait_for(SKIPPED, skipped + 1)
    computed = restore(server, prompt_of(6))
    assert computed.cached == 0
    assert computed == cold
    server.break_drives()
    assert restore_in_the_end(server, prompt_of(6), wanted=cold).tokens == cold.tokens


def test_a_drive_that_fails_to_read_costs_nothing_but_time(server: Server) -> None:
    """EIO: the answer is computed; what was stored is restored when the drive reads again."""
    cold, local = ask_until_stored(server, prompt_of(7))
    refused = server.total(REFUSED)
    server.break_drives(error=1.0)
    computed = restore(server, prompt_of(7))
    assert computed.cached == 0
    assert computed == cold
    server.wait_for(REFUSED, refused + 1)
    server.break_drives()
    assert restore_in_the_end(server, prompt_of(7), wanted=cold) == local


def test_a_stuck_drive_costs_the_deadline_and_no_more(server: Server) -> None:
    """A drive that does not come back: the request is computed, and memory that the drive may
    still write to is used by nobody until it has come back."""
    cold, local = ask_until_stored(server, prompt_of(8))
    server.break_drives(stuck=True)
    computed = restore(server, prompt_of(8))
    assert computed.cached == 0
    assert computed == cold
    server.wait_for("pagoda_held_pages", 1)
    server.break_drives()
    server.wait(lambda: server.total("pagoda_held_pages") == 0, "pages given back")
    assert restore_in_the_end(server, prompt_of(8), wanted=cold) == local


def test_storage_is_detached_and_attached_while_the_server_runs(
    server: Server, crashed: tuple[Path, Answer]
) -> None:
    """Detached, it has let go of its directory and is asked nothing; attached again, it has what
    it had."""
    cold, local = ask_until_stored(server, prompt_of(10))
    server.detach()
    for path in crashed[0].rglob(slab.SLAB_NAME):
        DirectoryLock(path.parent, tier="drive").release()
    computed = restore(server, prompt_of(10))
    assert computed.cached == 0
    assert computed == cold
    server.attach(_entry(crashed[0]))
    restored = restore(server, prompt_of(10))
    assert restored == local
    assert restored.stored == CACHED_TOKENS


def test_a_second_server_on_one_directory_is_refused(
    server: Server, sglang: Any, tiny_llama: Path, crashed: tuple[Path, Answer]
) -> None:
    """It does not start, says which directory and why, and the first one works on."""
    with pytest.raises(StartFailed) as refused:
        sglang(model=tiny_llama, entry=_entry(crashed[0]))
    assert "DirectoryLocked" in refused.value.log
    assert str(crashed[0]) in refused.value.log
    _, local = ask_until_stored(server, prompt_of(9))
    assert restore(server, prompt_of(9)) == local
