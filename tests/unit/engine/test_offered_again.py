"""What becomes of a request's blocks when it ends: tiers that lack them get them."""

from __future__ import annotations

from engine_harness import EngineHarness, prompt_of

from pagoda.store.level import Level


def upper(engine: EngineHarness) -> Level:
    """The tier in memory."""
    return engine.io.store.levels()[0]


def test_what_was_restored_from_below_comes_up_again() -> None:
    """A prefix that memory has lost is read from the drive, and lies in memory once the request
    that read it has ended, as old as it was."""
    engine = EngineHarness()
    first = engine.ask("a", prompt_of(200), tokens=6)
    engine.run()
    engine.device.forget()
    keys = first.keys[:11]
    level = upper(engine)
    born_s = engine.io.store.created_s(keys[0])
    engine.io.clock.advance(1000)
    engine.io.store.discard(level, [engine.io.slot("upper", key) for key in keys])
    engine.io.settle()
    again = engine.ask("b", prompt_of(200), tokens=6)
    engine.run()
    assert again.cached_restored == 176
    assert level.state.prefix(keys) == [engine.io.slot("upper", key) for key in keys]
    assert {int(level.sealed.seals.created_s[slot]) for slot in level.state.prefix(keys)} == {
        born_s
    }


def test_what_was_cleared_meanwhile_stays_gone() -> None:
    """Blocks that were dropped everywhere while a request used them do not come back when it
    ends; what it computes after that does."""
    engine = EngineHarness()
    sequence = engine.ask("a", prompt_of(160), tokens=40)
    for _ in range(4):
        engine.turn()
    cleared = list(sequence.keys[: sequence.published])
    assert len(cleared) == 10
    engine.io.settle()
    slots = [engine.device.state.slot_of(key) for key in cleared]
    engine.device.residency.retire([slot for slot in slots if slot is not None])
    engine.io.store.clear()
    engine.run()
    assert engine.io.store.match(cleared) == 0
    assert all(upper(engine).state.slot_of(key) is None for key in cleared)
    assert upper(engine).state.slot_of(sequence.keys[10]) is not None
