"""Several hosts at once: do they offer equal groups, and over which adapters do they talk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagoda.advise.topology.launch import near_adapters
from pagoda.advise.topology.report import Report
from pagoda.advise.topology.warn import class_names

__all__ = ["Nodes", "compare"]

_NEAR = ("PIX", "PXB", "PHB", "NODE")


@dataclass(frozen=True)
class Nodes:
    """The answer for several hosts: groups that every one of them has, and the way between."""

    status: str
    reason: str
    reports: Mapping[str, Report]
    groups: Mapping[int, Mapping[str, Sequence[tuple[int, ...]]]]
    env: Mapping[str, str]
    warnings: Sequence[str]

    def as_json(self) -> dict[str, Any]:
        """The shape for machines: one host's shape under each name, common groups by size."""
        return {
            "status": self.status,
            "reason": self.reason,
            "nodes": {name: report.as_json() for name, report in self.reports.items()},
            "tp_groups": {
                str(size): {
                    name: [list(group) for group in groups] for name, groups in hosts.items()
                }
                for size, hosts in sorted(self.groups.items())
            },
            "env": dict(self.env),
            "warnings": list(self.warnings),
        }


def compare(reports: Mapping[str, Report], *, interface: str | None = None) -> Nodes:
    """Cut every host's groups down to what all of them have, and name what differs.

    `interface` is the network device that all hosts share, for NCCL's first handshake.
    """
    bad = [name for name, report in reports.items() if report.status != "ok"]
    groups = {} if bad else _common(reports)
    warnings = [f"{name}: {text}" for name, report in reports.items() for text in report.warnings]
    warnings += _unlike(reports, groups)
    env, why = _between(reports, groups, interface)
    warnings += why
    status, reason = _verdict(reports, bad, groups)
    return Nodes(status, reason, reports, groups, env, tuple(warnings))


def _common(reports: Mapping[str, Report]) -> dict[int, dict[str, list[tuple[int, ...]]]]:
    """Groups by size and host, as many on each as the poorest has."""
    sizes = set.intersection(*(set(report.proposals) for report in reports.values()))
    found = {}
    for size in sizes:
        count = min(len(report.proposals[size].groups) for report in reports.values())
        found[size] = {
            name: list(report.proposals[size].groups[:count]) for name, report in reports.items()
        }
    return found


def _verdict(
    reports: Mapping[str, Report],
    bad: Sequence[str],
    groups: Mapping[int, Mapping[str, Sequence[tuple[int, ...]]]],
) -> tuple[str, str]:
    if bad:
        first = reports[bad[0]]
        return first.status, f"{bad[0]}: {first.reason}"
    usable = [size for size, hosts in groups.items() if all(hosts.values())]
    if not usable:
        return "refused", "the hosts have no group size in common"
    size = max(usable)
    count = len(next(iter(groups[size].values())))
    return "ok", f"{len(reports)} hosts with {count} group(s) of {size} each"


def _unlike(
    reports: Mapping[str, Report],
    groups: Mapping[int, Mapping[str, Sequence[tuple[int, ...]]]],
) -> list[str]:
    found = []
    counts = {name: len(report.matrix.gpus) for name, report in reports.items() if report.matrix}
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{name} has {count}" for name, count in counts.items())
        found.append(f"the hosts have different numbers of GPUs ({shown})")
    for size, hosts in sorted(groups.items()):
        kinds = {name: _classes(reports[name], chosen) for name, chosen in hosts.items() if chosen}
        if len(set(kinds.values())) > 1:
            shown = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
            found.append(
                f"groups of {size} differ between hosts ({shown}): the slowest sets the pace"
            )
    return found


def _classes(report: Report, groups: Sequence[tuple[int, ...]]) -> str:
    assert report.matrix is not None, "a report with groups has a matrix"
    names = {name for group in groups for name in class_names(report.matrix, group)}
    return "+".join(sorted(names))


def _between(
    reports: Mapping[str, Report],
    groups: Mapping[int, Mapping[str, Sequence[tuple[int, ...]]]],
    interface: str | None,
) -> tuple[dict[str, str], list[str]]:
    """Variables for the way between hosts, and warnings where it cannot be named."""
    env: dict[str, str] = {}
    warnings = []
    if interface is not None:
        env["NCCL_SOCKET_IFNAME"] = f"={interface}"
    else:
        warnings.append("name the network device that all hosts share with --interface")
    near = {name: _adapters(report) for name, report in reports.items()}
    shared = set.intersection(*near.values()) if groups and near else set()
    if shared:
        env["NCCL_IB_HCA"] = "=" + ",".join(sorted(shared))
    elif groups:
        warnings.append("no adapter near the GPUs has the same name on every host")
    return env, warnings


def _adapters(report: Report) -> set[str]:
    if report.matrix is None or not report.chosen:
        return set()
    near = near_adapters(report.matrix, report.chosen)
    return set(near[1]) if near is not None and near[0] in _NEAR else set()
