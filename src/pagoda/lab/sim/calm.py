"""Calm weather: no faults, all work ends, and what is stored is found again."""

from __future__ import annotations

import random
from collections.abc import Callable

from pagoda.core.holdings import Cleared, Selection
from pagoda.core.identity import Key
from pagoda.core.state import SlotState
from pagoda.lab.sim import checks
from pagoda.lab.sim.failure import Check, Failure, ensure
from pagoda.lab.sim.node import Node
from pagoda.lab.sim.world import Prompt, World
from pagoda.store.clearing import Clearing
from pagoda.testing.clock import FakeClock

_HEALTH_S = 700.0  # longer than between two looks at a drive's health, or any pause
_TRIAL_S = 65.0  # longer than between two trials of a fenced level
_PROMPTS = 4  # asked for twice
_TURNS = 4000  # a clearing ends within so many
_RECENT = "lru"  # the policy under which what a request just had stays where it was put
_MARGIN = 3  # slots that may go into quarantine meanwhile, for what the storm left behind


class Calm:
    """Clears a node's faults and holds it to its promises."""

    def __init__(
        self,
        world: World,
        rng: random.Random,
        clock: FakeClock,
        step: Callable[[Node, str], None],
    ) -> None:
        self._world = world
        self._rng = rng
        self._clock = clock
        self._step = step

    def weather(self, node: Node) -> None:
        """End the storm, then look whether the cache does its work."""
        for tier in node.tiers:
            tier.faults.clear()
            tier.drive.cure()
        node.heal()
        node.unpin()
        node.executor.unhold()
        node.calm = node.requests.patient = True
        self._settle(node, "calm")
        node.lift()  # of what the storm left to compare as well
        checks.idle(node)
        checks.invariants(node)
        checks.cleared(node)
        self._recover(node)
        node.well = True
        self._work(node)
        checks.idle(node)
        checks.invariants(node)
        checks.stale(node, self._rng)
        if self._rng.random() < 0.05:
            self._step(node, "clear for good")
            self._clear_for_good(node)
        if self._rng.random() < 0.1:
            self._step(node, "stop and start")
            node.stop()
        node.calm = node.well = node.requests.patient = False

    def _recover(self, node: Node) -> None:
        """Give the store time to notice that the drives are well again."""
        for _ in range(2):
            self._clock.advance(_HEALTH_S)
            for _ in range(3):
                self._settle(node, "recover")
                self._clock.advance(_TRIAL_S)

    def _work(self, node: Node) -> None:
        """Ask for a few prompts, then for the same again: the second time all that was kept is
        there."""
        node.memory.blocks.forget()
        prompts: dict[str, tuple[Prompt, int]] = {}
        wanted: set[Key] = set()
        room = self._usable_slots(node, "host") - _MARGIN
        node.requests.fresh.clear()
        refused = node.watch.refused()
        for _ in range(_PROMPTS):
            prompt = self._world.ask(node.namespace)
            if len(wanted | set(prompt.keys)) > room:
                break
            wanted |= set(prompt.keys)
            self._serve(node, prompt)
            prompts[prompt.name] = prompt, self._held(node, prompt)
        fits = all(len(wanted) <= self._usable_slots(node, name) for name in node.drive_levels())
        if fits and node.watch.refused() == refused and not node.suspicious(everywhere=False):
            self._check_everywhere(node)
        node.memory.blocks.forget()
        for prompt, held in prompts.values():
            kept = held if node.policies.host == _RECENT else self._held(node, prompt)
            self._serve_again(node, prompt, kept)

    def _serve_again(self, node: Node, prompt: Prompt, held: int) -> None:
        """What the node's own tiers hold of a prompt that was served, they serve again."""
        tally, sampling = node.requests.tally, node.requests.sampling
        before = tally.device + tally.restored + sampling.withheld
        refused = tally.refused
        self._serve(node, prompt)
        served = tally.device + tally.restored + sampling.withheld - before
        damaged = node.suspicious(everywhere=True) and tally.refused > refused  # by the storm
        detail = f"{prompt.name}: {served} of {held} blocks were served, without any fault"
        ensure(served >= held or damaged, Check.FOUND, detail)

    def _held(self, node: Node, prompt: Prompt) -> int:
        """How many leading blocks of a prompt the node's own tiers hold."""
        states = [level.state for level in node.levels.values()]
        for position, key in enumerate(prompt.keys):
            if all(state.slot_of(key) is None for state in states):
                return position
        return len(prompt.keys)

    def _clear_for_good(self, node: Node) -> None:
        """Clear as an operator does: proven, with no header left for a restart to find."""
        told: list[Cleared] = []
        clearing = Clearing(
            node.store, Selection(), node.memory, runtime=node.store.runtime, tell=told.append
        )
        clearing.start()
        for _ in range(_TURNS):
            moved = node.run_io()
            node.poll()
            clearing.poll()
            if not moved and clearing.done and node.store.idle:
                break
            if not moved:
                self._clock.advance(0.2)
        else:
            raise Failure(Check.LIVENESS, f"{node.name}: a clearing never ends")
        ensure(told[0].verified, Check.CLEARED, f"{node.name}: a clearing failed: {told[0]}")
        for drive in node.drives:
            left = [label.slot for label in drive.labels()]
            ensure(not left, Check.CLEARED, f"{drive.name}: headers of slots {left} still stand")

    def _check_everywhere(self, node: Node) -> None:
        """What was new to the store, and not skipped, is in memory and on a drive, where policies
        do not prefer what is older."""
        memory, drive = node.policies.host == _RECENT, node.policies.drive == _RECENT
        drives = [node.levels[name].state for name in node.drive_levels()]
        for key in node.requests.fresh:
            in_memory = node.levels["host"].state.slot_of(key) is not None
            on_drive = any(state.slot_of(key) is not None for state in drives)
            reached = (in_memory or not memory) and (on_drive or not drive)
            ensure(reached, Check.FOUND, "a saved block did not reach every rank")

    def _serve(self, node: Node, prompt: Prompt) -> None:
        self._step(node, f"serve {prompt.name}")
        node.requests.ask([(prompt, len(prompt.keys))])
        self._settle(node, "settle")

    def _settle(self, node: Node, why: str) -> None:
        self._step(node, why)
        node.settle()

    def _usable_slots(self, node: Node, name: str) -> int:
        state = node.levels[name].state
        return state.slots - state.count(SlotState.QUARANTINED)
