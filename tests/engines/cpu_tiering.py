"""vLLM's tiered offloading on a machine without a GPU.

Its spec refuses the CPU platform in one place: the worker that copies between device and host
memory. Here that is a copy in memory; connector, scheduler, tiers and metrics are vLLM's own.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

# Group, block on the device, chunk in host memory, position in that chunk.
Pair = tuple[int, int, int, int]


class CopyingWorker(OffloadingWorker):
    """Copies pages between "device" tensors and the shared host region, at once."""

    def __init__(self, kv_caches: Any, blocks_per_chunk: int, region: SharedOffloadRegion) -> None:
        self._region = region
        self._blocks_per_chunk = blocks_per_chunk
        self._groups = kv_caches.group_data_refs
        self._pages = [one.page_size_bytes for one in kv_caches.tensors]
        self._device = [
            one.tensor.view(torch.int8).view(-1, one.page_size_bytes) for one in kv_caches.tensors
        ]
        self._host = [
            region.create_next_worker_view(page * blocks_per_chunk) for page in self._pages
        ]
        self._done: list[TransferResult] = []

    def touch(self) -> None:
        """Have all pages of both sides. On GPUs they are there before the first request: device
        memory has no others, and host memory is pinned."""
        for memory in (*self._device, *self._host):
            memory.zero_()

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        return self._copy(job_id, src_spec, dst_spec, store=True)

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        return self._copy(job_id, dst_spec, src_spec, store=False)

    def get_finished(self) -> list[TransferResult]:
        done, self._done = self._done, []
        return done

    def wait(self, job_ids: set[int]) -> None:
        """Everything was copied when it was submitted."""

    def shutdown(self) -> None:
        self._host.clear()
        self._region.cleanup()

    def _copy(self, job_id: int, device: Any, host: Any, *, store: bool) -> bool:
        began_s, moved = time.perf_counter(), 0
        for group, block, chunk, part, count in _runs(self._pairs(device, host)):
            for ref in self._groups[group]:
                page = self._pages[ref.tensor_idx]
                start = part * page
                size = ref.page_size_bytes
                there = self._device[ref.tensor_idx][block : block + count, :size]
                here = self._host[ref.tensor_idx][chunk : chunk + count, start : start + size]
                if store:
                    here.copy_(there)
                else:
                    there.copy_(here)
                moved += size * count
        self._done.append(TransferResult(job_id, True, moved, time.perf_counter() - began_s))
        return True

    def _pairs(self, device: Any, host: Any) -> Iterator[Pair]:
        first_block = first_chunk = 0
        for group, (count, start) in enumerate(
            zip(device.group_sizes, device.block_indices, strict=True)
        ):
            if not count:
                continue
            skip = start % self._blocks_per_chunk
            for index in range(count):
                chunk, part = divmod(index + skip, self._blocks_per_chunk)
                block = device.block_ids[first_block + index]
                yield group, int(block), int(host.block_ids[first_chunk + chunk]), part
            first_block += count
            first_chunk += -(-(count + skip) // self._blocks_per_chunk)


def _runs(pairs: Iterable[Pair]) -> Iterator[tuple[int, int, int, int, int]]:
    """Pairs that follow each other on both sides, with how many they are: a copy for each would
    take longer than what is copied."""
    begun: Pair | None = None
    count = 0
    for pair in pairs:
        if begun and pair == (begun[0], begun[1] + count, begun[2] + count, begun[3]):
            count += 1
            continue
        if begun:
            yield *begun, count
        begun, count = pair, 1
    if begun:
        yield *begun, count


class CpuTieringSpec(TieringOffloadingSpec):
    """The tiering spec with that worker."""

    _copying: CopyingWorker | None = None

    def get_worker(self, kv_caches: Any) -> CopyingWorker:
        if self._copying is None:
            region = SharedOffloadRegion(
                engine_id=self._engine_id,
                num_chunks=self.num_chunks,
                rank=self.config.parallel.rank,
                kv_bytes_per_chunk=self.kv_bytes_per_chunk,
                cpu_page_size=self.cpu_page_size_per_worker,
            )
            self._copying = CopyingWorker(kv_caches, self.blocks_per_chunk, region)
            if self.extra_config.get("touch_memory"):
                self._copying.touch()
        return self._copying
