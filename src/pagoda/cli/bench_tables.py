"""The benches' reports as Rich tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.table import Table

_LATENCIES = {
    "first_token": "to first token",
    "first_token_from_send": "to first token, from sending",
    "between_tokens": "between tokens",
    "end_to_end": "end to end",
}


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1e3:,.1f}"


def _share(share: float | None) -> str:
    return "not reported" if share is None else f"{share:.1%}"


def _number(value: float | None, form: str = ",.1f") -> str:
    return "–" if value is None else format(value, form)


def serve_tables(report: dict[str, Any]) -> Group:
    """Latencies, growth by turn, totals and errors of `pagoda bench serve`."""
    parts = [_latency_table(report), _totals_table(report)]
    if len(report["by_turn"]) > 1:
        parts.insert(1, _turn_table(report))
    if report["errors"]:
        parts.append(_error_table(report))
    return Group(*parts)


def _latency_table(report: dict[str, Any]) -> Table:
    load = report["load"]
    stopped = ", stopped early" if report["interrupted"] else ""
    table = Table(title=f"{load['profile']}, {load['loop']} loop{stopped}: latency in ms")
    table.add_column("time")
    for name in ("p50", "p90", "p99", "max"):
        table.add_column(name, justify="right")
    shapes = {_LATENCIES[name]: shape for name, shape in report["latency_s"].items()}
    if load["loop"] == "open":
        shapes["sent later than meant"] = report["late_s"]
    else:  # sent when meant: the two are one
        del shapes[_LATENCIES["first_token_from_send"]]
    for name, shape in shapes.items():
        row = [_ms(shape and shape[column]) for column in ("p50", "p90", "p99", "max")]
        table.add_row(name, *row)
    return table


def _turn_table(report: dict[str, Any]) -> Table:
    table = Table(title="by turn")
    for name in ("turn", "served", "to first token, p50 ms", "prompt tokens, mean", "cached"):
        table.add_column(name, justify="right")
    for row in report["by_turn"]:
        table.add_row(
            str(row["turn"]),
            str(row["served"]),
            _ms(row["first_token_p50_s"]),
            _number(row["prompt_tokens_mean"], ",.0f"),
            _share(row["cached_share"]),
        )
    return table


def _totals_table(report: dict[str, Any]) -> Table:
    requests, throughput, cache = report["requests"], report["throughput"], report["cache"]
    table = Table(title="totals", show_header=False)
    table.add_row("model", str(report["server"]["model"]))
    table.add_row(
        "requests",
        f"{requests['served']} served, {requests['failed']} failed, {requests['unsent']} unsent "
        f"of {requests['planned']} in {report['seconds']:.1f} s",
    )
    table.add_row(
        "answers",
        f"{_number(throughput['output_tokens_per_s'])} tokens/s "
        f"({throughput['output_tokens']:,} tokens, counted by {throughput['counted_by']}; "
        f"{_number(throughput['tokens_per_event'], '.2f')} an event)",
    )
    table.add_row("cached prompt tokens", _share(cache["cached_share"]))
    return table


def _error_table(report: dict[str, Any]) -> Table:
    table = Table(title="errors")
    for name in ("kind", "count", "for example"):
        table.add_column(name, overflow="fold")
    for error in report["errors"]:
        table.add_row(error["kind"], str(error["count"]), error["example"])
    return table


def _spread(spread: dict[str, float], form: str = ".2f") -> str:
    low, high = format(spread["low"], form), format(spread["high"], form)
    return f"{spread['median']:{form}} [dim]{low}–{high}[/]"


def host_line(report: dict[str, Any]) -> str:
    facts = report["host"]
    return (
        f"{facts['cpu']}, {facts['cpus_usable']} processors, load {facts['load_1m']} before and "
        f"{report['load_1m_after']} after; pagoda {facts['pagoda']}, Python {facts['python']}"
    )


def engine_tables(report: dict[str, Any]) -> Group:
    """Every figure beside its goal."""
    figures = [figure for part in report["parts"].values() for figure in part["figures"]]
    title = f"engine, {report['model']}, {report['threads']} threads"
    rows = [figure_table(title, figures)]
    if "restore" in report["parts"]:
        rows.append(_restore_table(report["parts"]["restore"]["figures"][0]["detail"]))
    if "decode" in report["parts"]:
        rows.append(_decode_table(report["parts"]["decode"]["rows"]))
    if "prefill" in report["parts"]:
        rows.append(_prefill_table(report["parts"]["prefill"]["rows"]))
    return Group(*rows, host_line(report))


def figure_table(title: str, figures: Sequence[dict[str, Any]]) -> Table:
    """Measured figures beside their goals."""
    table = Table(title=title)
    for name in ("figure", "measured", "goal", ""):
        table.add_column(name, overflow="fold")
    for figure in figures:
        table.add_row(
            figure["name"],
            f"{_value(figure['value'])} {figure['unit']}{_range(figure.get('detail', {}))}",
            figure["goal"],
            _VERDICTS[figure["met"]],
        )
    return table


_VERDICTS = {True: "[green]met[/]", False: "[red]NOT MET[/]", None: "[dim]not judged[/]"}


def _range(detail: dict[str, Any]) -> str:
    """The lowest and highest value of a figure that has them, or why it was not measured."""
    if "low" in detail and "high" in detail:
        return f" [dim]{_value(detail['low'])}–{_value(detail['high'])}[/]"
    return f": {detail['why']}" if "why" in detail else ""


def _value(value: float | str | None) -> str:
    if isinstance(value, int | float):
        return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return str(value)


def _restore_table(detail: dict[str, Any]) -> Table:
    table = Table(title="first token of 2,048 tokens, ms: median, range")
    names = {
        "computed_s": "computed",
        "restored_s": "restored",
        "read_s": "reading the same bytes",
    }
    for name in names.values():
        table.add_column(name, justify="right")
    table.add_column("same answer")
    shown = [_spread({k: v * 1e3 for k, v in detail[key].items()}, ",.1f") for key in names]
    table.add_row(*shown, "yes" if detail["same_answer"] else "NO")
    return table


def _decode_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="decoding, tokens/s: median, range")
    sides = list(rows[0]["decode_tokens_per_s"])
    for name in ("batch", *sides, "tokens in common"):
        table.add_column(name, justify="right")
    for row in rows:
        speeds = [_spread(row["decode_tokens_per_s"][side], ",.0f") for side in sides]
        table.add_row(str(row["batch"]), *speeds, f"{row['tokens_in_common']:.0%}")
    return table


def _prefill_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="prefill, tokens/s: median, range")
    sides = list(rows[0]["tokens_per_s"])
    for name in ("tokens", *sides):
        table.add_column(name, justify="right")
    for row in rows:
        speeds = [_spread(row["tokens_per_s"][side], ",.0f") for side in sides]
        table.add_row(f"{row['tokens']:,}", *speeds)
    return table
