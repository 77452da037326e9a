"""`pagoda plan`: will a model fit, how fast, and what will its cache cost."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from pagoda.advise.plan import Plan, Request, make_plan
from pagoda.advise.plan.catalogue import gpus, models
from pagoda.advise.plan.claims import page
from pagoda.advise.plan.economics import Drive
from pagoda.advise.plan.facts import GIB
from pagoda.advise.plan.links import Efficiency
from pagoda.advise.plan.output import capacity_json, plan_json, scaling_plot
from pagoda.advise.plan.request import Tiers
from pagoda.advise.plan.throughput import Stalls
from pagoda.cli.plan_inputs import (
    geometry_of,
    gpu_facts,
    load_of,
    model_facts,
    parallel_of,
    pcie_link,
    rank_notes,
    share,
    too_small,
)
from pagoda.cli.plan_tables import print_capacity, print_catalogue, print_plan
from pagoda.core.errors import SettingsError
from pagoda.core.sizing import (
    Budget,
    Capacity,
    Parallel,
    kv_dtype,
    sglang_capacity,
    uniform_capacity,
    vllm_capacity,
)

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
    geometry = geometry_of(
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
    notes += [*rank_notes(geometry, parallel), *found.assumptions]
    if found.concurrency < 1:
        notes.insert(0, too_small(found, available_gib))
        typer.secho(f"warning: {notes[0]}", fg="yellow", err=True)
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
    facts = model_facts(name, weight_bits, params_b, active_params_b)
    own = (gpu_memory_gib, gpu_bandwidth_gb_s, gpu_tflops)
    chip, count = gpu_facts(gpu, gpus, own)
    if pcie is not None:
        generation, lanes = pcie_link(pcie, "--pcie")
        chip = replace(chip, pcie_generation=generation, pcie_lanes=lanes)
    parallel = None if tp is None else parallel_of((tp, pp), dp, gpus)
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
            load=load_of(trace, lengths, (requests_per_s, shared_prefix), longest),
            stalls=Stalls(miss_rate=kv_miss_rate, miss_s=kv_miss_ms / 1e3),
            tiers=Tiers(
                host_bytes=host_gib * GIB,
                drives=drives,
                drive=drive,
                drive_pcie=pcie_link(drive_pcie, "--drive-pcie"),
                write_share=write_share,
                retain_hours=retain_hours,
                remote_bytes=remote_tb * 1e12,
                network_gbit=network_gbit,
            ),
            efficiency=Efficiency(
                compute=share(compute_efficiency, "--compute-efficiency"),
                memory=share(memory_efficiency, "--memory-efficiency"),
                link=share(link_efficiency, "--link-efficiency"),
            ),
        )
    )
    _show(plan, plot=plot, as_json=as_json, explain=explain)


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
