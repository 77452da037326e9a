"""What the NVIDIA driver says in the kernel's log: Xid numbers, and a GPU that vanished.

Source of the numbers' meaning: NVIDIA's Xid catalogue.
"""

from __future__ import annotations

from collections.abc import Callable

from ..facts import Facts
from ..model import Cause, Check, Family, Role, Sign

_DOC = "https://docs.nvidia.com/deploy/xid-errors/index.html"
_XID = r"NVRM: Xid \((?:PCI:)?(?P<gpu>[0-9a-fA-F:.]{4,20})[^)]{0,60}\):\s{0,2}"
_NEEDLE = ("nvrm: xid",)
_RESTARTS = ("restarting the engine or the pod", "the fault is below the process: it returns")
_SMI = (
    "a healthy nvidia-smi",
    "it asks the driver about management state and does no work on the link or the memory",
)
_COLLECT = (
    "journalctl -k (or dmesg -T) from ten minutes before the first Xid",
    "nvidia-smi -q, and nvidia-bug-report.sh before any reset",
)


def _sign(name: str, numbers: str, role: Role = "root") -> Sign:
    """A sign for a class of Xid numbers."""
    return Sign(name, _NEEDLE, _XID + rf"(?P<xid>{numbers})\b", role=role)


def _name_gpus(*signs: str) -> Callable[[Facts], Check]:
    """A check that names the GPUs and numbers; the rule has decided already."""

    def check(facts: Facts) -> Check:
        gpus: dict[str, int] = {}
        numbers: set[str] = set()
        for sign in signs:
            for gpu, count in facts.values(sign, "gpu").items():
                gpus[gpu] = gpus.get(gpu, 0) + count
            numbers.update(facts.values(sign, "xid"))
        parts = []
        if numbers:
            parts.append(f"Xid {', '.join(sorted(numbers))}")
        if gpus:
            parts.append(f"on GPU {', '.join(sorted(gpus)[:8])}")
        return Check(f"({' '.join(parts)}.)" if parts else "")

    return check


def _nvlink(facts: Facts) -> Check:
    """Name the GPU that carries the rarer, graver number: the others report its fault."""
    suspects = facts.values("xid_nvlink_grave", "gpu") or facts.values("xid_after_grave", "gpu")
    if suspects:
        return Check(f"The suspect is GPU {', '.join(sorted(suspects)[:4])}.")
    gpus = facts.values("xid_nvlink", "gpu") or facts.values("xid_after_nvlink", "gpu")
    return Check(f"Seen on GPU {', '.join(sorted(gpus)[:8])}." if gpus else "")


SIGNS = (
    _sign("xid_bus", "79"),
    Sign(
        "off_bus",
        (
            "fallen off the bus",
            "for critical error 79",
        ),
        r"fallen off the bus|for critical error 79\b",
    ),
    Sign(
        "gpu_lost",
        (
            "gpu is lost",
            "gpu_is_lost",
            "unable to determine the device handle for gpu",
        ),
        r"GPU is lost|Unable to determine the device handle for (?:gpu|GPU)|GPU_IS_LOST",
    ),
    _sign("xid_nvlink", "74|14[4-9]|150"),
    _sign("xid_nvlink_grave", "149|74"),
    Sign(
        "sxid",
        ("sxid (pci:",),
        r"SXid \(PCI:(?P<gpu>[0-9a-fA-F:.]{4,20})\): (?P<xid>\d{4,6}), (?:Fatal|Non-fatal)",
    ),
    Sign(
        "xid_after_nvlink",
        ("caused by previous xid ",),
        _XID + r"\d{1,3}\b.{0,120}caused by previous Xid (?P<xid>74|14[4-9]|150)\b",
    ),
    Sign(
        "xid_after_grave",
        ("caused by previous xid 149",),
        _XID + r"\d{1,3}\b.{0,120}caused by previous Xid (?P<xid>149)\b",
    ),
    _sign("xid_ecc", "48|63|64|92|94|95|140|171|172"),
    _sign("xid_gsp", "119|120|121|122|123"),
    Sign(
        "gsp_boot",
        (
            "cannot initialize gsp",
            "gsp-rm",
            "rminitadapter failed",
            "unexpected wpr2",
        ),
        r"Cannot initialize GSP|unexpected WPR2|(?:hung|timeout).{0,40}GSP-RM|RmInitAdapter failed",
    ),
    _sign("xid_application", "13|31|32|43|68|69"),
    _sign("xid_hardware", "38|56|57|58|61|62|109|110|136|137|151"),
    Sign("xid_any", _NEEDLE, _XID + r"(?P<xid>\d{1,4})\b", role="context"),
)

_KNOWN = (
    "xid_bus",
    "off_bus",
    "gpu_lost",
    "xid_nvlink",
    "xid_after_nvlink",
    "sxid",
    "xid_ecc",
    "xid_gsp",
    "gsp_boot",
    "xid_application",
    "xid_hardware",
)

