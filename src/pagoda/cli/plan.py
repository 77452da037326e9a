"""`pagoda plan`: will a model fit, how fast, and what will its cache cost."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from pagoda.advise.plan import Plan, Request, make_plan
from pagoda.advise.plan.catalogue import find_gpu, find_model, gpus, models
from pagoda.advise.plan.claims import page
from pagoda.advise.plan.economics import Drive
from pagoda.advise.plan.facts import GIB, GpuFacts, Load, ModelFacts
from pagoda.advise.plan.hfconfig import read_model
from pagoda.advise.plan.hostgpus import QUERY, parse_gpus
from pagoda.advise.plan.links import Efficiency, pcie_bytes_per_s
from pagoda.advise.plan.load import load_trace
from pagoda.advise.plan.output import capacity_json, plan_json, scaling_plot
from pagoda.advise.plan.planner import Tiers
from pagoda.advise.plan.throughput import Stalls
from pagoda.cli.plan_tables import print_capacity, print_catalogue, print_plan
from pagoda.core.errors import SettingsError
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

_QUERY_TIMEOUT_S = 20.0
_Allocator = Callable[..., Capacity]
_ALLOCATORS: dict[str, _Allocator] = {
    "vllm": vllm_capacity,
    "uniform": uniform_capacity,
    "sglang": sglang_capacity,
}


class ModelByDefault(TyperGroup):
    """The group in which a word that is no command is a model: `pagoda plan MODEL`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Put the hidden command before a model's name."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["model", *args]
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="plan",
    cls=ModelByDefault,
    no_args_is_help=True,
    help="Will a model fit, how fast, and what will its cache cost: `pagoda plan MODEL`.",
)

AsJson = Annotated[bool, typer.Option("--json", help="JSON, for programs.")]
KvDtype = Annotated[str | None, typer.Option(help="bf16, fp16, fp8, int8, nvfp4, fp8_ds_mla, ...")]
Tp = Annotated[int, typer.Option(min=1, help="Tensor-parallel ranks.")]
Pp = Annotated[int, typer.Option(min=1, help="Pipeline stages.")]
Block = Annotated[int, typer.Option(min=1, help="Tokens a block (SGLang: a page).")]
Batched = Annotated[int, typer.Option(min=1, help="Tokens of one scheduler step.")]
Explain = Annotated[bool, typer.Option("--explain", help="Show each number's formula.")]


@app.command()
def kv(  # noqa: PLR0913  (a command's parameters are its flags)
    *,
    layers: Annotated[int, typer.Option(min=1, help="Layers that keep KV of their own.")],
    available_gib: Annotated[float, typer.Option(min=0, help="KV memory of one rank, GiB.")],
    max_model_len: Annotated[int, typer.Option(min=1, help="Longest request, tokens.")],
    kv_dtype_name: Annotated[str, typer.Option("--kv-dtype", help="bf16, fp8, int8, ...")],
    kv_heads: Annotated[int | None, typer.Option(min=1, help="KV heads of a layer.")] = None,
    head_dim: Annotated[int | None, typer.Option(min=1, help="Size of a head.")] = None,
    mla_latent: Annotated[
        int | None, typer.Option(min=1, help="MLA: kv_lora_rank + qk_rope_head_dim.")
    ] = None,
    sliding_window: Annotated[int | None, typer.Option(min=1, help="Window, tokens.")] = None,
    sliding_layers: Annotated[int | None, typer.Option(min=1, help="Layers that slide.")] = None,
    tp: Tp = 1,
    pp: Pp = 1,
    block: Block = 16,
    max_batched_tokens: Batched = 8192,
    allocator: Annotated[str, typer.Option(help="vllm, uniform or sglang.")] = "vllm",
    as_json: AsJson = False,
    explain: Explain = False,
) -> None:
    """What a given amount of KV memory holds, from a model's geometry."""
    geometry = _geometry(
        layers=layers,
        heads=(kv_heads, head_dim),
        latent=mla_latent,
        window=(sliding_window, sliding_layers),
    )
    budget = Budget(
        available_bytes=round(available_gib * GIB),
        block_tokens=block,
        max_model_len=max_model_len,
        max_batched_tokens=max_batched_tokens,
    )
    chosen = _allocator(allocator)
    parallel = Parallel(tp=tp, pp=pp)
    dtype = kv_dtype(kv_dtype_name)
    found = chosen(geometry, dtype, parallel, budget)
    notes = [f"{allocator}'s allocator; --available-gib is one rank's", dtype.describe()]
    notes += [*_rank_notes(geometry, parallel), *found.assumptions]
    found = replace(found, assumptions=tuple(notes))
    if as_json:
        typer.echo(json.dumps(capacity_json(found), indent=2))
    else:
        print_capacity(found, explain=explain)


