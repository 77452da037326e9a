"""Checks of a Dockerfile or a compose file, against this host's versions where they are known."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pagoda.advise.preflight.check import Check, Status, sized, worst
from pagoda.advise.preflight.compose import NotCompose, compose_specs
from pagoda.advise.preflight.dockerfile import dockerfile_spec
from pagoda.advise.preflight.engines import engine_checks
from pagoda.advise.preflight.memory import DOCKER_SHM_BYTES, SHM_PER_RANK_BYTES, USEFUL_LOCK_BYTES
from pagoda.advise.preflight.nccl import Fabric, fabric_of, nccl_check
from pagoda.advise.preflight.spec import Spec
from pagoda.advise.preflight.versions import (
    MIN_CUDA,
    MIN_CUDA_WHY,
    MIN_NCCL,
    MIN_NCCL_WHY,
    driver_serves,
    parsed,
)
from pagoda.machine.limits import UNLIMITED
from pagoda.machine.software import module_version, packages
from pagoda.machine.tree import HostTree

__all__ = ["container_checks"]

_Verdict = tuple[Status, str, str]
_ENGINES = re.compile(
    r"vllm|sglang|lmcache|pagoda|tritonserver|text-generation|pytorch|nvidia/cuda"
)
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
_CUDA = (
    re.compile(r"nvidia/cuda:(\d+\.\d+)"),
    re.compile(r"[:-]cuda-?(\d+\.\d+)"),
    re.compile(r"\bCUDA_VERSION=(\d+\.\d+)"),
)
_CUDA_TAG = re.compile(r"[+/:-]cu(\d{2})(\d)\b")
_NCCL = (
    re.compile(r"nvidia[-_]nccl[-_]cu\d{2}[=~<>! ]{1,4}(\d+\.\d+(?:\.\d+)?)"),
    re.compile(r"libnccl2=(\d+\.\d+(?:\.\d+)?)"),
    re.compile(r"\bNCCL_VERSION=(\d+\.\d+(?:\.\d+)?)"),
)


def container_checks(text: str, tree: HostTree) -> list[Check]:
    """Check a container file's text; any text gives an answer."""
    try:
        specs = _specs(text)
    except NotCompose as error:
        reason = f"no Dockerfile (no FROM), and as a compose file: {error}"
        remedy = "give a Dockerfile or a compose file"
        return [Check("container-file", "fail", reason, "docker compose config", remedy)]
    relevant = [s for s in specs if s.wants_gpu or _ENGINES.search(s.image or "")] or specs
    return list(_checks(relevant, tree))


def _specs(text: str) -> list[Spec]:
    if re.search(r"^\s*FROM\s+\S", text, re.MULTILINE | re.IGNORECASE):
        spec = dockerfile_spec(text)
        if spec is not None:
            return [spec]
    return compose_specs(text)


def _checks(specs: Sequence[Spec], tree: HostTree) -> Iterator[Check]:
    look = "docker compose config; docker inspect CONTAINER"
    yield _each("container-memlock", specs, [_memlock(spec) for spec in specs], look)
    yield _each("container-shm", specs, [_shm(spec) for spec in specs], look)
    yield _each("container-image", specs, [_image(spec) for spec in specs], look)
    confirm = "docker run --rm IMAGE nvidia-smi"
    yield _each("container-cuda", specs, [_cuda(spec, tree) for spec in specs], confirm)
    confirm = "docker run --rm IMAGE pip list | grep -i nccl"
    yield _each("container-nccl", specs, [_nccl(spec, tree) for spec in specs], confirm)
    confirm = "docker image inspect IMAGE --format '{{.Config.Env}}'"
    yield _each("container-environment", specs, [_environment(spec) for spec in specs], confirm)
    environments = {spec.name: spec.environment for spec in specs}
    # A container has interfaces and adapters of its own; the GPUs and their links are the host's.
    fabric = Fabric(matrix=fabric_of(tree).matrix)
    yield nccl_check(environments, fabric, name="container-nccl-settings")
    yield from engine_checks(tree, environments)


def _each(name: str, specs: Sequence[Spec], verdicts: Sequence[_Verdict], confirm: str) -> Check:
    """Answer with the worst of all services, each named."""
    status = worst([verdict[0] for verdict in verdicts])
    shown = [(s, v) for s, v in zip(specs, verdicts, strict=True) if v[0] == status]
    reason = "; ".join(f"{spec.name}: {verdict[1]}" for spec, verdict in shown)
    return Check(name, status, reason, confirm, shown[0][1][2] if shown else "")


def _memlock(spec: Spec) -> _Verdict:
    remedy = "ulimits: {memlock: -1} in compose; --ulimit memlock=-1 with docker run"
    if not spec.can_limit:
        return "unknown", "a Dockerfile cannot set the memory-lock limit, the run must", remedy
    if spec.memlock_bytes is None:
        return (
            "warn",
            "no memlock limit is set: the daemon's own counts, often 8 MiB or less",
            remedy,
        )
    if spec.memlock_bytes >= UNLIMITED:
        return "pass", "locked memory is unlimited", ""
    if spec.memlock_bytes < USEFUL_LOCK_BYTES:
        return "fail", f"only {sized(spec.memlock_bytes)} may be locked", remedy
    return "pass", f"{sized(spec.memlock_bytes)} may be locked", ""


