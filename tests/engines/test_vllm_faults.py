"""A thousand requests of the real vLLM while its drive fails: not one wrong token.

Bits turn over, the file is cut short, reads are errors or do not come back in time. Answers are
held against what the same engine computed before; how much was restored, and how much was refused
and why, is told by Pagoda's counters in vLLM's /metrics.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from slab_damage import Damage
from vllm_harness import Child, launch, pagoda_tier, total
from vllm_tiny import AT_ONCE, LLM, SHAPE, Prompt, ask, prompts_of, truth

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]

_ROUNDS = 32  # of AT_ONCE requests, for each of four faults: 1,024 requests
_PAUSE_S = 0.05  # how long a drive that failed is left alone here: else little would be restored
_STORE = {"scrub_rate": "0", "restore_deadline": "300ms"}

TinyModel = Callable[..., Path]


@pytest.fixture
def tiny(vllm_python: Path, tiny_model: TinyModel, tmp_path: Path) -> Any:
    """Starts an engine with a tiny model: tiny(capacity, wrong=True)."""
    children: list[Child] = []
    model = tiny_model("LlamaForCausalLM", dtype="float32", **SHAPE)

    def begin(capacity: str, **more: Any) -> Child:
        drive = {"path": str(tmp_path / "kv"), "capacity": capacity, "free_floor": "1MiB"}
        tier = pagoda_tier(tmp_path / "kv", {"drive": drive, "store": _STORE})
        place = tmp_path / f"engine-{len(children)}"
        child = launch(vllm_python, model, place, tier, llm=LLM, pause_s=_PAUSE_S, **more)
        children.append(child)
        assert "ready" in child.began, child.began
        return child

    yield begin
    for child in children:
        child.close()


def _wrong(child: Child, known: dict[Prompt, list[int]], rng: random.Random) -> int:
    """Ask some of the prompts after a reset: how many answers are not the computed ones."""
    child.do("reset")
    some = rng.sample(list(known), AT_ONCE)
    return sum(
        answer["tokens"] != known[prompt]
        for prompt, answer in zip(some, ask(child, some), strict=True)
    )


def _refused(child: Child, reason: str) -> float:
    return total(child, "pagoda_refused_chunks_total", reason=reason)


def test_no_answer_is_wrong_whatever_the_drive_does(tiny: Any, tmp_path: Path) -> None:
    """Each fault in turn, eight requests at a time, all restored as far as the drive allows."""
    child = tiny("64MiB")
    known = truth(child, prompts_of(1, 40))
    damage, rng = Damage(tmp_path / "kv", seed=2), random.Random(3)

    def flip(turn: int) -> None:
        damage.flip(4, bits=1 + turn % 3)

    def cut(turn: int) -> None:
        (damage.cut, damage.grow)[turn % 2]()

    def ask_for(**faults: Any) -> Callable[[int], None]:
        return lambda turn: child.do("faults", seed=turn, **faults) and None

    kinds = {
        "corrupt": flip,
        "truncated": cut,
        "io_error": ask_for(eio=0.2),
        "timeout": ask_for(late=0.05, late_s=0.6),
    }
    for reason, hurt in kinds.items():
        before = total(child, "pagoda_restored_bytes_total")
        for turn in range(_ROUNDS):
            hurt(turn)
            assert _wrong(child, known, rng) == 0, f"{reason}, round {turn}"
        assert total(child, "pagoda_restored_bytes_total") > before, f"{reason}: none restored"
        assert _refused(child, reason) > 0, f"{reason}: none noticed"
    child.do("faults")
    assert total(child, "pagoda_bounced_copies_total") == 0


def test_the_same_damage_makes_wrong_answers_when_nobody_looks(tiny: Any, tmp_path: Path) -> None:
    """The twin: with the seal's check off, flipped bits are served, and seen in the answers."""
    child = tiny("64MiB", wrong=True)
    known = truth(child, prompts_of(1, 40))
    damage, rng = Damage(tmp_path / "kv", seed=2), random.Random(3)
    wrong = 0
    for turn in range(_ROUNDS):
        damage.flip(4, bits=1 + turn % 3)
        wrong += _wrong(child, known, rng)
    assert wrong > 0


def test_a_full_drive_makes_room_and_one_without_space_is_left_alone(tiny: Any) -> None:
    """Four times as much as fits: what came last is restored. Then writes find no space, as on a
    file system that copies what it overwrites: answers stay right, it is counted, and storing
    goes on once there is space."""
    child = tiny("6MiB")  # 64 chunks, and the header table before them
    known = truth(child, prompts_of(4, 40))
    assert total(child, "pagoda_stored_chunks_total") > 64
    child.do("reset")
    last = list(known)[-AT_ONCE:]
    restored = ask(child, last)
    assert [one["tokens"] for one in restored] == [known[prompt] for prompt in last]
    assert any(one["cached"] for one in restored)
    assert total(child, "pagoda_restored_bytes_total") > 0
    child.do("faults", full=True)
    truth(child, prompts_of(5, 24))
    assert child.do("faults", full=True)["counts"]["full"] > 0
    assert total(child, "pagoda_skipped_chunks_total", reason="full") > 0
    assert _wrong(child, known, random.Random(6)) == 0
    child.do("faults")
    stored = total(child, "pagoda_stored_chunks_total")
    truth(child, prompts_of(7, 24))
    assert total(child, "pagoda_stored_chunks_total") > stored
