"""What vLLM asks of PagodaPolicy, call by call, for a replay (support/vllm_policy_model.py).

Names are hexadecimal; times are those that the policy saw.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Sink = Callable[[dict[str, Any]], None]


def record(path: Path) -> None:
    """Every PagodaPolicy that is made from now on writes its calls to a file, a line each."""
    from pagoda.connect.vllm import PagodaPolicy

    file = path.open("w", buffering=1)
    begin = PagodaPolicy.__init__

    def began(self: Any, cache_capacity: int) -> None:
        begin(self, cache_capacity)
        listen(self, lambda event: print(json.dumps(event), file=file))

    PagodaPolicy.__init__ = began


def listen(policy: Any, sink: Sink) -> None:
    """Tell `sink` of every call of one policy, after it was answered."""
    Listener(policy, sink)


class Listener:
    """Stands in the place of one policy's methods."""

    def __init__(self, policy: Any, sink: Sink) -> None:
        self._sink = sink
        self._seen: dict[str, float] = {}
        hosted, pins = policy.hosted, policy.pins
        hosted.clock = self._watched("at_s", hosted.clock)
        pins._wall_ms = self._watched("wall_ms", pins._wall_ms)
        sink(
            {
                "call": "new",
                "slots": hosted.slots,
                "policy": type(hosted._policy).__name__,
                "pins": [pins._limits.total, pins._limits.owner],
            }
        )
        for name in dir(self):
            if name.startswith("do_"):
                self._wrap(policy, name.removeprefix("do_"), getattr(self, name))

    def do_insert(self, key: bytes, chunk: Any) -> dict[str, Any]:
        return {"name": key.hex(), "slot": chunk.chunk_id, "free": chunk.ref_cnt == 0}

    def do_remove(self, key: bytes) -> dict[str, Any]:
        return {"name": key.hex()}

    def do_touch(self, keys: Any, req_context: Any) -> dict[str, Any]:
        return {"names": _hex(keys)}

    def do_on_store_miss(self, keys: Any, req_context: Any) -> dict[str, Any]:
        return {"names": _hex(keys), **_request(req_context)}

    def do_on_request_finished(
        self, key_groups: Any, insertion_only: Any, reused: Any, req_context: Any
    ) -> dict[str, Any]:
        return {"groups": [_hex(keys) for keys in key_groups], **_request(req_context)}

    def do_evict(self, n: int, protected: Any) -> dict[str, Any]:
        return {"count": n, "spared": _hex(protected)}

    def do_clear(self) -> dict[str, Any]:
        return {}

    def do_mark_evictable(self, key: bytes) -> dict[str, Any]:
        return {"name": key.hex()}

    def do_mark_non_evictable(self, key: bytes) -> dict[str, Any]:
        return {"name": key.hex()}

    def _wrap(self, policy: Any, name: str, told: Callable[..., dict[str, Any]]) -> None:
        method = getattr(policy, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self._seen = {}
            event = {"call": name, **told(*args, **kwargs)}  # before chunks change
            answer = method(*args, **kwargs)
            if name == "evict":
                event["answer"] = None if answer is None else _hex(key for key, _ in answer)
            self._sink({**event, **self._seen})
            return answer

        setattr(policy, name, call)

    def _watched(self, what: str, clock: Callable[[], float]) -> Callable[[], float]:
        def read() -> float:
            self._seen[what] = clock()
            return self._seen[what]

        return read


def _hex(keys: Any) -> list[str]:
    return [key.hex() for key in keys]


def _request(req_context: Any) -> dict[str, Any]:
    return {
        "request": req_context.req_id,
        "params": req_context.kv_transfer_params,
        "ends": [[key.hex(), end] for key, end in req_context._offload_key_positions.items()],
    }
