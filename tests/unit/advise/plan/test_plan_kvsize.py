"""The calculator against capacities that real engines logged.

Reads shared/data/kvsize.tsv (beside the checkout, or in PAGODA_SHARED). Its columns with
predictions and bytes a token are dropped at once: only facts, memory and logs are read.
"""

from __future__ import annotations

import csv
import os
import re
from pathlib import Path

import pytest

from pagoda.advise.plan.catalogue import find_model
from pagoda.core.sizing import (
    AttentionLayers,
    Budget,
    Capacity,
    KvShape,
    LatentLayers,
    LayerGroup,
    Parallel,
    kv_dtype,
    sglang_capacity,
    uniform_capacity,
    vllm_capacity,
)

GIB = 1 << 30
FORBIDDEN = ("bytes_per_token_per_rank", "predicted_tokens_from_memory", "logged/predicted")


def _file() -> Path:
    beside = Path(__file__).resolve().parents[4].parent / "shared"
    return Path(os.environ.get("PAGODA_SHARED", beside)) / "data" / "kvsize.tsv"


def _rows() -> list[dict[str, str]]:
    if not _file().is_file():
        return []
    with _file().open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t"))
    return [{k: v or "" for k, v in row.items() if k not in FORBIDDEN} for row in rows]


ROWS = _rows()
needs_rows = pytest.mark.skipif(
    not ROWS, reason="public KV sizes: not beside the checkout, nor in PAGODA_SHARED"
)


def _lacking(row: dict[str, str]) -> str:
    """Return which facts a row lacks for a prediction, or nothing."""
    facts = row["arch_facts"]
    lacks = []
    if not re.fullmatch(r"[\d.]+", row["available_kv_GiB"]):
        lacks.append("the memory is not logged")
    if not re.search(r"L\d+ (kv\d+ hd\d+|\d+ per token)|L\d+ kv|L\d+:", facts):
        lacks.append("layers, heads and head size are not stated")
    if "hybrid" in facts:
        lacks.append("the sizes of the recurrent state are not stated")
    if row["block_size"] in {"", "?"}:
        lacks.append("the block size is not logged")
    if row["kv_dtype"] not in {"fp16", "bf16"}:
        lacks.append(f"the KV format is {row['kv_dtype'] or 'not stated'}")
    if not row["logged_tokens"].isdigit():
        lacks.append("no single number of tokens is logged")
    return "; ".join(lacks)


def _shape(row: dict[str, str]) -> KvShape:
    facts = row["arch_facts"]
    if per_token := re.search(r"L(\d+) (\d+) per token", facts):
        layers, latent = map(int, per_token.groups())
        return KvShape(groups=(LatentLayers(layers=layers, latent=latent),))
    layers, heads, head_dim = (int(_find(rf"{key}(\d+)", facts)) for key in ("L", "kv", "hd"))
    mixed = re.search(r"(\d+) full \+ (\d+) SWA\((\d+)\)", facts)
    parts = [(layers, None)]
    if mixed:
        full, sliding, window = map(int, mixed.groups())
        parts = [(full, None), (sliding, window)]
    elif everywhere := re.search(r"sliding_window (\d+) on all layers", facts):
        parts = [(layers, int(everywhere[1]))]
    groups: list[LayerGroup] = [
        AttentionLayers(layers=n, kv_heads=heads, head_dim=head_dim, window=w) for n, w in parts
    ]
    return KvShape(groups=tuple(groups))


