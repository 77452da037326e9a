"""Versions on this host: driver, CUDA, NCCL, engines; and the environment that steers them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from importlib import metadata

from pagoda.machine.tree import HostTree

__all__ = [
    "ENVIRONMENT_PREFIXES",
    "environment",
    "kernel_modules",
    "kernel_release",
    "module_version",
    "packages",
    "smi_versions",
]

# What may be read from an environment: never anything that could hold a secret.
ENVIRONMENT_PREFIXES = ("NCCL_", "CUDA_", "NVIDIA_", "VLLM_", "SGLANG_", "PAGODA_", "UCX_")
ENVIRONMENT_NAMES = (
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "PYTHONHASHSEED",
    "OMP_NUM_THREADS",
    "GLOO_SOCKET_IFNAME",
)
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL|AUTH|SALT", re.IGNORECASE)
_PACKAGES = re.compile(
    r"torch|vllm|sglang|lmcache|pagoda-kv|flashinfer.*|triton|nvidia-.*|cupy.*|cuda-.*"
)


def module_version(tree: HostTree) -> str | None:
    """Version of the loaded NVIDIA kernel module, such as 550.54.15."""
    text = tree.text("proc/driver/nvidia/version") or ""
    hit = re.search(r"Kernel Module(?: for \S+)?\s+(\d{3}\.\d{1,3}(?:\.\d{1,3})?)", text)
    return hit[1] if hit is not None else tree.text("sys/module/nvidia/version")


def smi_versions(tree: HostTree) -> tuple[dict[str, str], str]:
    """The driver library's version and the newest CUDA it serves, and why they are missing."""
    taken = tree.command("nvidia-smi")
    found = {}
    for name, key in (("Driver Version", "driver"), ("CUDA Version", "cuda")):
        hit = re.search(rf"{name}: *(\d+(?:\.\d+)+)", taken.text)
        if hit is not None:
            found[key] = hit[1]
    said = taken.text.strip()
    if "mismatch" in said:  # NVML says so on standard output, and then fails
        return found, said.splitlines()[0]
    return found, taken.problem or ("" if found else said[:200])


def kernel_modules(tree: HostTree) -> set[str] | None:
    """Loaded kernel modules; None when they cannot be listed."""
    text = tree.text("proc/modules")
    return None if text is None else {line.split()[0] for line in text.splitlines() if line.split()}


def kernel_release(tree: HostTree) -> str | None:
    """The running kernel's release, such as 6.8.0-45-generic."""
    return tree.text("proc/sys/kernel/osrelease")


def packages(tree: HostTree) -> dict[str, list[str]] | None:
    """Versions of installed distributions that touch the GPU, by lower-case name.

    More than one version means that several are on the path. None when they are unknown.
    """
    if not tree.live:
        text = tree.text("pagoda/packages.txt")
        pairs = None if text is None else [line.partition("==") for line in text.splitlines()]
        return None if pairs is None else _versions((name, version) for name, _, version in pairs)
    return _versions((d.metadata["Name"] or "", d.version) for d in metadata.distributions())


def _versions(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, version in pairs:
        plain = re.sub(r"[-_.]+", "-", name).lower()
        if _PACKAGES.fullmatch(plain) and version not in found.setdefault(plain, []):
            found[plain].append(version)
    return found


def environment(tree: HostTree) -> dict[str, str]:
    """Variables that steer CUDA, NCCL and the engines; secrets are left out."""
    if tree.live:
        return allowed(os.environ.items())
    lines = (tree.text("pagoda/environ.txt") or "").splitlines()
    return allowed(
        (name, value) for name, mark, value in (line.partition("=") for line in lines) if mark
    )


def allowed(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Keep the variables that are facts about GPUs and cannot be secrets."""
    return {
        name: value
        for name, value in pairs
        if (name.startswith(ENVIRONMENT_PREFIXES) or name in ENVIRONMENT_NAMES)
        and _SECRET.search(name) is None
    }
