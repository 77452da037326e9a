"""Limits and memory of the host: the OOM killer, memory lock, descriptors, PCIe, IOMMU."""

from __future__ import annotations

from ..facts import Facts
from ..model import Cause, Check, Family, Sign


def _victim(facts: Facts) -> Check:
    names = facts.values("oom_killed", "task")
    return Check(f"It killed {', '.join(sorted(names)[:4])}." if names else "")


SIGNS = (
    Sign(
        "oom_killed",
        (
            "invoked oom-killer",
            "killed process ",
            "memory cgroup out of memory",
            "oom-kill event",
            "oom-kill:",
            "due to memory pressure",
            "killed by the oom killer",
            "result 'oom-kill'",
            "oom_kill event",
            "oom_reaper",
        ),
        r"(?:Out of memory: |out of memory: )?Killed process \d{1,10} \((?P<task>[^)]{1,40})\)"
        r"|oom-kill:|oom-kill event|oom_kill event|invoked oom-killer"
        r"|Memory cgroup out of memory|oom_reaper|killed by the OOM killer|result 'oom-kill'"
        r"|Killed \S{1,160} due to memory pressure",
    ),
    Sign(
        "oom_killed_pod",
        (
            "oomkilled",
            "systemoom",
        ),
        r"\bOOMKilled\b|\bSystemOOM\b",
    ),
    Sign(
        "ray_oom",
        (
            "due to memory pressure (oom)",
            "killed due to the node running low on memory",
            "ray.exceptions.outofmemoryerror",
        ),
        r"killed due to the node running low on memory|due to memory pressure \(OOM\)"
        r"|ray\.exceptions\.OutOfMemoryError",
    ),
    Sign(
        "python_memory",
        (
            "[errno 12] cannot allocate memory",
            "defaultcpuallocator: can't",
            "defaultcpuallocator: not enough",
            "memoryerror",
            "std::bad_alloc",
        ),
        r"^(?!.{0,400}(?:ibv_|mlock|cudaHost|NCCL)).{0,400}(?:\bMemoryError\b|DefaultCPUAllocator: "
        r"(?:can't|not enough)|std::bad_alloc|\[Errno 12\] Cannot allocate memory)",
    ),
    Sign(
        "sigkill",
        (
            " killed ",
            "code=killed, status=9",
            "exit code",
            "exitcode",
            "exited with code ",
            "sigkill",
            "signal 9",
        ),
        r"^(?!.{0,2000}potential root causes).{0,2000}(?:exit code:? -?(?:137|9)\b"
        r"|exited with code -?(?:137|9)\b|exitcode:? -?(?:137|9)\b|SIGKILL|signal 9\b"
        r"|code=killed, status=9/KILL|: line \d{1,6}:\s{1,4}\d{1,10} Killed )",
        role="symptom",
        title="a process was killed with SIGKILL",
        collect="journalctl -k | grep -i oom, and the pod's last state (kubectl describe pod)",
    ),
    Sign(
        "memlock",
        (
            "cannot allocate memory",
            "max locked memory",
            "mlock",
        ),
        r"ibv_(?:reg_mr\w{0,20}|create_cq|create_qp|alloc_pd"
        r"|exp_reg_mr)\b.{0,120}Cannot allocate memory"
        r"|RLIMIT_MEMLOCK|memlock.{0,60}(?:too (?:low|small)|limit|exceed)"
        r"|mlock(?:all)?\b.{0,60}(?:fail|Cannot allocate)|max locked memory.{0,40}(?:too|only"
        r"|\b\d{2,6}\b)",
    ),
    Sign(
        "nofile",
        (
            "[errno 24]",
            "too many open files",
        ),
        r"Too many open files|\[Errno 24\]",
    ),
    Sign(
        "nproc",
        (
            "can't start new thread",
            "fork rejected by pids controller",
            "libgomp: thread creation failed",
            "pthread_create failed",
            "resource temporarily",
        ),
        r"can't start new thread|pthread_create failed|fork: (?:retry: )?Resource temporarily"
        r"|libgomp: Thread creation failed|std::system_error.{0,80}Resource temporarily"
        r"|fork rejected by pids controller",
    ),
    Sign(
        "pcie_aer",
        (
            "fatal",
            "uncorrect",
        ),
        r"PCIe Bus Error: severity=(?:Uncorrect|Fatal)\w{0,20}|AER:.{0,60}(?:Fatal"
        r"|Uncorrect\w{0,10} \(Fatal\))",
    ),
    Sign(
        "pcie_corrected",
        (
            "correctable",
            "corrected",
        ),
        r"severity=Corrected|AER: (?:Multiple )?Correct(?:ed|able) error",
        role="noise",
    ),
    Sign(
        "iommu_fault",
        (
            "dmar:",
            "handling fault status reg",
            "io_page_fault",
        ),
        r"IO_PAGE_FAULT|DMAR:.{0,120}(?:fault|Fault)|handling fault status reg",
    ),
    Sign(
        "machine_check",
        (
            "[hardware error]",
            "edac mc",
            "machine check events logged",
            "mce: [hardware",
        ),
        r"\[Hardware Error\]|Machine check events logged|EDAC MC.{0,80}\bUE\b|mce: \[Hardware",
    ),
    Sign(
        "kernel_fault",
        (
            "bug: kernel null",
            "bug: unable to handle",
            "general protection fault",
            "kernel panic",
            "lockup",
            "self-detected stall",
        ),
        r"BUG: (?:soft lockup|kernel NULL pointer|unable to handle)|Kernel panic|[Hh]ard LOCKUP"
        r"|general protection fault|self-detected stall",
        role="symptom",
        title="the kernel itself failed or stood still",
        collect="the kernel's whole trace (journalctl -k -b -1, or the console's log), with the "
        "modules and the processor that it names",
    ),
)

