"""Errors of the CUDA runtime: bad accesses, memory, missing devices, pinning, fabric manager."""

from __future__ import annotations

from ..facts import Facts
from ..model import Cause, Check, Family, Sign

_TOOLKIT = "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html"
_REGISTER_LIMIT_BYTES = 512 * 2**30


def _pin_sizes(facts: Facts) -> float:
    """The largest host region that the log names, in bytes; 0 when it names none."""
    sizes = facts.numbers("host_region_bytes", "bytes")
    for group in ("gib", "setting"):
        sizes += [size * 2**30 for size in facts.numbers("host_region_gib", group)]
    return max(sizes, default=0.0)


def _register_limit(facts: Facts) -> Check | None:
    """A failed registration of 512 GiB or more meets the driver's limit per call."""
    failed = facts.has("host_register_failed", "cuda_memory_allocation", "cuda_oom")
    largest = _pin_sizes(facts)
    if not failed or largest < _REGISTER_LIMIT_BYTES:
        return None
    return Check(f"The largest region named is {largest / 2**30:.0f} GiB.")


def _small_pin(facts: Facts) -> Check | None:
    """A failed pin below the limit has another reason: RAM, cgroup or memory lock."""
    return None if _pin_sizes(facts) >= _REGISTER_LIMIT_BYTES else Check()


