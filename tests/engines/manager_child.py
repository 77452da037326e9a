"""vLLM's own manager of host memory over PagodaPolicy, and no engine: random requests
(policy_driver.py) for each policy, recorded (policy_recorder.py).

Started with the path of a JSON file: policies, seeds, groups, chunks, steps and a directory. Writes
a file of calls for each run, and says how many of vLLM's answers were refusals.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from pathlib import Path
from typing import Any

from policy_driver import Traffic
from policy_recorder import listen
from vllm.v1.kv_offload.base import ReqContext
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager


class Manager(CPUOffloadingManager):
    """The manager, with the loads of a secondary tier beside those of the device."""

    def check(self) -> None:
        """What vLLM counts is what its chunks say, and what Pagoda keeps of them agrees."""
        policy: Any = self._policy
        chunks = policy._chunks
        numbers = [chunk.chunk_id for chunk in chunks.values()]
        assert len(set(numbers)) == len(numbers), "two chunks have one place"
        assert not set(numbers) & set(self._free_list), "a free place has a chunk"
        assert len(numbers) + self._get_num_free_chunks() == self._num_chunks
        free = sum(chunk.ref_cnt == 0 for chunk in chunks.values())
        assert free == self._num_evictable_cache_chunks
        assert self._num_write_pending_chunks == sum(not c.is_ready for c in chunks.values())
        leased = {name for name, slot in policy.hosted.published() if policy.hosted._leases[slot]}
        assert leased == {name for name, chunk in chunks.items() if chunk.ref_cnt != 0}
        policy.hosted.check_invariants()
        policy.pins.check_invariants()


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())
    refused = 0
    for name, groups, seed in itertools.product(plan["policies"], plan["groups"], plan["seeds"]):
        os.environ["PAGODA_HOST_POLICY"] = name
        manager = Manager(plan["chunks"], "PagodaPolicy", "pagoda.connect.vllm", enable_events=True)
        with (Path(plan["directory"]) / f"{name}-{groups}-{seed}.jsonl").open("w") as file:
            listen(manager._policy, lambda event, file=file: print(json.dumps(event), file=file))
            traffic = Traffic(manager, ReqContext, seed=seed, groups=groups)
            traffic.run(plan["steps"], manager.check)
        refused += traffic.refused
    print(json.dumps({"refused": refused}))


if __name__ == "__main__":
    main()
