"""How fast a real vLLM gets a stored prompt back: `make bench-engines` (10 engine starts, minutes).

    time to first token of a 2,000-token prompt, 1,920 of them in whole blocks: computed, found on
    the device, restored after a restart by PagodaTier and by vLLM's own fs tier
    seconds that vLLM's scheduler spends in each method of PagodaTier

Two engines alternate, one with each tier, and each restores every prompt once after it has been
started again: with the page cache dropped before each, or with the files read just before. In the
second case PagodaTier is told to go through the page cache (drive.direct: off), as the fs tier
always does: past it, there is no warm. A restored answer is compared with the same prompt's next
answer, a hit on the device, in the same process. A quiet machine, please: two threads and nothing
else.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, product
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(_ROOT / "src"), str(_ROOT / "tests" / "support")]

from vllm_harness import Child, launch, pagoda_tier, story, total, vllm_home  # noqa: E402

from pagoda.lab.bench.host import facts, usable_cpus  # noqa: E402
from pagoda.lab.bench.stats import Percentiles, Spread, paired_ratio  # noqa: E402
from pagoda.lab.model import demo_model_path  # noqa: E402

_TOKENS, _CACHED = 2000, 1920
_HOST_BYTES = 600_000_000
_WARM_UP = 10_000  # a story that is no sample: an engine's first request is slow
_SIDES = ("pagoda", "fs")
_DIRECT = {"dropped": "auto", "warm": "off"}  # by the state of the page cache


@dataclass
class Samples:
    """Seconds to the first token, and what the tier's methods took."""

    computed: list[float] = field(default_factory=list)
    device: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    restored: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    calls: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    restored_bytes: float = 0.0
    bounced_copies: float = 0.0


class Side:
    """One tier below vLLM, its directory, and its engine while there is one."""

    def __init__(self, name: str, python: Path, model: Path, directory: Path) -> None:
        self.name, self._python, self._model = name, python, model
        self._store, self._directory = directory / "store", directory

    def start(self, direct: str = "auto") -> Child:
        # Neither side reads but for requests.
        own = {"store": {"scrub_rate": "0"}, "drive": {"direct": direct}}
        fs = {"type": "fs", "root_dir": str(self._store)}
        tier = pagoda_tier(self._store, own) if self.name == "pagoda" else fs
        timed = self.name == "pagoda"
        self._directory.mkdir(parents=True, exist_ok=True)
        more = {"host_bytes": _HOST_BYTES, "host": {"touch_memory": True}}
        child = launch(self._python, self._model, self._directory, tier, timed=timed, **more)
        assert "ready" in child.began, child.began
        _first_token(child, _WARM_UP, cached=None)
        return child

    def prepare(self, pages: str) -> None:
        """Bring the page cache into a known state for all that is stored."""
        for path in filter(Path.is_file, self._store.rglob("*")):
            with path.open("rb") as file:
                os.fdatasync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                while pages == "warm" and file.read(1 << 20):
                    pass


def _first_token(child: Child, prompt: int, *, cached: int | None) -> float:
    answer = child.ask(story(prompt, days=160), length=_TOKENS, tokens=2)
    assert cached is None or answer["cached"] == cached, answer
    return float(answer["first_s"])


def fill(side: Side, prompts: Sequence[int], samples: Samples) -> None:
    """Compute every prompt and store it."""
    child = side.start()
    samples.computed += [_first_token(child, prompt, cached=0) for prompt in prompts]
    child.close()


def restore(side: Side, prompts: Sequence[int], samples: Samples, pages: str) -> None:
    """Start again, and restore every prompt once."""
    child = side.start(_DIRECT[pages])
    what = f"{side.name}, {pages}"
    for prompt in prompts:
        side.prepare(pages)
        samples.restored[what].append(_first_token(child, prompt, cached=_CACHED))
        samples.device[what].append(_first_token(child, prompt, cached=_CACHED))
    if side.name == "pagoda":
        _account(child, samples)
    child.close()


