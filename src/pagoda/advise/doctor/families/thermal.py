"""Clocks held back by heat or power: now, or only in the counters of the past."""

from __future__ import annotations

from ..facts import Facts
from ..model import Cause, Check, Family, Sign

_THERMAL = r"(?:HW|SW) Thermal Slowdown"


def _history(facts: Facts) -> Check | None:
    """Only counters above zero are a history."""
    total_us = sum(facts.numbers("thermal_counter", "us"))
    if total_us <= 0:
        return None
    return Check(f"The counters add up to {total_us / 1e6:.1f} s.")


SIGNS = (
    Sign(
        "thermal_active",
        (
            " thermal slowdown",
            "hw slowdown",
        ),
        rf"{_THERMAL}\s{{0,40}}:\s{{0,4}}Active|HW Slowdown\s{{0,40}}:\s{{0,4}}Active",
        any_level=True,
    ),
    Sign(
        "power_brake",
        ("hw power brake slowdown",),
        r"HW Power Brake Slowdown\s{0,40}:\s{0,4}Active",
    ),
    Sign(
        "thermal_counter",
        (
            " thermal slowdown",
            "thermal violation",
        ),
        rf"(?:{_THERMAL}|Thermal Violation)\s{{0,40}}:\s{{0,4}}(?P<us>\d{{1,15}}) ?us",
        role="context",
    ),
    Sign(
        "thermal_kernel",
        (
            "clock throttled",
            "gpu throttl",
            "temperature above threshold",
            "thermal throttl",
            "throttled due to heat",
            "throttled due to temperature",
            "throttled due to thermal",
        ),
        r"temperature above threshold|clock throttled|thermal throttl|throttled due to (?:heat"
        r"|thermal"
        r"|temperature)|GPU throttl",
    ),
    Sign(
        "nvme_hot",
        ("temperature",),
        r"nvme.{0,80}(?:over|above|exceed).{0,40}temperature"
        r"|Warning\s{1,4}(?:Comp\. )?Temperature Time:?\s{0,20}[1-9]",
    ),
)

CAUSES = (
    Cause(
        id="thermal_throttling",
        kind="thermal",
        sentence="A device is throttling now because of heat or a power brake.",
        remedy="Check airflow, fans and inlet temperature; lower the power limit (nvidia-smi -pl) "
        "until the cooling is repaired.",
        will_not_help=(
            ("locking the clocks higher", "the protection overrules the request"),
            ("engine tuning", "the device, not the schedule, is slow"),
        ),
        collect=(
            "nvidia-smi -q -d TEMPERATURE,PERFORMANCE,POWER over a minute under load",
            "ipmitool sensor",
        ),
        confidence=0.85,
        reference="https://docs.nvidia.com/deploy/nvidia-smi/index.html",
        depth=60,
        any=("thermal_active", "thermal_kernel", "power_brake", "nvme_hot"),
    ),
    Cause(
        id="thermal_history",
        kind="thermal",
        sentence="Information only: the GPU is not throttling now; its "
        "counters show that it did in "
        "the past. T.Limit is the distance to the limit, not a temperature.",
        remedy="Nothing now. Compare the counters again under load: only their growth matters.",
        will_not_help=(
            ("replacing cooling for this alone", "the counters add up over the whole uptime"),
        ),
        collect=("the same report again after ten minutes of load",),
        confidence=0.8,
        reference="ollama/ollama#13552",
        depth=3,
        any=("thermal_counter",),
        none=("thermal_active", "thermal_kernel", "power_brake"),
        check=_history,
    ),
)

FAMILY = Family("thermal", "Heat and power", SIGNS, CAUSES)