def _shm(spec: Spec) -> _Verdict:
    remedy = "shm_size: 16gb or ipc: host in compose; --shm-size=16g or --ipc=host with docker run"
    if spec.host_ipc:
        return "pass", "the host's shared memory is used (ipc: host)", ""
    if not spec.can_limit:
        return "unknown", "a Dockerfile cannot set the size of shared memory, the run must", remedy
    if spec.shm_bytes is None:
        reason = (
            f"no shm_size and no ipc: host, so {sized(DOCKER_SHM_BYTES)}: NCCL and workers fail"
        )
        return "fail", reason, remedy
    if spec.shm_bytes <= DOCKER_SHM_BYTES:
        return "fail", f"shm_size is {sized(spec.shm_bytes)}", remedy
    if spec.shm_bytes < SHM_PER_RANK_BYTES:
        return "warn", f"shm_size is {sized(spec.shm_bytes)}, less than 1 GiB a rank", remedy
    return "pass", f"shm_size is {sized(spec.shm_bytes)}", ""


def _image(spec: Spec) -> _Verdict:
    if spec.image is None:
        return "unknown", "no image is named (it is built from elsewhere)", ""
    name, _, tag = spec.image.rpartition("/")[2].partition(":")
    if "@sha256:" in spec.image:
        return "pass", f"{name} is pinned by digest", ""
    if not tag or tag == "latest" or "$" in spec.image:
        reason = f"{spec.image} is not pinned: another pull may bring another CUDA or NCCL"
        return "warn", reason, "name a version or a digest"
    return "pass", f"{spec.image} names a version", ""


def _versions(spec: Spec) -> str:
    """The text to find versions in: image, installations and environment."""
    pairs = " ".join(f"{name}={value}" for name, value in spec.environment.items())
    return f"{spec.image or ''} {spec.run} {pairs}"


def _cuda(spec: Spec, tree: HostTree) -> _Verdict:
    text = _versions(spec)
    found = [parsed(hit[1]) for pattern in _CUDA for hit in pattern.finditer(text)]
    found += [(int(hit[1]), int(hit[2])) for hit in _CUDA_TAG.finditer(text)]
    if not found:
        return "unknown", "the file names no CUDA version", "write the version into the image's tag"
    oldest = min(found)
    shown = ".".join(map(str, oldest[:2]))
    if len({version[:2] for version in found}) > 1:
        every = ", ".join(sorted({".".join(map(str, version[:2])) for version in found}))
        return (
            "warn",
            f"different CUDA versions are named: {every}",
            "use one CUDA version throughout",
        )
    if oldest[:2] < MIN_CUDA:
        reason = f"CUDA {shown} is older than 12.2: {MIN_CUDA_WHY}"
        return "fail", reason, "use an image for CUDA 12.2 or later"
    driver = module_version(tree)
    if driver is not None and driver_serves(parsed(driver), oldest) is False:
        reason = f"CUDA {shown} needs a newer driver than this host's {driver}"
        return "fail", reason, "install a newer driver on the host, or use an older image"
    if driver is None:
        return "pass", f"CUDA {shown}; this host has no driver to compare with", ""
    return "pass", f"CUDA {shown} on this host's driver {driver}", ""


def _nccl(spec: Spec, tree: HostTree) -> _Verdict:
    text = _versions(spec)
    found = [hit[1] for pattern in _NCCL for hit in pattern.finditer(text)]
    if not found:
        return "unknown", "the file names no NCCL version", ""
    oldest = min(found, key=parsed)
    if parsed(oldest)[:2] < MIN_NCCL:
        reason = f"NCCL {oldest} is older than 2.20: {MIN_NCCL_WHY}"
        return "fail", reason, "install NCCL 2.20 or later (the engine's own pin is best)"
    here = {
        v for n, vs in (packages(tree) or {}).items() if n.startswith("nvidia-nccl") for v in vs
    }
    if here and oldest not in here:
        reason = f"NCCL {oldest} in the container, {', '.join(sorted(here))} on this host"
        return "warn", reason, "the ranks of one job must all have the same NCCL"
    return "pass", f"NCCL {oldest}", ""


def _environment(spec: Spec) -> _Verdict:
    """Variables that belong to a run, not into an image; secrets above all."""
    secrets = [n for n, v in spec.environment.items() if _SECRET.search(n) and v and "$" not in v]
    if secrets:
        reason = f"{secrets[0]} is written into the file: everyone who has it has the secret"
        return "fail", reason, "pass it at run time, as a secret or from a file with mode 0600"
    baked = [n for n in spec.environment if n.startswith("NCCL_") and n != "NCCL_VERSION"]
    if not spec.can_limit:
        baked += [n for n in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER") if n in spec.environment]
    baked += [n for n in ("NVIDIA_DISABLE_REQUIRE", "LD_PRELOAD") if n in spec.environment]
    if baked and not spec.can_limit:
        reason = f"{', '.join(baked)} baked into the image: right on one host, wrong on the next"
        return "warn", reason, "set it where the container is started"
    costly = [n for n in ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE") if spec.environment.get(n) == "1"]
    if costly:
        return "warn", f"{costly[0]}=1 makes peers copy through host memory", "unset it"
    if "NVIDIA_DISABLE_REQUIRE" in baked or "LD_PRELOAD" in baked:
        return "warn", f"{', '.join(baked)} hides version conflicts", "unset it"
    return "pass", "nothing is written into the file that belongs to a run", ""