SIGNS = (
    Sign(
        "illegal_access",
        (
            "cuda failure 700",
            "illegal instruction",
            "illegal memory access",
            "illegal_address",
            "illegaladdress",
            "launch_failed",
            "launchfailure",
            "memory access fault by gpu",
            "misaligned address",
            "unspecified launch failure",
            "warp illegal address",
        ),
        r"illegal memory access|IllegalAddress|ILLEGAL_ADDRESS|Cuda failure 700|misaligned address"
        r"|unspecified launch failure|CUDA error: .{0,20}illegal instruction|LaunchFailure"
        r"|LAUNCH_FAILED|Memory access fault by GPU|Warp Illegal Address",
    ),
    Sign(
        "device_assert",
        (
            "assertion `",
            "cudaerrorassert",
            "device-side assert triggered",
        ),
        r"device-side assert triggered|cudaErrorAssert|\.cu:\d{1,6}:.{0,200}Assertion `",
    ),
    Sign(
        "cuda_oom",
        (
            " 'out of memory",
            " out of memory",
            "cublas_status_alloc_failed",
            "cuda_error_out_of_memory",
            "outofmemoryerror",
        ),
        r"(?:CUDA|HIP) out of memory|(?:torch|cuda)\.(?:cuda\.)?OutOfMemoryError"
        r"|CUDA error: out of memory"
        r"|Cuda failure(?: 2)? 'out of memory|CUBLAS_STATUS_ALLOC_FAILED|CUDA_ERROR_OUT_OF_MEMORY",
    ),
    Sign(
        "gpu_occupied",
        (
            " gib memory in use",
            "error in memory profiling",
            "free memory on device",
            "initial free memory ",
        ),
        r"[Ff]ree memory on device.{0,120}less than desired"
        r"|Process \d{1,10} has [\d.]{1,10} GiB memory in use"
        r"|[Ii]nitial free memory .{0,80}current free memory|Error in memory profiling",
    ),
    Sign(
        "memory_unbalanced",
        ("memory capacity is unbalanced",),
        r"memory capacity is unbalanced",
    ),
    Sign(
        "invalid_ordinal",
        (
            "cudaerrorinvaliddevice",
            "invalid device id",
            "invalid device ordinal",
        ),
        r"invalid device ordinal|cudaErrorInvalidDevice\b|[Ii]nvalid device id",
    ),
    Sign(
        "no_gpu",
        (
            " to initialize nvml",
            "could not select device driver",
            "couldn't communicate with the nvidia driver",
            "error 100",
            "error 101",
            "error (100)",
            "error (999)",
            "error 999",
            "failed to infer device type",
            "found no nvidia driver",
            "no cuda gpus are available",
            "no cuda-capable device",
            "no devices were found",
            "nvidia-container-cli: ",
            "torch not compiled with cuda",
        ),
        r"No CUDA GPUs are available|no CUDA-capable device|Found no NVIDIA driver"
        r"|Failed to infer device type"
        r"|Torch not compiled with CUDA|[Nn]o devices were found"
        r"|couldn't communicate with the NVIDIA driver"
        r"|nvidia-container-cli: .{0,80}(?:driver not loaded|nvml error|load library failed)"
        r"|could not select device driver|(?:Failed|Can't) to initialize NVML|[Ee]rror (?:100"
        r"|101|999):|error \((?:100|999)\)",
    ),
    Sign(
        "ecc_cuda",
        (
            "cudaerroreccuncorrectable",
            "uncorrectable ecc error",
            "uncorrectable nvlink error",
        ),
        r"uncorrectable ECC error|cudaErrorECCUncorrectable|[Uu]ncorrectable NVLink error",
    ),
    Sign(
        "fabric_802",
        (
            "error 802",
            "system not yet initialized",
            "system_not_ready",
            "systemnotready",
        ),
        r"system not yet initialized|[Ee]rror 802\b|SystemNotReady|SYSTEM_NOT_READY",
    ),
    Sign(
        "fabric_manager",
        (
            "fabric s",
            "fabric.s",
            "fabrics",
            "manager",
        ),
        r"(?:nvidia-)?fabric[ -]?manager.{0,100}(?:fail|never|not running|not (?:been )?start"
        r"|mismatch|abort"
        r"|error|inactive|version)|fabric(?:\.s| s|S)tate.{0,30}(?:In Progress|not|N/A)",
    ),
    Sign(
        "host_register_failed",
        (
            "failed to pin ",
            "cudahostalloc",
            "cudahostregister",
            "cudamallochost",
            "cumemhostalloc",
            "cumemhostregister",
            "memory",
            "page-lock",
        ),
        r"[Ff]ailed to pin \d{1,20} bytes|HostMemoryAlreadyRegistered|"
        r"(?:cudaHostRegister|cuMemHostRegister|cudaHostAlloc|cuMemHostAlloc|cudaMallocHost"
        r"|pin(?:ned|ning)?[ _]memory"
        r"|page-lock\w{0,4}).{0,120}(?:fail|error|unable|cannot|could not|code ?= ?[1-9]"
        r"|out of memory|invalid)"
        r"|(?:fail\w{0,3}|unable|error|could not|cannot).{0,80}(?:cudaHostRegister"
        r"|cuMemHostRegister"
        r"|cudaHostAlloc|cudaMallocHost|pin(?:ned|ning)?[ _]memory|page-lock)",
    ),
    Sign(
        "cuda_memory_allocation",
        (
            "cuda_error_out_of_memory",
            "cudaerrormemoryallocation",
        ),
        r"cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY",
        role="context",
    ),
    Sign(
        "host_region_bytes",
        (
            "bytes",
            "length",
        ),
        r"(?:cpu_bytes_to_use|bytes"
        r"|length)[\"']?\s{0,2}[:=]\s{0,2}(?P<bytes>\d{10,16})\b",
        role="context",
    ),
    Sign(
        "host_region_gib",
        (
            "code = 2",
            "code=2",
            "failed",
            "fails",
            "failure",
            "hicache-size",
            "max_local_cpu_size",
            "offloading",
        ),
        r"(?P<gib>\d{1,4}(?:\.\d{1,3})?) ?GiB\b.{0,60}(?:fails|failed|failure|code=2|code = 2)"
        r"|(?:kv[-_]offloading[-_]size|hicache-size"
        r"|max_local_cpu_size)[ =:'\"]{1,4}(?P<setting>\d{1,5})",
        role="context",
    ),
    Sign(
        "no_peer_access",
        (
            "cuda failure 217",
            "failed to open",
            "open cuda ipc handle",
            "peer access is not supported",
            "peeraccessunsupported",
        ),
        r"peer access is not supported|open CUDA IPC handle"
        r"|Cuda failure 217\b|failed to open.{0,20}IPC"
        r"|PeerAccessUnsupported",
    ),
    Sign(
        "cuda_generic",
        (
            "cublas_status_",
            "cuda error:",
            "cuda failure",
            "cudnn_status_",
            "ncclunhandledcudaerror",
            "unhandled cuda error",
        ),
        r"CUDA error:|Cuda failure|unhandled cuda error|ncclUnhandledCudaError"
        r"|CUBLAS_STATUS_(?!ALLOC)\w{1,40}"
        r"|CUDNN_STATUS_\w{1,40}",
        role="symptom",
        title="a CUDA call failed; the line does not say where the fault began",
        collect="the same run with CUDA_LAUNCH_BLOCKING=1 (and NCCL_DEBUG=WARN)",
    ),
)

