"""Libraries that do not fit together: driver, CUDA, NCCL, torch, engine, cache."""

from __future__ import annotations

from ..model import Cause, Family, Sign

_WHEELS = "https://docs.nvidia.com/deploy/cuda-compatibility/"

SIGNS = (
    Sign(
        "build_tools",
        (
            "could not find nvcc",
            "failed to find c compiler",
            "fatal error: python.h",
            "no such file or directory: 'gcc'",
            "no such file or directory: 'ninja'",
            "no such file or directory: 'nvcc'",
        ),
        r"fatal error: Python\.h|Failed to find C compiler|Could not find nvcc"
        r"|No such file or directory: '(?:gcc|ninja|nvcc)'",
    ),
    Sign(
        "undefined_symbol",
        (
            "symbol lookup error",
            "symbol not found",
            "undefined symbol",
        ),
        r"undefined symbol:? ?(?P<symbol>\w{1,80})?|symbol lookup error|[Ss]ymbol not found",
    ),
    Sign(
        "library_missing",
        (" cannot open shared object",),
        r"(?:ImportError|OSError"
        r"|RuntimeError).{0,200}?(?P<library>lib[\w.+-]{1,60}\.so[\w.]{0,16}):? "
        r"cannot open shared object",
    ),
    Sign(
        "glibcxx",
        (" not found",),
        r"version [`'](?:GLIBCXX|GLIBC|CXXABI)_[\w.]{1,20}'? not found",
    ),
    Sign(
        "driver_too_old",
        (
            "cudaerrorinsufficientdriver",
            "driver on your system is too old",
            "driver version is insufficient",
            "error 803",
            "unsupported display driver / cuda driver combination",
        ),
        r"driver version is insufficient|driver on your system is too old|[Ee]rror 803\b"
        r"|cudaErrorInsufficientDriver|unsupported display driver / cuda driver combination",
    ),
    Sign(
        "nvml_mismatch",
        (
            "api mismatch: the client",
            "api mismatch: the nvidia",
            "driver/library version mismatch",
        ),
        r"Driver/library version mismatch|API mismatch: the (?:client|NVIDIA)",
    ),
    Sign(
        "no_kernel_image",
        (
            "invalid device function",
            "is not compatible with the current pytorch installation",
            "no kernel image is available",
            "provided ptx was compiled with an unsupported toolchain",
            "ptxas fatal",
            "unsupported gpu architecture",
        ),
        r"no kernel image is available|is not compatible with the current PyTorch installation"
        r"|Unsupported gpu architecture|provided PTX was compiled with an unsupported toolchain"
        r"|ptxas fatal.{0,60}Value 'sm_|invalid device function",
    ),
    Sign(
        "import_mismatch",
        (
            "attributeerror",
            "importerror",
            "modulenotfounderror",
            "typeerror",
        ),
        r"(?:ImportError|AttributeError|ModuleNotFoundError|TypeError)\b.{0,160}"
        r"(?:vllm|sglang|sgl_kernel|lmcache|flashinfer|flash_attn|nixl|mooncake|torch|transformers"
        r"|triton|xgrammar)",
        levels=("", "ERROR", "CRITICAL", "FATAL"),
    ),
    Sign(
        "package_conflict",
        (
            "cudnn version incompatibility",
            "does not match",
            "is installed with version",
            "is required for a normal functioning of this module",
            "mismatches the version that was used",
            "version mismatch",
            "versionconflict",
        ),
        r"VersionConflict|cuDNN version incompatibility"
        r"|mismatches the version that was used"
        r"|is required for a normal functioning of this module"
        r"|(?:flashinfer|sgl-kernel|sgl_kernel|torch|cuda|nccl|nixl|lmcache|cudnn"
        r"|transformers)\S{0,20}.{0,80}"
        r"(?:version mismatch|does not match|is installed with version)",
    ),
    Sign(
        "nccl_versions",
        (
            "nccl version",
            "version mismatch",
        ),
        r"(?:mismatch\w{0,4}|different|incompatible).{0,40}NCCL version"
        r"|NCCL.{0,60}version mismatch",
    ),
    Sign(
        "architecture_unknown",
        (
            "does not recognize this architecture",
            "model architectures [",
            "unsupported architecture",
        ),
        r"does not recognize this architecture|Model architectures \[.{0,120}(?:not supported"
        r"|failed)"
        r"|[Uu]nsupported architecture",
    ),
)

