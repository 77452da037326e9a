"""Checks of versions: driver, CUDA, NCCL, and libraries that do not fit together.

The minima have reasons, and are printed with them:

CUDA 12.2   modules load lazily by default on Linux, so a rank's context costs far less of
            the memory that the KV cache wants; its driver is 535.
NCCL 2.20   2.19 switched to cuMem allocations by default, which cost memory at each captured
            CUDA graph (NVIDIA/nccl#1234) and could deadlock while connecting (#1116).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pagoda.advise.preflight.check import Check
from pagoda.machine.software import environment, module_version, packages, smi_versions
from pagoda.machine.tree import HostTree

__all__ = [
    "MIN_CUDA",
    "MIN_CUDA_WHY",
    "MIN_DRIVER",
    "MIN_NCCL",
    "MIN_NCCL_WHY",
    "driver_serves",
    "parsed",
    "version_checks",
]

MIN_CUDA = (12, 2)
MIN_NCCL = (2, 20)
MIN_DRIVER = (535,)
MIN_CUDA_WHY = "from 12.2 on, modules load lazily by default: a rank's context costs less memory"
MIN_NCCL_WHY = (
    "2.19 loses memory at each captured CUDA graph (nccl#1234) and may deadlock while connecting "
    "(nccl#1116)"
)

# Oldest driver of each CUDA major version, by minor-version compatibility.
_MAJOR_DRIVERS = {11: (450,), 12: (525,), 13: (580,)}


def parsed(version: str) -> tuple[int, ...]:
    """Leading numbers of a version; empty when there are none."""
    hit = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in hit[1].split(".")) if hit is not None else ()


def driver_serves(driver: tuple[int, ...], cuda: tuple[int, ...]) -> bool | None:
    """Tell whether a driver can run a CUDA major version; None for an unknown one."""
    oldest = _MAJOR_DRIVERS.get(cuda[0]) if cuda else None
    return None if oldest is None or not driver else driver[:1] >= oldest


def version_checks(tree: HostTree) -> Iterator[Check]:
    """All checks of versions."""
    module = module_version(tree)
    served, problem = smi_versions(tree)
    installed = packages(tree)
    yield _driver(module)
    yield _driver_library(module, served, problem)
    yield _cuda(module, served, installed)
    yield _nccl(installed)
    yield _mixed(installed)
    yield _steering(environment(tree))


def _driver(module: str | None) -> Check:
    confirm = "cat /proc/driver/nvidia/version"
    if module is None:
        return Check("driver", "unknown", "no NVIDIA kernel module is loaded here", confirm)
    if parsed(module) < MIN_DRIVER:
        wanted = f"{MIN_DRIVER[0]}, which CUDA 12.2 needs: {MIN_CUDA_WHY}"
        reason = f"driver {module} is older than {wanted}"
        return Check("driver", "fail", reason, confirm, f"install a driver ≥ {MIN_DRIVER[0]}")
    return Check("driver", "pass", f"driver {module}", confirm)


def _driver_library(module: str | None, served: Mapping[str, str], problem: str) -> Check:
    confirm = "nvidia-smi; cat /proc/driver/nvidia/version"
    library = served.get("driver")
    if "version mismatch" in problem.lower():
        reason = "the driver's library and its kernel module are of different versions"
        remedy = "reload the nvidia modules or reboot; in a container, restart it"
        return Check("driver-library", "fail", reason, confirm, remedy)
    if module is None or library is None:
        reason = problem or "no NVIDIA kernel module is loaded here"
        return Check("driver-library", "unknown", reason, confirm)
    if library != module:
        reason = f"library {library}, kernel module {module}"
        return Check("driver-library", "fail", reason, confirm, "reload the modules or reboot")
    return Check("driver-library", "pass", f"library and module are {module}", confirm)


def _cuda(
    module: str | None, served: Mapping[str, str], installed: Mapping[str, list[str]] | None
) -> Check:
    confirm = "nvidia-smi | grep 'CUDA Version'; pip list | grep -i -E 'torch|cuda'"
    runtime = _runtime(installed or {})
    if runtime is None:
        reason = "no CUDA runtime among the installed packages"
        return Check("cuda", "unknown", reason, confirm)
    shown = ".".join(map(str, runtime))
    if runtime[:2] < MIN_CUDA:
        reason = f"CUDA {shown} is older than {MIN_CUDA[0]}.{MIN_CUDA[1]}: {MIN_CUDA_WHY}"
        return Check("cuda", "fail", reason, confirm, "install an engine built for CUDA ≥ 12.2")
    newest = parsed(served.get("cuda", ""))
    serves = driver_serves(parsed(module or ""), runtime)
    if serves is False:
        reason = f"CUDA {shown} needs a newer driver than {module}"
        return Check("cuda", "fail", reason, confirm, "install a newer driver, or an older build")
    if newest and newest[:2] < runtime[:2]:
        reason = (
            f"CUDA {shown} on a driver for {served['cuda']}: minor-version compatibility runs it, "
            "but kernels that are compiled at run time (PTX) may be refused"
        )
        return Check("cuda", "warn", reason, confirm, "install the driver of that CUDA version")
    if serves is None and not newest:
        reason = f"CUDA {shown} is installed; without a driver it cannot be compared"
        return Check("cuda", "unknown", reason, confirm)
    return Check("cuda", "pass", f"CUDA {shown}, driver {module or served.get('driver')}", confirm)


def _runtime(installed: Mapping[str, list[str]]) -> tuple[int, ...] | None:
    """The CUDA runtime's version: its package, else the tag of the torch build (+cu124)."""
    for name, versions in sorted(installed.items(), reverse=True):
        if name.startswith("nvidia-cuda-runtime") and parsed(versions[0]):
            return parsed(versions[0])
    tag = re.search(r"\+cu(\d{2})(\d)", " ".join(installed.get("torch", [])))
    return (int(tag[1]), int(tag[2])) if tag is not None else None


