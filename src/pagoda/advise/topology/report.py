"""The answer of `pagoda topology` for one host: the stable machine shape and its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pagoda.advise.topology.cliques import asymmetric_pairs, cliques
from pagoda.advise.topology.foreign import Foreign
from pagoda.advise.topology.groups import Grouper, Proposal
from pagoda.advise.topology.launch import Setting, environment
from pagoda.advise.topology.matrix import Matrix
from pagoda.advise.topology.parse import parse
from pagoda.advise.topology.slowdown import Slowdown, slowdown
from pagoda.advise.topology.warn import group_warnings, host_warnings

__all__ = ["DEFAULT_SIZES", "Report", "analyse"]

DEFAULT_SIZES = (2, 4, 8)


@dataclass(frozen=True)
class Report:
    """Everything known about one host's groups; `as_json` is the documented shape.

    `status` is "ok" (groups, or a single GPU), "refused" (not NVIDIA, MIG, or no
    homogeneous group) or "unknown" (no matrix, or too little of one).
    """

    status: str
    reason: str
    matrix: Matrix | None = None
    proposals: Mapping[int, Proposal] = field(default_factory=dict)
    chosen: tuple[int, ...] = ()
    settings: Sequence[Setting] = ()
    slower: Mapping[int, Slowdown] = field(default_factory=dict)
    warnings: Sequence[str] = ()

    def as_json(self) -> dict[str, Any]:
        """The shape for machines: ids are sorted inside groups, `env` has the ring order."""
        sizes = self.proposals or dict.fromkeys(DEFAULT_SIZES)
        matrix = self.matrix
        return {
            "status": self.status,
            "reason": self.reason,
            "gpus": list(matrix.gpus) if matrix else [],
            "cliques": cliques(matrix) if matrix else [],
            "numa": matrix.numa() if matrix else {},
            "asymmetric": [list(pair) for pair in asymmetric_pairs(matrix)] if matrix else [],
            "tp_groups": {
                str(size): [list(group) for group in proposal.groups] if proposal else []
                for size, proposal in sorted(sizes.items())
            },
            "env": {setting.name: setting.value for setting in self.settings},
            "warnings": list(self.warnings),
        }


def analyse(
    text: str,
    *,
    sizes: Sequence[int] = (),
    names: Mapping[int, str] | None = None,
    force: bool = False,
) -> Report:
    """Read a matrix and propose groups of 2, 4, 8 and the given `sizes`.

    `names` are product names by GPU id. `force` also proposes groups whose pairs are
    unlike. Any text gives a report; nothing is raised.
    """
    matrix = parse(text)
    if isinstance(matrix, Foreign):
        return Report(matrix.status, matrix.reason)
    if names:
        matrix = replace(matrix, names={**matrix.names, **names})
    wanted = sorted({size for size in (*DEFAULT_SIZES, *sizes) if size >= 2})
    doubt = _doubt(matrix)
    if doubt is not None and not force:
        empty = {size: Proposal(size, ()) for size in wanted}
        return Report("unknown", doubt, matrix, empty, warnings=host_warnings(matrix))
    grouper = Grouper(matrix)
    proposals = {size: grouper.propose(size, force=force) for size in wanted}
    return _report(matrix, grouper, proposals, sizes)


def _doubt(matrix: Matrix) -> str | None:
    """Why the matrix is too incomplete to answer from; None when it is not."""
    unknown = matrix.unknown()
    if unknown:
        left, right = unknown[0]
        more = f" and {len(unknown) - 1} more pairs" if len(unknown) > 1 else ""
        pair = f"GPU{left}–GPU{right}{more}"
        return f"matrix incomplete: the link of {pair} cannot be read; capture it again"
    headless = any("column line" in sentence for sentence in matrix.damage)
    joined = any(link.kind == "NV" for link in matrix.links.values())
    if headless and matrix.cut and not joined:
        return (
            "matrix incomplete: its column line is missing and its end is cut, so GPU and adapter "
            "columns cannot be told apart; capture it again"
        )
    return None


def _report(
    matrix: Matrix, grouper: Grouper, proposals: Mapping[int, Proposal], sizes: Sequence[int]
) -> Report:
    chosen = _chosen(proposals, sizes)
    forced = bool(chosen) and grouper.fault(chosen) is not None
    settings = environment(matrix, chosen, forced=forced) if chosen else _single(matrix)
    status, reason = _verdict(matrix, proposals, chosen)
    slower = _slower(matrix, proposals, chosen)
    warnings = host_warnings(matrix)
    for size, proposal in sorted(proposals.items()):
        warnings += group_warnings(matrix, proposal.groups)
        if proposal.refusal is not None and size <= len(matrix.gpus):
            verb = "forced" if proposal.groups else "refused"
            warnings.append(f"tensor-parallel {size} {verb}: {proposal.refusal.why}")
    return Report(
        status, reason, matrix, proposals, chosen, settings, slower, tuple(dict.fromkeys(warnings))
    )


def _chosen(proposals: Mapping[int, Proposal], sizes: Sequence[int]) -> tuple[int, ...]:
    """The group to print settings for: of the asked size, else of the largest that has one."""
    asked = [size for size in sizes if proposals.get(size) and proposals[size].groups]
    able = asked or [size for size, proposal in proposals.items() if proposal.groups]
    return proposals[max(able)].groups[0] if able else ()


def _single(matrix: Matrix) -> list[Setting]:
    if len(matrix.gpus) != 1:
        return []
    return environment(matrix, matrix.gpus)


def _verdict(
    matrix: Matrix, proposals: Mapping[int, Proposal], chosen: Sequence[int]
) -> tuple[str, str]:
    count = len(matrix.gpus)
    if count == 1:
        return "ok", "one GPU: there is nothing to group"
    if chosen:
        groups = len(proposals[len(chosen)].groups)
        return "ok", f"{count} GPUs: {groups} group(s) of {len(chosen)}, such as {list(chosen)}"
    smallest = proposals[min(proposals)].refusal
    why = "no homogeneous group" if smallest is None else smallest.why
    return "refused", f"no homogeneous group among {count} GPUs: {why}; --force overrides"


def _slower(
    matrix: Matrix, proposals: Mapping[int, Proposal], chosen: Sequence[int]
) -> dict[int, Slowdown]:
    """For each refused size, how much slower such a group would be than the chosen one."""
    found = {}
    for size, proposal in proposals.items():
        if proposal.refusal is None or size > len(matrix.gpus) or not chosen:
            continue
        bad = proposal.groups[0] if proposal.groups else tuple(sorted(matrix.gpus))[:size]
        estimate = slowdown(matrix, chosen, bad)
        if estimate is not None:
            found[size] = estimate
    return found
