"""Widely repeated rules of thumb, each with what is right and this calculator's number.

docs/reference/claims.md is `page()`; a test compares them, so the numbers cannot drift.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pagoda.advise.plan.catalogue import find_gpu, find_model, models
from pagoda.advise.plan.economics import miss_rate_budget, recompute_s
from pagoda.advise.plan.facts import GIB, MIB, Load
from pagoda.advise.plan.links import Efficiency, Fabric, fabric_of, network_fabric, pcie_bytes_per_s
from pagoda.advise.plan.roofline import Deployment
from pagoda.advise.plan.scaling import Settings, curve, knee
from pagoda.advise.plan.throughput import combined, throughput
from pagoda.core.sizing import AttentionLayers, Budget, KvShape, Parallel, kv_dtype

KIB = 1 << 10
_BF16 = kv_dtype("bf16")
_70B = find_model("llama-3.1-70b")
_LOAD = Load(input_tokens=4000, output_tokens=300, shared_prefix=0.5)
_BATCH = 64.0


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A rule of thumb, what is right, and the numbers that show it."""

    said: str
    right: str
    number: str


def _token_bytes(tp: int = 1) -> int:
    return _70B.kv.token_bytes(_BF16, Parallel(tp=tp))


def _deployment(gpu: str, tp: int = 8) -> Deployment:
    return Deployment(model=_70B, gpu=find_gpu(gpu), parallel=Parallel(tp=tp), dtype=_BF16)


def claims() -> list[Claim]:
    """Return every claim, in the order of the page."""
    return [*_sizes(), *_misses(), *_links(), *_collectives(), *_speeds(), *_hosts()]


def _sizes() -> list[Claim]:
    each, ranked = _token_bytes(), _token_bytes(8)
    biggest = max(models().values(), key=lambda m: m.hidden)
    ungrouped = KvShape(groups=(AttentionLayers(layers=80, kv_heads=64, head_dim=128),))
    ungrouped_fp8 = ungrouped.token_bytes(kv_dtype("fp8"), Parallel())
    layer = AttentionLayers(layers=1, kv_heads=8, head_dim=128).token_bytes(_BF16, 1)
    query = 64 * 128 * 2
    return [
        Claim(
            said="A 70B model keeps 16 KB of KV a token.",
            right="80 layers * 8 KV heads * 128 * 2 (K and V) * 2 bytes. Tensor parallelism "
            "divides that by rank, not the sum.",
            number=f"{each:,} B a token; {ranked:,} B a rank at TP 8; {each / (16 * KIB):.0f} "
            "times the claim",
        ),
        Claim(
            said="KV bytes = 2 * heads * head size * bytes (no layers), for query + key.",
            right="Every layer keeps its own, and it keeps keys and values. Queries are used once "
            "and not kept; with grouped heads they are not even of the same size.",
            number=f"{layer:,} B is one layer of 80; query + key of one layer would be "
            f"{query + layer // 2:,} B",
        ),
        Claim(
            said="The hidden size of such a model is 122,880.",
            right=f"A 70B Llama has {_70B.hidden:,}; the largest of the built-in catalogue is "
            f"{biggest.name}.",
            number=f"{biggest.hidden:,}; 122,880 is {122_880 / _70B.hidden:.0f} times "
            f"{_70B.hidden:,}",
        ),
        Claim(
            said="80 GB hold 5 million tokens.",
            right="For a 70B model even a whole 80 GB without weights holds far fewer.",
            number=f"{int(80e9 // each):,} tokens; 5 million need {5e6 * each / 1e12:.2f} TB",
        ),
        Claim(
            said="1,000 tokens take 1.2 GiB.",
            right="A 70B model with grouped heads in bf16 takes a quarter of that. The claim fits "
            "a 70B model without grouped heads (64 KV heads), kept in fp8.",
            number=f"{1000 * each / GIB:.3f} GiB; without grouping in fp8 "
            f"{1000 * ungrouped_fp8 / GIB:.2f} GiB",
        ),
    ]