def _nccl(installed: Mapping[str, list[str]] | None) -> Check:
    confirm = "pip list | grep -i nccl; python -c 'import torch; print(torch.cuda.nccl.version())'"
    found = _nccl_versions(installed or {})
    if not found:
        return Check("nccl", "unknown", "no NCCL among the installed packages", confirm)
    old = {name: v for name, v in found.items() if parsed(v)[:2] < MIN_NCCL}
    if old:
        name, version = next(iter(old.items()))
        reason = f"{name} {version} is older than {MIN_NCCL[0]}.{MIN_NCCL[1]}: {MIN_NCCL_WHY}"
        remedy = "install a newer engine or torch build (each pins its NCCL)"
        return Check("nccl", "fail", reason, confirm, remedy)
    if len(found) > 1:
        shown = ", ".join(f"{name} {version}" for name, version in found.items())
        reason = f"several NCCL packages: {shown}; which one is loaded depends on the order"
        return Check("nccl", "warn", reason, confirm, "keep the one that torch names")
    name, version = next(iter(found.items()))
    return Check("nccl", "pass", f"{name} {version}", confirm)


def _nccl_versions(installed: Mapping[str, list[str]]) -> dict[str, str]:
    return {
        name if len(versions) == 1 else f"{name} ({k + 1})": version
        for name, versions in sorted(installed.items())
        if name.startswith("nvidia-nccl")
        for k, version in enumerate(versions)
        if parsed(version)
    }


def _mixed(installed: Mapping[str, list[str]] | None) -> Check:
    """CUDA majors of the packages: one process can only use one of them."""
    confirm = "pip list | grep -i -E 'torch|nvidia|cu1[0-9]'"
    majors: dict[str, str] = {}
    for name, versions in (installed or {}).items():
        if name in ("nvidia-cuda-runtime", "nvidia-cublas") and parsed(versions[0]):
            majors.setdefault(str(parsed(versions[0])[0]), name)
        hit = re.search(r"-cu(\d{2})$", name) or re.search(r"\+cu(\d{2})\d", " ".join(versions))
        if hit is not None:
            majors.setdefault(hit[1], name)
    if not majors:
        return Check("library-mix", "unknown", "no CUDA packages are installed", confirm)
    if len(majors) > 1:
        shown = ", ".join(f"CUDA {major} ({name})" for major, name in sorted(majors.items()))
        reason = f"packages for different CUDA majors are installed together: {shown}"
        remedy = "one environment for each engine, made in one installation"
        return Check("library-mix", "warn", reason, confirm, remedy)
    return Check("library-mix", "pass", f"all packages are for CUDA {next(iter(majors))}", confirm)


# Variables that cost speed or hide a fault wherever they are forgotten.
_COSTLY = {
    ("NCCL_P2P_DISABLE", "1"): "peers copy through host memory",
    ("NCCL_SHM_DISABLE", "1"): "ranks of one host talk over the network",
    ("NCCL_IB_DISABLE", "1"): "nodes talk over TCP although there may be RDMA",
    ("CUDA_LAUNCH_BLOCKING", "1"): "each kernel is waited for",
    ("NCCL_DEBUG", "TRACE"): "NCCL logs every call",
    ("NVIDIA_DISABLE_REQUIRE", "1"): "the container's driver requirement is not checked",
}


def _steering(variables: Mapping[str, str]) -> Check:
    confirm = "env | grep -E '^(NCCL|CUDA|NVIDIA|LD_)'"
    found = [f"{n}={v}: {why}" for (n, v), why in _COSTLY.items() if variables.get(n) == v]
    if "nccl" in variables.get("LD_PRELOAD", "").lower():
        found.append("LD_PRELOAD loads another NCCL than the engine's own")
    if found:
        return Check("environment", "warn", "; ".join(found), confirm, "unset what was left over")
    return Check("environment", "pass", "no variable is set that costs speed", confirm)