def _allocator(name: str) -> _Allocator:
    if name in _ALLOCATORS:
        return _ALLOCATORS[name]
    raise SettingsError(
        f"allocator {name!r} is unknown",
        key="allocator",
        source="--allocator",
        remedy="one of " + ", ".join(_ALLOCATORS),
    )


def _geometry(
    *,
    layers: int,
    heads: tuple[int | None, int | None],
    latent: int | None,
    window: tuple[int | None, int | None],
) -> KvShape:
    """Return the layers that the flags describe; SettingsError where a fact is missing."""
    size, sliding = window
    if sliding is not None and size is None:
        raise _missing("--sliding-layers needs --sliding-window", "sliding_window")
    sliding = (layers if sliding is None else sliding) if size is not None else 0
    if sliding > layers:
        raise _missing(f"{sliding} sliding layers of only {layers}", "sliding_layers")
    groups = [
        _layers(count, heads, latent, kept)
        for count, kept in ((layers - sliding, None), (sliding, size))
        if count
    ]
    return KvShape(groups=tuple(groups))


def _layers(
    count: int, heads: tuple[int | None, int | None], latent: int | None, window: int | None
) -> LayerGroup:
    if latent is not None:
        return LatentLayers(layers=count, latent=latent, window=window)
    kv_heads, head_dim = heads
    if kv_heads is None or head_dim is None:
        raise _missing("--kv-heads and --head-dim (or --mla-latent) are needed", "kv_heads")
    return AttentionLayers(layers=count, kv_heads=kv_heads, head_dim=head_dim, window=window)


def _missing(message: str, key: str) -> SettingsError:
    remedy = "the model's config.json says it; the planner does not guess"
    return SettingsError(message, key=key, source="flags", remedy=remedy)


def _rank_notes(shape: KvShape, parallel: Parallel) -> list[str]:
    """Return what parallel sizes do to this geometry, where it is not a plain division."""
    notes = []
    for group in shape.groups:
        if isinstance(group, LatentLayers) and parallel.tp > 1:
            notes.append(f"every one of {parallel.tp} ranks keeps the whole latent")
        if isinstance(group, AttentionLayers) and parallel.tp > group.kv_heads:
            copies = parallel.tp // group.kv_heads
            notes.append(f"{group.kv_heads} KV heads are replicated {copies} times over the ranks")
        if group.layers % parallel.pp:
            notes.append(
                f"{group.layers} layers over {parallel.pp} stages: the fullest, with "
                f"{-(-group.layers // parallel.pp)}, decides"
            )
    return list(dict.fromkeys(notes))


@app.command("catalogue")
def catalogue() -> None:
    """List the models and GPUs whose facts are built in, with their sources."""
    print_catalogue(models(), gpus())


@app.command("claims")
def claims() -> None:
    """Print repeated rules of thumb, each with what is right and this calculator's number."""
    typer.echo(page(), nl=False)