CAUSES = (
    Cause(
        id="build_tools_missing",
        kind="configuration",
        sentence="The engine compiles kernels when it starts, and a compiler, nvcc or Python's "
        "headers are not installed.",
        remedy="Install gcc and the headers of this Python (python3-dev), or the CUDA toolkit and "
        "CUDA_HOME where nvcc is named; or use an image that holds them (a devel image).",
        will_not_help=(("another torch wheel", "its kernels are compiled on this host as well"),),
        collect=("the compiler's first error", "which gcc nvcc ninja"),
        confidence=0.85,
        reference="https://docs.vllm.ai/en/latest/usage/troubleshooting.html",
        depth=66,
        any=("build_tools",),
    ),
    Cause(
        id="library_mix",
        kind="version_mismatch",
        sentence="Two builds of a library are mixed: one was loaded that "
        "lacks a symbol (or a newer "
        "C++ runtime) that the other needs.",
        remedy="Unset LD_LIBRARY_PATH, or put the wheel's own nvidia/*/lib first; reinstall torch "
        "and "
        "the engine together in a clean environment.",
        will_not_help=(
            ("reinstalling the driver", "the symbol belongs to a library of user space"),
            ("a newer GPU", "the import fails before any GPU is touched"),
        ),
        collect=(
            "echo $LD_LIBRARY_PATH",
            "pip list | grep -i -E 'torch|nvidia|vllm|sgl'",
            "ldd of the library named in the line",
        ),
        confidence=0.9,
        reference="vllm-project/vllm#10300",
        depth=81,
        any=("undefined_symbol", "glibcxx"),
    ),
    Cause(
        id="library_missing",
        kind="version_mismatch",
        sentence="A shared library that the engine links to is not installed, "
        "or not of the version "
        "it was built for.",
        remedy="Install the wheel built for this CUDA version, or the package that holds the "
        "library.",
        will_not_help=(("a symlink to another major version", "its interface differs"),),
        collect=(
            "the full ImportError",
            "pip list | grep -i -E 'torch|cuda|nvidia'",
            "ldconfig -p",
        ),
        confidence=0.85,
        reference=_WHEELS,
        depth=79,
        any=("library_missing",),
    ),
    Cause(
        id="driver_too_old",
        kind="version_mismatch",
        sentence="The NVIDIA driver is older than the CUDA runtime needs, or "
        "a compatibility library "
        "does not fit it.",
        remedy="Update the driver, or use an image for an older CUDA; remove a cuda-compat "
        "directory "
        "from LD_LIBRARY_PATH when the GPU does not support it.",
        will_not_help=(
            ("reinstalling torch of the same CUDA version", "the driver stays too old for it"),
        ),
        collect=(
            "nvidia-smi (driver and CUDA version)",
            "python -c 'import torch; print(torch.version.cuda)'",
        ),
        confidence=0.9,
        reference=_WHEELS,
        depth=82,
        any=("driver_too_old",),
    ),
    Cause(
        id="driver_library_mismatch",
        kind="version_mismatch",
        sentence="The loaded kernel module and the driver's libraries have different versions: the "
        "driver was updated without a reboot.",
        remedy="Reboot, or unload and reload the NVIDIA modules; restart the container runtime.",
        will_not_help=(
            ("restarting the container", "the kernel module of the host is the old one"),
        ),
        collect=("cat /proc/driver/nvidia/version", "dpkg -l | grep nvidia"),
        confidence=0.95,
        reference=_WHEELS,
        depth=87,
        any=("nvml_mismatch",),
    ),
    Cause(
        id="no_kernel_for_gpu",
        kind="version_mismatch",
        sentence="The installed build has no code for this GPU's architecture.",
        remedy="Install a build for this compute capability (a newer torch and CUDA for new GPUs, "
        "an "
        "older one for old GPUs), or build from source with TORCH_CUDA_ARCH_LIST.",
        will_not_help=(("a newer driver alone", "the machine code is missing from the wheel"),),
        collect=(
            "nvidia-smi --query-gpu=compute_cap --format=csv",
            "python -c 'import torch; print(torch.cuda.get_arch_list())'",
        ),
        confidence=0.9,
        reference="https://docs.vllm.ai/en/latest/getting_started/installation/gpu.html",
        depth=80,
        any=("no_kernel_image",),
    ),
    Cause(
        id="package_mismatch",
        kind="version_mismatch",
        sentence="Python packages of different generations are mixed: a name, an argument or a "
        "version that one expects is not there in the other.",
        remedy="Install the versions that the engine's release pins, in a clean environment.",
        will_not_help=(("editing the import", "the next name of the old interface fails as well"),),
        collect=("pip list", "the engine's version and the full traceback"),
        confidence=0.7,
        reference="https://docs.vllm.ai/en/latest/usage/troubleshooting.html",
        depth=66,
        any=("import_mismatch", "package_conflict", "architecture_unknown"),
    ),
    Cause(
        id="nccl_versions_differ",
        kind="version_mismatch",
        sentence="The ranks load different versions of NCCL.",
        remedy="Use one image on all nodes; check VLLM_NCCL_SO_PATH and LD_PRELOAD.",
        will_not_help=(("longer NCCL time-outs", "the ranks do not speak the same protocol"),),
        collect=("NCCL_DEBUG=VERSION on every rank",),
        confidence=0.85,
        reference="vllm-project/vllm#6106",
        depth=79,
        any=("nccl_versions",),
    ),
)

FAMILY = Family("versions", "Versions that do not fit together", SIGNS, CAUSES)
