"""Calls from other threads: made in order, answered, refused, or withdrawn in time."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest

from pagoda.core.errors import EngineBusy, EngineClosed
from pagoda.engine.commands import Commands


def commands(patience_s: float = 10.0) -> Commands:
    """A queue whose engine is the test."""
    return Commands(threading.Event(), patience_s=patience_s)


class Asking:
    """A thread that asks, and what became of it."""

    def __init__(self, queue: Commands, function) -> None:
        self.answer: object = None
        self.error: Exception | None = None
        self._queue, self._function = queue, function
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        try:
            self.answer = self._queue.ask(self._function)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    def end(self) -> None:
        """Wait for it."""
        self._thread.join(10)
        assert not self._thread.is_alive()


def test_what_is_asked_is_called_in_the_engines_thread() -> None:
    """And its result, or its error, goes back to whoever asked."""
    wake = threading.Event()
    queue = Commands(wake, patience_s=10.0)
    asking = Asking(queue, threading.get_ident)
    assert wake.wait(10), "the engine is woken"
    queue.run()
    asking.end()
    assert asking.answer == threading.get_ident()
    wake.clear()
    failing = Asking(queue, lambda: {}["absent"])
    assert wake.wait(10)
    queue.run()
    failing.end()
    assert isinstance(failing.error, KeyError)


def test_an_engine_that_does_not_come_to_it_is_busy_and_does_nothing_later() -> None:
    """Its step hung for a minute, TimeoutError became a 500, and the call that the client had
    been told had failed was carried out afterwards."""
    queue = commands(patience_s=0.0)
    called: list[int] = []
    with pytest.raises(EngineBusy) as busy:
        queue.ask(lambda: called.append(1))
    assert busy.value.remedy
    queue.run()
    assert called == []


def test_what_has_begun_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine took the call up at the last moment: it was done, and the caller hears so."""
    begun, given_up = threading.Event(), threading.Event()

    class Noticed(Future):
        """Tells when its caller's patience is over."""

        def cancel(self) -> bool:
            given_up.set()
            return super().cancel()

    class TakenUp(Commands):
        """An engine that begins with a call at once."""

        def send(self, call) -> None:
            super().send(call)
            threading.Thread(target=self.run).start()
            assert begun.wait(10)

    def slow() -> str:
        begun.set()
        assert given_up.wait(10)
        return "done"

    monkeypatch.setattr("pagoda.engine.commands.Future", Noticed)
    assert TakenUp(threading.Event(), patience_s=0.0).ask(slow) == "done"


def test_a_functions_own_timeout_is_not_the_engines() -> None:
    """It is passed on as it is."""
    queue = commands()

    def fails() -> None:
        raise TimeoutError("a server's")

    asking = Asking(queue, fails)
    assert queue._wake.wait(10)
    queue.run()
    asking.end()
    assert str(asking.error) == "a server's"


def test_after_the_end_calls_are_refused_and_earlier_ones_are_made() -> None:
    """Nobody waits for an answer that never comes; one failure keeps no other call from it."""
    queue, called = commands(), []
    queue.send(lambda: called.append(1))
    queue.send(lambda: called.append(1 / 0))
    queue.send(lambda: called.append(2))
    queue.close()
    with pytest.raises(EngineClosed):
        queue.ask(lambda: called.append(3))
    queue.run_out()
    assert called == [1, 2]