@app.command("model", hidden=True)
def model(  # noqa: PLR0913  (a command's parameters are its flags)
    name: Annotated[str, typer.Argument(metavar="MODEL", help="Catalogue name, config.json, dir.")],
    *,
    gpu: Annotated[str | None, typer.Option(help="GPU name; default: this host's.")] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="GPUs in all.")] = None,
    gpu_memory_gib: Annotated[float | None, typer.Option(min=0.1, help="Own GPU: GiB.")] = None,
    gpu_bandwidth_gb_s: Annotated[float | None, typer.Option(min=1, help="Own GPU: GB/s.")] = None,
    gpu_tflops: Annotated[float | None, typer.Option(min=1, help="Own GPU: dense bf16.")] = None,
    tp: Annotated[int | None, typer.Option(min=1, help="Tensor parallelism; else chosen.")] = None,
    pp: Pp = 1,
    dp: Annotated[int | None, typer.Option(min=1, help="Replicas, with --tp.")] = None,
    pcie: Annotated[str | None, typer.Option(help="The GPU's PCIe, as 4x16.")] = None,
    kv_dtype: KvDtype = None,
    weight_bits: Annotated[float | None, typer.Option(min=1, help="Bits a weight.")] = None,
    params_b: Annotated[float | None, typer.Option(min=0, help="Parameters, 10^9.")] = None,
    active_params_b: Annotated[float | None, typer.Option(min=0, help="Of one token.")] = None,
    max_model_len: Annotated[int | None, typer.Option(min=1, help="Longest request.")] = None,
    block: Block = 16,
    max_batched_tokens: Batched = 8192,
    speculative_tokens: Annotated[int, typer.Option(min=0, help="Drafted tokens.")] = 0,
    gpu_memory_utilization: Annotated[float, typer.Option(help="Share of GPU memory.")] = 0.9,
    reserve_gib: Annotated[float, typer.Option(min=0, help="Activations, graphs; GiB.")] = 2.0,
    occupancy: Annotated[float, typer.Option(help="Share of the KV pool to use.")] = 0.7,
    max_requests: Annotated[int, typer.Option(min=1, help="Running requests, at most.")] = 1024,
    token_ms: Annotated[float | None, typer.Option(min=0, help="Time a token, at most.")] = None,
    input_tokens: Annotated[float | None, typer.Option(min=1, help="Mean input.")] = None,
    output_tokens: Annotated[float | None, typer.Option(min=1, help="Mean output.")] = None,
    requests_per_s: Annotated[float | None, typer.Option(min=0, help="Arrivals.")] = None,
    shared_prefix: Annotated[float, typer.Option(help="Share of input seen before.")] = 0.0,
    trace: Annotated[Path | None, typer.Option(help="Take the load from a trace.")] = None,
    kv_miss_rate: Annotated[
        float, typer.Option(help="Measured: share of requests that miss.")
    ] = 0.0,
    kv_miss_ms: Annotated[
        float, typer.Option(min=0, help="Measured: engine time lost to one.")
    ] = 0.0,
    host_gib: Annotated[float, typer.Option(min=0, help="Pinned host memory, GiB.")] = 0.0,
    drives: Annotated[int, typer.Option(min=0, help="NVMe drives.")] = 0,
    drive_tb: Annotated[float, typer.Option(min=0.01, help="Of one drive.")] = 3.84,
    drive_read_gb_s: Annotated[float, typer.Option(min=0.01, help="Of one drive.")] = 6.5,
    drive_write_gb_s: Annotated[float, typer.Option(min=0.01, help="Of one drive.")] = 3.0,
    drive_pcie: Annotated[str, typer.Option(help="Of one drive, as 4x4.")] = "4x4",
    dwpd: Annotated[float, typer.Option(min=0.01, help="Rated writes a day.")] = 1.0,
    write_share: Annotated[float, typer.Option(help="Of new KV, written to drives.")] = 1.0,
    retain_hours: Annotated[float, typer.Option(min=0, help="Kept on drives.")] = 1.0,
    remote_tb: Annotated[float, typer.Option(min=0, help="Remote store.")] = 0.0,
    network_gbit: Annotated[float, typer.Option(min=0, help="Link to it.")] = 0.0,
    compute_efficiency: Annotated[float, typer.Option(help="Of dense FLOP/s.")] = 0.55,
    memory_efficiency: Annotated[float, typer.Option(help="Of memory bandwidth.")] = 0.75,
    link_efficiency: Annotated[float, typer.Option(help="Of link rates.")] = 0.75,
    plot: Annotated[Path | None, typer.Option(help="Write the scaling curve, SVG.")] = None,
    as_json: AsJson = False,
    explain: Explain = False,
) -> None:
    """Plan for a model: from the catalogue, a config.json or its directory."""
    facts = _model_facts(name, weight_bits, params_b, active_params_b)
    own = (gpu_memory_gib, gpu_bandwidth_gb_s, gpu_tflops)
    chip, count = _gpu_facts(gpu, gpus, own)
    if pcie is not None:
        generation, lanes = _pcie(pcie, "--pcie")
        chip = replace(chip, pcie_generation=generation, pcie_lanes=lanes)
    parallel = None if tp is None else _parallel((tp, pp), dp, gpus)
    longest = max_model_len or facts.max_context
    lengths = (input_tokens, output_tokens)
    drive = Drive(
        capacity_bytes=drive_tb * 1e12,
        read=drive_read_gb_s * 1e9,
        write=drive_write_gb_s * 1e9,
        writes_per_day=dwpd,
    )
    plan = make_plan(
        Request(
            model=facts,
            gpu=chip,
            gpus=count if parallel is None else parallel.gpus,
            parallel=parallel,
            kv_dtype=kv_dtype,
            block_tokens=block,
            max_model_len=max_model_len,
            max_batched_tokens=max_batched_tokens,
            speculative_tokens=speculative_tokens,
            utilization=gpu_memory_utilization,
            reserve_bytes=round(reserve_gib * GIB),
            occupancy=occupancy,
            max_requests=max_requests,
            decode_limit_s=None if token_ms is None else token_ms / 1e3,
            load=_load(trace, lengths, (requests_per_s, shared_prefix), longest),
            stalls=Stalls(miss_rate=kv_miss_rate, miss_s=kv_miss_ms / 1e3),
            tiers=Tiers(
                host_bytes=host_gib * GIB,
                drives=drives,
                drive=drive,
                drive_pcie=_pcie(drive_pcie, "--drive-pcie"),
                write_share=write_share,
                retain_hours=retain_hours,
                remote_bytes=remote_tb * 1e12,
                network_gbit=network_gbit,
            ),
            efficiency=Efficiency(
                compute=_share(compute_efficiency, "--compute-efficiency"),
                memory=_share(memory_efficiency, "--memory-efficiency"),
                link=_share(link_efficiency, "--link-efficiency"),
            ),
        )
    )
    _show(plan, plot=plot, as_json=as_json, explain=explain)