def _misses() -> list[Claim]:
    each = _token_bytes()
    prefix = 2000 * each
    rate = 9.6e6 / 32e3
    link = pcie_bytes_per_s(4, 16) * Efficiency().link
    in_budget = 0.010 * link
    return [
        Claim(
            said="A miss fetches 32 KB, so 300 misses a second are 9.6 MB/s.",
            right="A miss fetches the request's prefix, not a token: all layers of all its tokens.",
            number=f"a prefix of 2,000 tokens is {prefix / 1e6:,.0f} MB; {rate:.0f} a second are "
            f"{rate * prefix / 1e9:,.0f} GB/s",
        ),
        Claim(
            said="A miss of 66 ms stays inside a budget of 10 ms.",
            right="It does not, unless the rest hides behind other work. What fits is the budget "
            "times the link's rate.",
            number=f"{1 - 10 / 66:.1%} must overlap; 10 ms of PCIe 4.0 x16 at 75 % move "
            f"{in_budget / 1e6:,.0f} MB, {int(in_budget // each):,} tokens of a 70B model",
        ),
        _five_percent(),
    ]


def _five_percent() -> Claim:
    deployment = _deployment("h100")
    budgets = []
    for prefix, output in ((1000, 1000), (8000, 300), (32_000, 300)):
        load = Load(
            input_tokens=prefix + 256, output_tokens=output, shared_prefix=prefix / (prefix + 256)
        )
        found = throughput(deployment, load, _BATCH)
        compute_s = load.output_tokens / (found.compute_per_gpu * 8)
        share = miss_rate_budget(0.05, compute_s, recompute_s(deployment, prefix))
        budgets.append(f"{prefix:,} tokens in front of {output:,}: {share:.1%}")
    return Claim(
        said="Below 5 % misses one is safe.",
        right="The share that costs 5 % of throughput follows from the prefix's length: "
        "loss / (1 - loss) * time of a request / time of a miss. Prefixes computed again, "
        "70B on 8 H100, 64 running requests:",
        number="; ".join(budgets),
    )


def _links() -> list[Claim]:
    def gb(generation: int, lanes: int) -> str:
        return f"{pcie_bytes_per_s(generation, lanes) / 1e9:.2f} GB/s"

    size = 256 * MIB
    wire = size / pcie_bytes_per_s(4, 16)
    slow = size / 2.8e9
    return [
        Claim(
            said="PCIe 4.0 x8 moves 7.9 GB/s (and, a line further, 16 GB/s).",
            right="7.9 GB/s is 4.0 x4 or 3.0 x8. Rates are one way, before headers.",
            number=f"4.0 x8: {gb(4, 8)}; 4.0 x4: {gb(4, 4)}; 3.0 x8: {gb(3, 8)}",
        ),
        Claim(
            said="PCIe 5.0 x4 at 4 GB/s halves the time.",
            right="4 GB/s is 3.0 x4 or 5.0 x1. 5.0 x4 halves the time of 4.0 x4.",
            number=f"5.0 x4: {gb(5, 4)}; 4.0 x4: {gb(4, 4)}; 3.0 x4: {gb(3, 4)}",
        ),
        Claim(
            said="256 MiB take 30 to 35 ms over the bus.",
            right="That is the rate of 4 lanes of PCIe 4.0, not of a GPU's 16.",
            number=f"30 to 35 ms are {size / 0.035 / 1e9:.1f} to {size / 0.030 / 1e9:.1f} GB/s; "
            f"4.0 x16 takes {wire * 1e3:.1f} ms at line rate, {wire / 0.75 * 1e3:.1f} ms at 75 %",
        ),
        Claim(
            said="256 MiB at 2.8 GB/s take under 15 ms behind 20 ms of compute.",
            right="The transfer alone is longer than both together.",
            number=f"{slow * 1e3:.1f} ms, of which {slow * 1e3 - 20:.1f} ms show; hiding it in "
            f"20 ms needs {size / 0.020 / 1e9:.1f} GB/s",
        ),
        Claim(
            said="Host memory is slower than NVMe.",
            right="One channel of DDR5-4800 moves 38.4 GB/s, and the bus to the GPU is four times "
            "as wide as a drive's. A drive also answers about a thousand times later.",
            number=f"host over 4.0 x16: {gb(4, 16)}; a drive on 4.0 x4: {gb(4, 4)}, on 5.0 x4: "
            f"{gb(5, 4)}",
        ),
        _nvlink(),
    ]