def _account(child: Child, samples: Samples) -> None:
    for method, seconds in child.do("calls")["calls"].items():
        samples.calls[method] += seconds
    samples.restored_bytes += total(child, "pagoda_restored_bytes_total")
    samples.bounced_copies += total(child, "pagoda_bounced_copies_total")


def report(samples: Samples) -> dict[str, Any]:
    """Medians, and ratios of pairs that were taken one after the other."""
    computed = Spread.of(samples.computed)
    device = Spread.of(chain(*samples.device.values()))
    ratios: dict[str, Any] = {}
    for what, seconds in samples.restored.items():
        ratios[f"{what} / device"] = asdict(paired_ratio(seconds, samples.device[what]))
        ratios[f"computed / {what}"] = computed.median / Spread.of(seconds).median
    for pages in _DIRECT:
        pair = [samples.restored[f"{side}, {pages}"] for side in _SIDES]
        ratios[f"pagoda / fs, {pages}"] = asdict(paired_ratio(*pair))
    return {
        "host": facts(),
        "threads": os.environ["OMP_NUM_THREADS"],
        "prompt_tokens": _TOKENS,
        "cached_tokens": _CACHED,
        "first_token_s": {
            "computed": asdict(computed),
            "device": asdict(device),
            **{what: asdict(Spread.of(seconds)) for what, seconds in samples.restored.items()},
        },
        "ratios": ratios,
        "calls_ms": {method: _calls(seconds) for method, seconds in samples.calls.items()},
        "all_calls_ms": _calls(list(chain(*samples.calls.values()))),
        "restored_bytes": samples.restored_bytes,
        "bounced_copies": samples.bounced_copies,
    }


def _calls(seconds: Sequence[float]) -> dict[str, float] | None:
    found = Percentiles.of(value * 1000 for value in seconds)
    return asdict(found) if found else None


def table(found: Mapping[str, Any]) -> str:
    """The report for people."""
    lines = [f"{'time to first token':<28}{'median':>9}{'low':>9}{'high':>9}{'runs':>6}"]
    for what, one in found["first_token_s"].items():
        lines.append(
            f"{what:<28}{one['median']:>8.3f}s{one['low']:>8.3f}s{one['high']:>8.3f}s"
            f"{one['runs']:>6}"
        )
    for what, ratio in found["ratios"].items():
        middle = ratio if isinstance(ratio, float) else ratio["median"]
        lines.append(f"{what:<36}{middle:>8.2f}")
    lines.append(f"{'calls of the scheduler':<28}{'p50':>9}{'p99':>9}{'max':>9}{'calls':>7}  ms")
    for method, one in {**found["calls_ms"], "all": found["all_calls_ms"]}.items():
        if one:
            figures = f"{one['p50']:>9.3f}{one['p99']:>9.3f}{one['max']:>9.3f}{one['count']:>7}"
            lines.append(f"{method:<28}{figures}")
    moved, bounced = found["restored_bytes"], found["bounced_copies"]
    lines.append(f"restored {moved:.0f} bytes, {bounced:.0f} bounced copies")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--prompts", type=int, default=6, help="a start")
    parser.add_argument("--restarts", type=int, default=2, help="of each engine in each case")
    parser.add_argument("--json", type=Path, help="write the report there")
    asked = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", str(usable_cpus()))
    model = Path(os.environ.get("PAGODA_DEMO_MODEL") or demo_model_path())
    prompts, samples = range(asked.prompts), Samples()
    with tempfile.TemporaryDirectory(prefix="pagoda-vllm-", ignore_cleanup_errors=True) as place:
        sides = [
            Side(name, vllm_home() / "bin" / "python", model, Path(place) / name) for name in _SIDES
        ]
        for side in sides:
            fill(side, prompts, samples)
        for turn, pages in product(range(asked.restarts), _DIRECT):
            for side in sides if turn % 2 == 0 else reversed(sides):
                restore(side, prompts, samples, pages)
    found = report(samples)
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=2) + "\n")
    print(table(found))


if __name__ == "__main__":
    main()