CAUSES = (
    Cause(
        id="host_out_of_memory",
        kind="host_oom",
        sentence="The host or the container ran out of memory and the kernel (or a supervisor) "
        "killed a process.",
        remedy="Raise the container's memory limit or lower what is pinned: host KV pool, "
        "swap space, loader threads; leave room for pinned memory times ranks.",
        will_not_help=(
            ("lower gpu_memory_utilization", "it was host memory that ran out"),
            ("a longer liveness probe", "the process was killed, not slow"),
        ),
        collect=(
            "journalctl -k with the memory table of the kill",
            "the pod's limits and last state",
            "free -g and cgroup memory.max",
        ),
        confidence=0.9,
        reference="https://docs.kernel.org/admin-guide/mm/concepts.html",
        depth=93,
        any=("oom_killed", "oom_killed_pod", "ray_oom"),
        check=_victim,
    ),
    Cause(
        id="host_allocation_failed",
        kind="host_oom",
        sentence="An allocation of host memory was refused.",
        remedy="Lower the host KV pool or the number of loader processes; raise the container's "
        "limit; check vm.overcommit_memory.",
        will_not_help=(("lower gpu_memory_utilization", "it was host memory that was refused"),),
        collect=("free -g", "the container's memory limit", "vm.overcommit_memory"),
        confidence=0.65,
        reference="https://docs.kernel.org/mm/overcommit-accounting.html",
        depth=72,
        any=("python_memory",),
        none=("memlock",),
    ),
    Cause(
        id="killed_by_signal_9",
        kind="host_oom",
        sentence="A process was killed with SIGKILL and the log does not say "
        "by whom: most often it "
        "is the kernel or the container runtime when host memory runs out.",
        remedy="Look for the kill in the kernel's log and in the pod's last state; if it is there, "
        "raise the memory limit or lower what is pinned.",
        will_not_help=(
            ("lower gpu_memory_utilization", "GPU memory does not lead to SIGKILL"),
            ("reading the traceback of its peers", "they only lost the process"),
        ),
        collect=("journalctl -k | grep -i -E 'oom|killed'", "kubectl describe pod (Last State)"),
        confidence=0.45,
        reference="https://docs.kernel.org/admin-guide/mm/concepts.html",
        depth=9,
        any=("sigkill",),
        role="symptom",
    ),
    Cause(
        id="memlock_too_small",
        kind="memlock",
        sentence="The locked-memory limit is too small for RDMA or pinned "
        "buffers: the registration "
        "fails with «Cannot allocate memory». It is not GPU memory.",
        remedy="ulimit -l unlimited (docker --ulimit memlock=-1, systemd LimitMEMLOCK=infinity), "
        "for "
        "the daemon that starts the workers too.",
        will_not_help=(
            ("more RAM or GPU memory", "the limit counts locked pages, not free ones"),
            ("vm.overcommit_memory", "it does not govern locked pages"),
            ("a new shell's ulimit", "containers and services have limits of their own"),
        ),
        collect=(
            "ulimit -l inside the worker (grep locked /proc/PID/limits)",
            "the unit's LimitMEMLOCK",
        ),
        confidence=0.9,
        reference="eugr/spark-vllm-docker#389",
        depth=76,
        any=("memlock",),
    ),
    Cause(
        id="too_many_open_files",
        kind="ulimit",
        sentence="The limit on open files was reached.",
        remedy="Raise nofile to 65536 or more for the service or container; "
        "close idle connections.",
        will_not_help=(("a restart", "the count climbs to the same limit again"),),
        collect=("grep 'open files' /proc/PID/limits", "ls /proc/PID/fd | wc -l"),
        confidence=0.85,
        reference="https://man7.org/linux/man-pages/man2/getrlimit.2.html",
        depth=74,
        any=("nofile",),
    ),
    Cause(
        id="too_many_threads",
        kind="ulimit",
        sentence="The limit on processes or threads was reached.",
        remedy="Raise nproc or the pod's pids limit; set OMP_NUM_THREADS.",
        will_not_help=(("more memory", "threads are counted, not weighed"),),
        collect=("ulimit -u", "cat /sys/fs/cgroup/pids.max", "ps -eLf | wc -l"),
        confidence=0.75,
        reference="https://docs.kernel.org/admin-guide/cgroup-v2.html#pid",
        depth=73,
        any=("nproc",),
    ),
    Cause(
        id="pcie_errors",
        kind="pcie",
        sentence="The kernel reported uncorrectable PCIe errors: a link to a GPU, NIC or drive is "
        "failing.",
        remedy="Reseat the card or riser, update the firmware, replace the part named in the line.",
        will_not_help=(
            ("pci=noaer", "it silences the report and not the fault"),
            ("longer NCCL time-outs", "the link loses data"),
        ),
        collect=("lspci -vv of the device named", "journalctl -k for AER lines"),
        confidence=0.8,
        reference="https://docs.kernel.org/PCI/pcieaer-howto.html",
        depth=91,
        any=("pcie_aer",),
        explains=("nccl_system_error",),
    ),
    Cause(
        id="iommu_fault",
        kind="p2p_hang",
        sentence="The IOMMU refused a device's access: peer-to-peer traffic between GPUs is "
        "translated and blocked (IOMMU or PCIe ACS).",
        remedy="Boot with iommu=pt (or the IOMMU off) and ACS disabled on the bridges above the "
        "GPUs; "
        "until then NCCL_P2P_DISABLE=1 and --disable-custom-all-reduce.",
        will_not_help=(
            ("longer NCCL time-outs", "the writes are dropped, not late"),
            ("«OK» in nvidia-smi topo -p2p", "it reports the capability, not that data arrives"),
        ),
        collect=("cat /proc/cmdline", "lspci -vvv | grep ACSCtl", "nvidia-smi topo -m"),
        confidence=0.85,
        reference="NVIDIA/nccl#2079",
        depth=89,
        any=("iommu_fault",),
    ),
    Cause(
        id="machine_check",
        kind="host_memory_error",
        sentence="The processor reported a hardware error of the host (memory or cache).",
        remedy="Drain the host; find the DIMM with rasdaemon or the BMC's log; replace it.",
        will_not_help=(("a restart", "the part stays bad; it may also damage data silently"),),
        collect=("ras-mc-ctl --errors", "the BMC's event log"),
        confidence=0.7,
        reference="https://docs.kernel.org/admin-guide/ras.html",
        depth=90,
        any=("machine_check",),
    ),
)

FAMILY = Family("host", "Memory, limits and buses of the host", SIGNS, CAUSES)