def _nvlink() -> Claim:
    total = find_gpu("a100-80").nvlink / 1e9
    return Claim(
        said="NVLink 3 is 150 GB/s; one NVLink is 200 GB/s.",
        right="An A100 has 12 links of 25 GB/s each way. The marketed figure is all of them, both "
        "ways; a transfer uses one way.",
        number=f"{total:.0f} GB/s marketed, {total / 2:.0f} GB/s one way, {total / 12:.0f} GB/s "
        "a link (both ways)",
    )


def _share_of_peak(fabric: Fabric, size: float, ranks: int) -> float:
    ideal = 2 * (ranks - 1) / ranks * size / fabric.bandwidth
    return ideal / fabric.all_reduce_s(size, ranks)


def _collectives() -> list[Claim]:
    fabric = fabric_of(find_gpu("a100-80"), Efficiency())
    at_80 = 4 * fabric.latency_s * fabric.bandwidth / (2 * 7 / 8)
    small, large = (fabric.all_reduce_s(size, 8) * 1e6 for size in (32 * KIB, 2 * MIB))
    bus = 2 * 7 / 8 * 2 * MIB / 70e-6
    return [
        Claim(
            said="8 to 32 KB messages reach 80 % of the bandwidth.",
            right="Small all-reduces are latency. With 10 us of latency on NVLink 3, 8 GPUs:",
            number=f"32 KiB reach {_share_of_peak(fabric, 32 * KIB, 8):.1%}; 80 % needs "
            f"{at_80 / 1e6:.1f} MB",
        ),
        Claim(
            said="An all-reduce of 32 KiB takes 8 us, one of 2 MiB 70 us.",
            right="The first is the latency floor and plausible. The second is far below NVLink's "
            "rate: it is a slower link's figure, or that of another algorithm.",
            number=f"8 A100: {small:.1f} us and {large:.1f} us; 70 us are {bus / 1e9:.0f} GB/s of "
            f"the link's {find_gpu('a100-80').nvlink / 2e9:.0f}",
        ),
        Claim(
            said="Tensor parallelism all-reduces logits and gradients.",
            right="Inference has no gradients. It all-reduces activations, twice a layer; logits "
            "are gathered once a step.",
            number=f"70B: {2 * _70B.layers} all-reduces a step of {_70B.hidden * 2:,} B for each "
            "running request",
        ),
        _gloo(),
    ]


def _gloo() -> Claim:
    efficiency = Efficiency()
    fast = fabric_of(find_gpu("a100-80"), efficiency)
    slow = network_fabric(100, efficiency)
    ratios = [slow.all_reduce_s(n, 8) / fast.all_reduce_s(n, 8) for n in (32 * KIB, 64 * MIB)]
    return Claim(
        said="NCCL is three times as fast as Gloo.",
        right="There is no such factor. Gloo runs on host memory and TCP, NCCL on the GPUs' links; "
        "the ratio is that of the links and grows with the message.",
        number=f"NVLink 3 beside 100 Gbit/s, 8 ranks: {ratios[0]:.0f} times at 32 KiB, "
        f"{ratios[1]:.0f} times at 64 MiB",
    )


def _knee_of(model: str, gpu: str) -> str:
    settings = Settings(
        budget=Budget(available_bytes=0, block_tokens=16, max_model_len=8192),
        utilization=0.9,
        reserve=2 * GIB,
        occupancy=0.7,
        max_requests=64,
    )
    deployment = replace(_deployment(gpu, 1), model=find_model(model))
    return f"{model} on {gpu}: {knee(curve(deployment, _LOAD, settings, most=32))}"