CAUSES = (
    Cause(
        id="cuda_illegal_access",
        kind="cuda_illegal",
        sentence="A GPU kernel made an illegal access. CUDA reports it at a later call, so NCCL, a "
        "copy or a synchronisation that shows the error is the victim and not the cause.",
        remedy="Run again with CUDA_LAUNCH_BLOCKING=1 (or compute-sanitizer) to find the kernel; "
        "change the attention backend or disable CUDA graphs; upgrade the engine.",
        will_not_help=(
            ("NCCL settings", "NCCL only reports the error of an earlier kernel"),
            ("a restart without a change", "the same shape reaches the same kernel"),
        ),
        collect=(
            "the run with CUDA_LAUNCH_BLOCKING=1",
            "journalctl -k | grep Xid",
            "the engine's version and attention backend",
        ),
        confidence=0.85,
        reference="vllm-project/vllm#19890",
        depth=55,
        any=("illegal_access",),
    ),
    Cause(
        id="device_side_assert",
        kind="cuda_illegal",
        sentence="An assertion inside a GPU kernel failed, most often an index out of range: token "
        "ids beyond the vocabulary, or positions beyond the model's length.",
        remedy="Check that tokenizer and model belong together and that the context length fits; "
        "find the kernel with CUDA_LAUNCH_BLOCKING=1.",
        will_not_help=(("NCCL settings", "NCCL is only the first to see the broken context"),),
        collect=("the assertion's own line", "the request that came just before it"),
        confidence=0.85,
        reference=_TOOLKIT,
        depth=56,
        any=("device_assert",),
        explains=("cuda_illegal_access",),
    ),
    Cause(
        id="gpu_out_of_memory",
        kind="cuda_oom",
        sentence="The GPU ran out of memory.",
        remedy="Lower gpu_memory_utilization (or --mem-fraction-static), max_num_seqs or "
        "max_num_batched_tokens; check for another process on the GPU; raise tensor parallelism.",
        will_not_help=(
            ("a larger host KV pool", "weights, activations and graphs do not move there"),
            (
                "raising gpu_memory_utilization",
                "it gives the KV cache even more of what is missing",
            ),
        ),
        collect=("nvidia-smi at the time (all processes)", "the engine's memory lines at start"),
        confidence=0.85,
        reference="https://docs.vllm.ai/en/latest/configuration/conserving_memory.html",
        depth=59,
        any=("cuda_oom",),
        check=lambda facts: None if _register_limit(facts) else Check(),
    ),
    Cause(
        id="gpu_occupied",
        kind="kv_too_small",
        sentence="Another process holds memory of the GPU, so that the engine's share is not free.",
        remedy="End the other process (often a worker left from a crash), or lower "
        "gpu_memory_utilization.",
        will_not_help=(("raising gpu_memory_utilization", "the memory is held by someone else"),),
        collect=("nvidia-smi (all processes)", "fuser -v /dev/nvidia*"),
        confidence=0.8,
        reference="vllm-project/vllm#17431",
        depth=60,
        any=("gpu_occupied", "memory_unbalanced"),
        none=("cuda_oom", "kv_none_left"),
    ),
    Cause(
        id="gpu_ordinal",
        kind="rank_mismatch",
        sentence="A rank asks for a GPU that its node does not have: the "
        "number of ranks a node does "
        "not match the GPUs it can see.",
        remedy="Make tensor × pipeline parallel size over the nodes equal to the visible GPUs of "
        "each "
        "node; check CUDA_VISIBLE_DEVICES and the node count.",
        will_not_help=(
            ("reinstalling CUDA", "the other ordinals work"),
            ("NCCL settings", "the rank fails before it joins"),
        ),
        collect=("nvidia-smi -L on every node", "the launch command of every node"),
        confidence=0.9,
        reference="sgl-project/sglang#3470",
        depth=77,
        any=("invalid_ordinal",),
    ),
    Cause(
        id="no_gpu_visible",
        kind="gpu_missing",
        sentence="The process sees no GPU: no driver in the container, an empty "
        "CUDA_VISIBLE_DEVICES, or a driver that failed.",
        remedy="Start the container with its GPUs (--gpus all, the NVIDIA runtime); check "
        "CUDA_VISIBLE_DEVICES and nvidia-smi on the host.",
        will_not_help=(("reinstalling the engine", "no device is there for any engine"),),
        collect=("nvidia-smi on the host and in the container", "env | grep -i -E 'cuda|nvidia'"),
        confidence=0.8,
        reference="https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html",
        depth=78,
        any=("no_gpu",),
        none=("fabric_802", "nvml_mismatch"),
    ),
    Cause(
        id="gpu_ecc_error",
        kind="ecc",
        sentence="CUDA reports an uncorrectable hardware error of a GPU's memory or NVLink.",
        remedy="Drain the GPU, reset it, watch its row remapping; replace it if the error returns.",
        will_not_help=(
            ("restarting the engine", "the row stays bad until the GPU is reset"),
            ("NCCL settings", "NCCL is only where the error surfaces"),
        ),
        collect=("journalctl -k | grep Xid", "nvidia-smi -q -d ECC,ROW_REMAPPER"),
        confidence=0.9,
        reference="https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html",
        depth=97,
        any=("ecc_cuda",),
        explains=("cuda_illegal_access",),
    ),
    Cause(
        id="fabric_manager_missing",
        kind="fabric_manager",
        sentence="An NVSwitch machine whose fabric is not ready: the fabric "
        "manager does not run, is "
        "not of the driver's version, or never completed. nvidia-smi works, CUDA does not.",
        remedy="On the host: install nvidia-fabricmanager of exactly the driver's version, start "
        "it, "
        "wait for fabric state Completed; in a VM ask the provider.",
        will_not_help=(
            ("anything inside the container or job", "the fabric is set up by the host"),
            ("a healthy nvidia-smi", "it does not open a CUDA context"),
            ("a retry loop", "the state does not change without the manager"),
        ),
        collect=(
            "systemctl status nvidia-fabricmanager and its log",
            "nvidia-smi -q | grep -A3 Fabric",
        ),
        confidence=0.9,
        reference="MiniMax-AI/MiniMax-M2.5#9",
        depth=88,
        any=("fabric_802", "fabric_manager"),
    ),
    Cause(
        id="peer_access_unsupported",
        kind="p2p_unsupported",
        sentence="Two GPUs cannot reach each other's memory directly (peer access or CUDA IPC is "
        "refused), although NCCL or the engine tried to.",
        remedy="Set NCCL_P2P_DISABLE=1 and --disable-custom-all-reduce for "
        "every worker (through the "
        "launcher, not the shell); in containers share the IPC and PID namespaces.",
        will_not_help=(
            ("setting the variable in the head's shell only", "workers do not inherit it"),
            ("longer NCCL time-outs", "the access is refused at once"),
        ),
        collect=(
            "nvidia-smi topo -p2p r",
            "env of a worker (grep NCCL)",
            "how containers are started",
        ),
        confidence=0.8,
        reference="hiyouga/EasyR1#579",
        depth=57,
        any=("no_peer_access",),
        explains=("nccl_system_error",),
    ),
    Cause(
        id="host_register_limit",
        kind="pinned",
        sentence="One registration of 512 GiB or more was refused: a limit of the driver per call, "
        "not a lack of memory.",
        remedy="Register the pool in pieces below 512 GiB, or give each rank its own smaller pool.",
        will_not_help=(
            ("more RAM", "free memory is not what ran out"),
            ("ulimit -l", "the driver does not count against it in this path"),
            ("lower gpu_memory_utilization", "no GPU memory is involved"),
        ),
        collect=("the size asked for per call", "driver version", "free -g"),
        confidence=0.85,
        reference="vllm-project/vllm#51080",
        depth=66,
        any=("host_region_bytes", "host_region_gib"),
        check=_register_limit,
        explains=("gpu_out_of_memory",),
    ),
    Cause(
        id="host_pin_failed",
        kind="pinned",
        sentence="Host memory could not be pinned: too little free RAM, a cgroup limit, or the "
        "locked-memory limit.",
        remedy="Make the pinned pool times ranks fit the container's "
        "memory; raise memlock; leave a "
        "tenth of RAM free.",
        will_not_help=(("lower gpu_memory_utilization", "the memory is the host's"),),
        collect=("free -g", "ulimit -l", "the container's memory limit", "pool size × ranks"),
        confidence=0.75,
        reference="vllm-project/vllm#51080",
        depth=65,
        any=("host_register_failed",),
        check=_small_pin,
        explains=("gpu_out_of_memory",),
    ),
)

FAMILY = Family("cuda", "The CUDA runtime", SIGNS, CAUSES)
