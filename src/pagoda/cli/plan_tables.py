"""How `pagoda plan` looks in a terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from pagoda.advise.plan import Plan
from pagoda.advise.plan.facts import GIB, GpuFacts, ModelFacts
from pagoda.advise.plan.figures import Figure
from pagoda.advise.plan.output import ttft_by_source
from pagoda.core.sizing import Capacity

_WORDS = {"formula", "source", "unit", "what"}
"""Columns of words, set to the left."""


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", pad_edge=False)
    for index, column in enumerate(columns):
        words = index == 0 or column in _WORDS
        table.add_column(column, justify="left" if words else "right")
    return table


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:,.3g}"


def print_capacity(found: Capacity, *, explain: bool) -> None:
    """Print what a pool holds, and with `explain` how."""
    console = Console()
    table = _table("KV capacity of one rank", "figure", "value")
    rows = (
        ("bytes a token and rank", _number(found.bytes_per_token)),
        ("tokens", _number(found.tokens)),
        ("blocks", f"{found.blocks:,} of {found.block_tokens} tokens"),
        ("requests of full length", f"{found.concurrency:,.2f}"),
    )
    for row in rows:
        table.add_row(*row)
    console.print(table)
    if explain:
        console.print(
            "tokens = blocks // groups * block; blocks = available // block bytes; "
            f"requests = pool / {found.request_bytes:,} B of one of {found.max_model_len:,} tokens",
            highlight=False,
        )
    _print_notes(console, found.assumptions)


def _print_notes(console: Console, notes: tuple[str, ...]) -> None:
    if notes:
        console.print("\nAssumptions", style="bold")
    for note in notes:
        console.print(f"- {note}", highlight=False, markup=False)


def print_plan(plan: Plan, *, explain: bool) -> None:
    """Print a plan: verdict, figures, scaling, tiers, schedule, flags, assumptions."""
    console = Console()
    _print_verdict(console, plan)
    console.print(_figures_table(plan.figures, explain=explain))
    console.print(_scaling_table(plan))
    if plan.tiers:
        console.print(_tiers_table(plan))
    if plan.schedule:
        console.print(_schedule_table(plan))
    _print_choices(console, plan)
    _print_notes(console, plan.assumptions)


def _print_verdict(console: Console, plan: Plan) -> None:
    parallel, model = plan.deployment.parallel, plan.request.model.name
    sizes = f"TP {parallel.tp}, PP {parallel.pp}, DP {parallel.dp} on {plan.request.gpu.name}"
    if plan.memory.kv <= 0:
        short = -plan.memory.kv / GIB
        console.print(f"[red]{model} does not fit[/]: {sizes} lacks {short:.1f} GiB a GPU")
    elif not plan.fits:
        assert plan.capacity is not None, "there is KV memory"
        console.print(
            f"[red]{model} fits, a request of {plan.capacity.max_model_len:,} tokens does not[/]: "
            f"{sizes}; lower --max-model-len to {plan.capacity.tokens:,} or add GPUs"
        )
    else:
        console.print(f"[green]{model} fits[/]: {sizes}")


def _figures_table(figures: tuple[Figure, ...], *, explain: bool) -> Table:
    columns = ("figure", "value", "unit", *(("formula",) if explain else ()))
    table = _table("Figures", *columns)
    for figure in figures:
        cells = [figure.name.replace("_", " "), _number(figure.value), figure.unit]
        table.add_row(*cells, *((figure.formula,) if explain else ()))
    return table


def _scaling_table(plan: Plan) -> Table:
    title = f"One replica by GPUs (knee: {plan.knee_gpus or 'none runs'})"
    table = _table(title, "GPUs", "tokens/s", "requests", "ms a token", "alpha comm", "what")
    for point in plan.scaling:
        if point.refused:
            table.add_row(str(point.gpus), "", "", "", "", point.refused)
        else:
            table.add_row(
                str(point.gpus),
                _number(point.tokens_per_s),
                _number(point.batch),
                f"{point.decode_s * 1e3:.1f}",
                f"{point.alpha_comm:.3f}",
                "",
            )
    return table


def _tiers_table(plan: Plan) -> Table:
    table = _table(
        "Tiers (may miss: share of requests at 5 % less throughput, if the engine waits)",
        "tier",
        "tokens",
        "restore ms",
        "recompute ms",
        "break-even",
        "TTFT ms",
        "may miss",
    )
    ttft = ttft_by_source(plan)
    for found in plan.tiers:
        even = found.break_even_tokens
        table.add_row(
            f"{found.tier.name} ({found.tier.link})",
            _number(found.tokens),
            f"{found.restore_s * 1e3:.1f}",
            f"{found.recompute_s * 1e3:.1f}",
            "never" if even is None else f"{even:,}",
            f"{ttft[found.tier.name]:.1f}",
            f"{plan.miss_budgets.get(found.tier.name, 0):.1%}",
        )
    again = f"{plan.miss_budgets.get('recompute', 0):.1%}"
    table.add_row("device", "", "", "", "", f"{ttft['device']:.1f}", "")
    table.add_row("nowhere: computed", "", "", "", "", f"{ttft['nowhere']:.1f}", again)
    return table


def _schedule_table(plan: Plan) -> Table:
    title = f"Scheduler target (asked: {plan.request.occupancy:.0%} of the KV pool)"
    table = _table(title, "occupancy", "requests", "tokens/s", "ms a token", "pool overflows")
    for row in plan.schedule:
        table.add_row(
            f"{row.occupancy:.0%}",
            _number(row.requests),
            _number(row.tokens_per_s),
            f"{row.decode_s * 1e3:.1f}",
            f"{row.overflow:.1%}",
        )
    return table


def _print_choices(console: Console, plan: Plan) -> None:
    if plan.engine is not None:
        console.print(f"\nEngine: [bold]{plan.engine.engine}[/]")
        for reason in plan.engine.reasons:
            console.print(f"- {reason.engine}: {reason.sentence}", highlight=False)
    console.print("\nSizes tried", style="bold")
    for line in plan.topology.reasons:
        console.print(f"- {line}", highlight=False)
    for name, command in plan.commands.items():
        console.print(f"\n{name}", style="bold")
        console.print(command, highlight=False, markup=False, soft_wrap=True)


def print_catalogue(models: Mapping[str, ModelFacts], gpus: Mapping[str, GpuFacts]) -> None:
    """Print the built-in models and GPUs with their sources."""
    console = Console()
    table = _table("Models", "name", "params 10^9", "context", "source")
    for name, facts in models.items():
        table.add_row(
            name, _number(facts.total_params() / 1e9), f"{facts.max_context:,}", facts.source
        )
    console.print(table)
    table = _table("GPUs", "name", "GiB", "GB/s", "dense bf16 TFLOP/s", "source")
    for name, gpu in gpus.items():
        table.add_row(
            name,
            f"{gpu.memory_bytes / GIB:.1f}",
            _number(gpu.bandwidth / 1e9),
            _number(gpu.bf16_flops / 1e12),
            gpu.source,
        )
    console.print(table)