def _find(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found, f"{pattern} in {text}"
    return found[1]


def _predict(row: dict[str, str], available_bytes: int) -> Capacity:
    engine = row["engine"]
    allocator = vllm_capacity
    if "SGLang" in engine:
        allocator = sglang_capacity
    elif "V0" in engine:
        allocator = uniform_capacity
    budget = Budget(
        available_bytes=available_bytes,
        block_tokens=int(row["block_size"]),
        max_model_len=int(row["max_model_len"] or 4096),
    )
    parallel = Parallel(tp=int(row["tp"]), pp=int(row["pp"]))
    return allocator(_shape(row), kv_dtype(row["kv_dtype"]), parallel, budget)


def _tolerance(memory: str) -> float:
    """Return 0.3 %, or half the last digit of the memory given where that is more."""
    decimals = len(memory.partition(".")[2])
    return max(0.003, 0.5 * 10**-decimals / float(memory))


ENOUGH = [row for row in ROWS if not _lacking(row)]
SHORT = [row for row in ROWS if _lacking(row)]


@needs_rows
@pytest.mark.parametrize("row", ENOUGH, ids=lambda row: row["model"])
def test_tokens_match_the_log(row: dict[str, str]) -> None:
    """Predicted and logged tokens agree within 0.3 % or the memory's own precision."""
    memory = row["available_kv_GiB"]
    found = _predict(row, round(float(memory) * GIB))
    logged = int(row["logged_tokens"])
    assert abs(found.tokens - logged) / logged <= _tolerance(memory)
    if row["logged_concurrency"]:
        concurrency = float(row["logged_concurrency"])
        assert abs(found.concurrency - concurrency) / concurrency <= _tolerance(memory) + 0.005


@needs_rows
def test_most_rows_have_the_facts() -> None:
    """Twelve rows state everything; each of the others is short of something that is named."""
    assert len(ENOUGH) == 12
    assert all(_lacking(row) for row in SHORT)


@needs_rows
@pytest.mark.parametrize(
    "row",
    [row for row in SHORT if _lacking(row) == "the memory is not logged"],
    ids=lambda row: row["model"],
)
def test_concurrency_matches_where_memory_is_not_logged(row: dict[str, str]) -> None:
    """Memory for exactly the logged tokens gives back these tokens and the logged concurrency."""
    parallel = Parallel(tp=int(row["tp"]), pp=int(row["pp"]))
    logged = int(row["logged_tokens"])
    each = _shape(row).token_bytes(kv_dtype(row["kv_dtype"]), parallel)
    found = _predict(row, logged * each)
    assert found.tokens == logged
    assert round(found.concurrency, 2) == pytest.approx(float(row["logged_concurrency"]), abs=0.006)


# Rows completed from public facts that the row itself does not state: (model of the
# catalogue, extra full layers of the speculative head, drafted tokens, KV format, GiB).
# The third row names no model; this is the one public model that gives its numbers, to
# the last token: a consistent guess, no measurement.
COMPLETED = {
    "qwen3.5-122b-a10b-nvfp4 + MTP1": ("qwen3.5-122b-a10b", 1, 1, "fp8", "24.05"),
    "Gemma-4 E2B-class (1 KV head, hd256, 28 of 35 layers SWA 512)": (
        "gemma-4-e2b",
        0,
        0,
        "bf16",
        "0.93",  # from the row's notes; the 12 GiB of its memory column are another budget
    ),
    "unknown hybrid NVFP4 + MTP (FlashInfer)": ("qwen3.5-35b-a3b", 1, 2, "fp8", "66.58"),
}


@needs_rows
@pytest.mark.parametrize("name", COMPLETED)
def test_rows_completed_from_public_facts_match(name: str) -> None:
    """With the model's public facts, the hybrid rows match too: tokens and concurrency."""
    row = next(row for row in ROWS if row["model"] == name)
    model, extra, drafted, dtype, memory = COMPLETED[name]
    shape = find_model(model).kv
    full = shape.groups[0]
    assert isinstance(full, AttentionLayers)
    head = AttentionLayers(layers=extra, kv_heads=full.kv_heads, head_dim=full.head_dim)
    groups = (*shape.groups, head) if extra else shape.groups
    budget = Budget(
        available_bytes=round(float(memory) * GIB),
        block_tokens=16,
        max_model_len=int(row["max_model_len"]),
        speculative_tokens=drafted,
    )
    found = vllm_capacity(KvShape(groups=groups), kv_dtype(dtype), Parallel(), budget)
    logged, tolerance = int(row["logged_tokens"]), _tolerance(memory)
    # the log prints pool tokens until 2026, concurrency * max_model_len since
    nearest = min((found.tokens, found.tokens_by_concurrency), key=lambda n: abs(n - logged))
    assert abs(nearest - logged) / logged <= tolerance
    assert found.concurrency == pytest.approx(
        float(row["logged_concurrency"]), rel=tolerance + 0.002
    )