def _speeds() -> list[Claim]:
    eight = find_model("llama-3.1-8b")
    raw = {m.name: 35e12 / (2 * m.token_params()) for m in (_70B, eight)}
    found = {name: combined(1, value, 0.12, 0.02) for name, value in raw.items()}
    needed = 310 * 1.14 * 2 * _70B.token_params()
    pairs = ((_70B.name, "h100"), (_70B.name, "l40s"), (eight.name, "h100"), (eight.name, "l40s"))
    kinds = ", ".join(_knee_of(model, gpu) for model, gpu in pairs)
    return [
        Claim(
            said="35 TFLOP/s, 0.12 of communication and 0.02 of misses make 310 tokens/s.",
            right="compute / (1 + 0.12 + 0.02), with compute = FLOP/s / (2 * parameters). The "
            "model's size is missing from the claim.",
            number=f"70B: {found[_70B.name]:,.0f} tokens/s; 8B: {found[eight.name]:,.0f}; 310 at "
            f"70B would need {needed / 1e12:.1f} TFLOP/s",
        ),
        Claim(
            said="Scaling has its knee at 24 GPUs.",
            right="The knee belongs to model, link and load. 24-way tensor parallelism does not "
            f"divide {_70B.q_heads} query heads at all; replicas have no knee.",
            number=f"up to 64 requests, the last doubling worth 1.5 times: {kinds}",
        ),
        _multi_node(),
    ]


def _multi_node() -> Claim:
    alphas = [
        f"{gpu} ({fabric_of(find_gpu(gpu), Efficiency()).name}): "
        f"{throughput(_deployment(gpu), _LOAD, _BATCH).alpha_comm:.2f}"
        for gpu in ("h100", "l40s")
    ]
    return Claim(
        said="Communication costs something only with several hosts.",
        right="Each layer's two all-reduces cost time inside one host too; without NVLink they "
        "cost more than the computing.",
        number="alpha_comm, 70B at TP 8 in one host: " + "; ".join(alphas),
    )


def histogram_quantile(quantile: float, buckets: list[tuple[float, float]]) -> float:
    """Return Prometheus' quantile of cumulative (upper bound, count) buckets."""
    rank, low, below = quantile * buckets[-1][1], 0.0, 0.0
    for bound, count in buckets:
        if count >= rank:
            return low + (bound - low) * (rank - below) / max(count - below, 1e-12)
        low, below = bound, count
    return buckets[-1][0]


def _hosts() -> list[Claim]:
    # an hour of 100 ms answers, then five minutes in which each takes 4 s
    since_start = [(0.1, 36_000.0), (1.0, 36_000.0), (5.0, 36_300.0)]
    lately = [(0.1, 0.0), (1.0, 0.0), (5.0, 300.0)]
    raw, windowed = (histogram_quantile(0.99, counts) for counts in (since_start, lately))
    return [
        Claim(
            said="vm.overcommit_memory is the mlock limit.",
            right="The limit is RLIMIT_MEMLOCK (`ulimit -l`), a process's; overcommit_memory "
            "decides whether address space may exceed memory. Registration with a network card "
            "counts against the former.",
            number=f"512 GiB pinned over 8 ranks: {512 / 8:.0f} GiB a process",
        ),
        Claim(
            said="`histogram_quantile(0.99, x_bucket)` is the latency now.",
            right="Buckets count since the process started. Use "
            "`histogram_quantile(0.99, sum by (le) (rate(x_bucket[5m])))`.",
            number=f"after an hour at 100 ms and five minutes at 4 s: {raw:.2f} s without `rate`, "
            f"{windowed:.2f} s with it",
        ),
    ]


def page() -> str:
    """Return docs/reference/claims.md."""
    lines = [
        "# Claims checked",
        "",
        "Rules of thumb that are often repeated about KV caches, links and scaling, each with what",
        "is right and the number that `pagoda plan` computes for it. The page is printed by",
        "`pagoda plan claims`; a test keeps it equal to the calculator. Where a number rests on an",
        "assumption (kernel efficiency, collective latency), it is the planner's default: see",
        "[the guide](../guides/plan.md). 70B is Llama 3.1 70B: 80 layers, 8 KV heads of 128.",
        "",
    ]
    for claim in claims():
        lines += [f"## {claim.said}", "", claim.right, "", f"**{claim.number}.**", ""]
    return "\n".join(lines)