CAUSES = (
    Cause(
        id="gpu_off_bus",
        kind="xid",
        sentence="A GPU fell off the PCIe bus: the host can no longer reach it (the meaning of "
        "Xid 79, which some driver paths say without an Xid).",
        remedy="Drain the host and power-cycle it; if it returns, reseat the card and its power "
        "cables, check heat, and have the card replaced.",
        will_not_help=(
            _RESTARTS,
            ("nvidia-smi --gpu-reset", "a reset is sent over the bus that no longer answers"),
            ("longer NCCL time-outs", "the peer will never answer"),
        ),
        collect=(*_COLLECT, "lspci -vv for the GPU and the bridge above it", "power and heat logs"),
        confidence=0.95,
        reference="NVIDIA/NVSentinel#155",
        depth=100,
        any=("xid_bus", "off_bus", "gpu_lost"),
        check=_name_gpus("xid_bus", "off_bus"),
    ),
    Cause(
        id="nvlink_fault",
        kind="xid",
        sentence="The NVLink fabric failed (Xid 74 or 144 to 150); Xid 45 lines after it are only "
        "the clean-up of channels.",
        remedy="Drain the host, reset the GPUs and the switches together or reboot, check that the "
        "fabric manager has the driver's version; replace the GPU that leads the list if it "
        "returns.",
        will_not_help=(
            _RESTARTS,
            _SMI,
            ("NCCL_P2P_DISABLE=1", "it hides the link for this job and leaves the fault in place"),
        ),
        collect=(*_COLLECT, "nvidia-smi nvlink -e and -s", "the fabric manager's log"),
        confidence=0.9,
        reference="NVIDIA/open-gpu-kernel-modules#1150",
        depth=99,
        any=("xid_nvlink", "xid_after_nvlink", "sxid"),
        check=_nvlink,
    ),
    Cause(
        id="gpu_memory_ecc",
        kind="xid",
        sentence="A GPU reported a memory error that ECC could not correct, "
        "or a row that had to be "
        "remapped.",
        remedy="Drain the GPU and reset it so that the row is retired; replace the card when "
        "remapping fails or the errors come back.",
        will_not_help=(
            _RESTARTS,
            ("lower gpu_memory_utilization", "the bad row stays until the GPU is reset"),
        ),
        collect=(*_COLLECT, "nvidia-smi -q -d ECC,ROW_REMAPPER"),
        confidence=0.9,
        reference=_DOC,
        depth=98,
        any=("xid_ecc",),
        check=_name_gpus("xid_ecc"),
    ),
    Cause(
        id="gsp_failure",
        kind="xid",
        sentence="The GPU's system processor (GSP) stopped answering the "
        "driver, or could not start.",
        remedy="Reset the GPU or reboot; then update driver and firmware "
        "together. If it returns on "
        "one card only, have it replaced.",
        will_not_help=(_RESTARTS, ("another CUDA version", "the GSP belongs to the driver")),
        collect=_COLLECT,
        confidence=0.85,
        reference="NVIDIA/open-gpu-kernel-modules#1230",
        depth=97,
        any=("xid_gsp", "gsp_boot"),
        none=("xid_bus", "off_bus"),
        check=_name_gpus("xid_gsp"),
    ),
    Cause(
        id="gpu_hardware_xid",
        kind="xid",
        sentence="The driver reported an internal fault of the GPU's firmware, clocks or power.",
        remedy="Drain and power-cycle the host; update the driver; have the card replaced if the "
        "same GPU reports it again.",
        will_not_help=(_RESTARTS, _SMI),
        collect=_COLLECT,
        confidence=0.8,
        reference=_DOC,
        depth=96,
        any=("xid_hardware",),
        check=_name_gpus("xid_hardware"),
    ),
    Cause(
        id="xid_application_fault",
        kind="xid",
        sentence="A program made the GPU fault (Xid 13, 31 or a relative): a kernel's bad access, "
        "not broken hardware, unless one GPU alone keeps reporting it.",
        remedy="Find the kernel with CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer; upgrade the "
        "engine or its attention backend. If only one GPU of many reports it, test that GPU.",
        will_not_help=(
            ("replacing the card at once", "a program's bad address looks the same on any card"),
            ("longer NCCL time-outs", "the process that faulted is gone"),
        ),
        collect=(*_COLLECT, "the engine's own log of the process named in the Xid line"),
        confidence=0.7,
        reference=_DOC,
        depth=54,
        any=("xid_application",),
        none=("xid_bus", "off_bus", "xid_nvlink", "xid_after_nvlink", "xid_ecc"),
        check=_name_gpus("xid_application"),
    ),
    Cause(
        id="xid_unclassified",
        kind="xid",
        sentence="The driver reported an Xid that says little by itself.",
        remedy="Look the number up in NVIDIA's catalogue and read the kernel's lines before it: an "
        "Xid 45 is only the clean-up after another fault or a killed process.",
        will_not_help=(_SMI,),
        collect=_COLLECT,
        confidence=0.4,
        reference=_DOC,
        depth=20,
        any=("xid_any",),
        none=_KNOWN,
        role="symptom",
        check=_name_gpus("xid_any"),
    ),
)

FAMILY = Family("xid", "GPU faults in the kernel's log", SIGNS, CAUSES)