def _parallel(sizes: tuple[int, int], dp: int | None, gpus: int | None) -> Parallel:
    """Return the sizes asked for; replicas fill the GPUs where only these are named."""
    tp, pp = sizes
    if dp is None:
        dp = 1 if gpus is None else max(1, gpus // (tp * pp))
    asked = Parallel(tp=tp, pp=pp, dp=dp)
    if gpus is not None and asked.gpus > gpus:
        raise SettingsError(
            f"TP {tp} x PP {pp} x DP {dp} are {asked.gpus} GPUs, not {gpus}",
            key="gpus",
            source="--gpus",
            remedy="fewer ranks, stages or replicas, or more --gpus",
        )
    return asked


def _pcie(text: str, flag: str) -> tuple[int, int]:
    generation, _, lanes = text.partition("x")
    if not (generation.isdigit() and lanes.isdigit()):
        raise SettingsError(
            f"{text!r} is no PCIe link", key="pcie", source=flag, remedy="write 4x16"
        )
    pcie_bytes_per_s(int(generation), int(lanes))  # refuses links that do not exist
    return int(generation), int(lanes)


def _share(value: float, flag: str) -> float:
    if not 0 < value <= 1:
        raise SettingsError(f"{flag} must lie in (0, 1]", key="efficiency", source=flag)
    return value


def _show(plan: Plan, *, plot: Path | None, as_json: bool, explain: bool) -> None:
    if plot is not None:
        _write_plot(plan, plot)
    if as_json:
        typer.echo(json.dumps(plan_json(plan), indent=2, allow_nan=False))
    else:
        print_plan(plan, explain=explain)


def _write_plot(plan: Plan, path: Path) -> None:
    drawn = scaling_plot(plan)
    if path.suffix != ".svg":
        raise SettingsError(f"{path} does not end in .svg", key="plot", source="--plot")
    if drawn is None:
        raise SettingsError(
            "no number of GPUs runs this model: there is nothing to draw",
            key="plot",
            source="--plot",
        )
    try:
        path.write_text(drawn, encoding="utf-8")
    except OSError as error:
        message = f"cannot write {path}: {error.strerror}"
        raise SettingsError(message, key="plot", source="--plot") from error


def _model_facts(
    name: str, bits: float | None, params_b: float | None, active_b: float | None
) -> ModelFacts:
    path = Path(name)
    facts = read_model(path) if path.exists() else find_model(name)
    if params_b is not None:
        total = params_b * 1e9
        facts = replace(facts, params=total, active_params=total)
    if active_b is not None:
        facts = replace(facts, active_params=active_b * 1e9)
    if bits is not None:
        facts = replace(facts, weight_bits=bits, weight_bytes=None)
    return facts


def _gpu_facts(
    name: str | None, count: int | None, own: tuple[float | None, float | None, float | None]
) -> tuple[GpuFacts, int]:
    """Return the GPU and how many: by name, by its own facts, or this host's."""
    memory, bandwidth, tflops = own
    if memory is not None and bandwidth is not None and tflops is not None:
        return _own_gpu(name or "own", memory, bandwidth, tflops), count or 1
    if name is not None:
        facts = find_gpu(name)
        if memory is not None:
            facts = replace(facts, memory_bytes=round(memory * GIB))
        return facts, count or 1
    facts, found = parse_gpus(_query())
    return facts, count or found


def _own_gpu(name: str, memory: float, bandwidth: float, tflops: float) -> GpuFacts:
    return GpuFacts(
        name=name,
        source="flags (PCIe 4.0 x16 and no NVLink assumed)",
        memory_bytes=round(memory * GIB),
        bandwidth=bandwidth * 1e9,
        bf16_flops=tflops * 1e12,
        fp8_flops=None,
        nvlink=0.0,
        pcie_generation=4,
        pcie_lanes=16,
    )


def _query() -> str:
    remedy = "name the GPU: --gpu h100 --gpus 8 (`pagoda plan catalogue` lists them)"
    try:
        done = subprocess.run(
            QUERY, capture_output=True, text=True, timeout=_QUERY_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise SettingsError(
            f"no GPU was named and nvidia-smi does not answer here ({type(error).__name__})",
            key="gpu",
            source="nvidia-smi",
            remedy=remedy,
        ) from error
    return done.stdout


def _load(
    trace: Path | None,
    lengths: tuple[float | None, float | None],
    arrivals: tuple[float | None, float],
    longest: int,
) -> Load:
    """Return the load of the flags or of a trace; short contexts get a shorter default."""
    rate, shared = arrivals
    if trace is not None:
        found = load_trace(trace)
        return found if rate is None else replace(found, requests_per_s=rate)
    given, produced = lengths
    return Load(
        input_tokens=min(2000.0, longest * 0.75) if given is None else given,
        output_tokens=min(300.0, longest * 0.125) if produced is None else produced,
        requests_per_s=rate,
        shared_prefix=shared,
    )
