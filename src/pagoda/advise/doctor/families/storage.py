"""Drives, file systems and shared memory: what the kernel and the C library say of them."""

# ruff: noqa: S108 - /dev/shm is named in texts here, never opened
from __future__ import annotations

from ..facts import Facts
from ..model import Cause, Check, Family, Sign

_RESTART = ("restarting the engine", "the drive or the mount is as it was")


def _drives(facts: Facts) -> Check:
    """Name the drives."""
    names = {
        name
        for sign in ("nvme_down", "nvme_io", "medium_error", "read_only")
        for name in facts.values(sign, "drive")
    }
    return Check(f"The drive is {', '.join(sorted(names)[:4])}." if names else "")


SIGNS = (
    Sign(
        "nvme_down",
        (
            "controller is dead",
            "controller is down",
            "device not ready",
            "fatal status",
            "frozen state error",
            "removing after probe failure",
            "timeout, aborting",
            "timeout, completion polled",
            "timeout, disable controller",
            "timeout, reset controller",
        ),
        r"\bnvme ?(?P<drive>nvme\d{1,3})?.{0,60}?(?:controller is (?:down|dead)|Device not ready"
        r"|Removing after probe failure|timeout, (?:completion polled"
        r"|aborting|reset controller|disable controller)"
        r"|fatal status|frozen state error)",
    ),
    Sign(
        "nvme_io",
        (
            "error",
            "sector",
        ),
        r"Buffer I/O error on dev (?P<part>nvme\d{1,3}n\w{1,8})"
        r"|XFS.{0,40}(?:log|metadata) I/O error"
        r"|(?:I/O error, dev |\b)(?P<drive>nvme\d{1,3}(?:c\d{1,3})?n\d{1,3})\b.{0,120}"
        r"(?:sector|I/O Error|error)",
    ),
    Sign(
        "medium_error",
        (
            "available spare has fallen below",
            "btrfs ",
            "critical",
            "ext4-fs error ",
            "md/raid",
            "media and data integrity errors:",
            "media_errors",
            "overall-health self-assessment",
            "unrecovered read error",
            "xfs (",
        ),
        r"critical medium error(?:, dev (?P<drive>\w{1,20}))?|Unrecovered Read Error"
        r"|Media and Data Integrity Errors:\s{0,20}[1-9]|media_errors\s{0,40}:\s{0,4}[1-9]"
        r"|critical[_ ]warning\s{0,40}:\s{0,4}(?:0x)?0?[1-9a-f]"
        r"|BTRFS \w{1,10} \(device \w{1,20}[^)]{0,20}\):.{0,40}csum failed"
        r"|overall-health self-assessment test result: FAILED"
        r"|available spare has fallen below"
        r"|EXT4-fs error \(device \w{1,20}\).{0,160}(?:checksum|corrupt|bad )"
        r"|XFS \(\w{1,20}\): (?:Metadata CRC error|(?:Metadata )?[Cc]orruption)"
        r"|md/raid\w{0,4}:\w{1,8}: Disk failure",
    ),
    Sign(
        "read_only",
        (
            " filesystem",
            "[errno 30]",
            "filesystem has been shut down",
            "read-only file system",
        ),
        r"Remounting filesystem read-only|\[Errno 30\]|Read-only file system"
        r"|(?:shut ?down|Shutting down) filesystem|filesystem has been shut down",
    ),
    Sign(
        "disk_full",
        (
            "[errno 28]",
            "disk quota exceeded",
            "enospc",
            "no space left on device",
        ),
        r"No space left on device|\[Errno 28\]|Disk quota exceeded|\bENOSPC\b",
    ),
    Sign(
        "shm_full",
        ("/dev/shm",),
        r"/dev/shm.{0,120}(?:No space left|too small|not enough|only \d)"
        r"|(?:No space left|Errno 28|insufficient|ran out|out of).{0,160}/dev/shm"
        r"|(?:increase|raise).{0,40}/dev/shm",
    ),
    Sign(
        "shm_insufficient",
        (
            "increase",
            "insufficient shared memory",
            "out of shared memory",
            "unable to allocate",
            "unable to mmap",
            "unable to open",
            "unable to write to file </torch",
        ),
        r"insufficient shared memory|out of shared memory|increase.{0,40}shm-size"
        r"|unable to (?:allocate|mmap|open) (?:\d{1,20} bytes|shared memory)"
        r"|unable to write to file </torch",
    ),
    Sign(
        "bus_error",
        (
            "bus error",
            "exit code",
            "exitcode",
            "sigbus",
            "signal 7",
        ),
        r"(?<!PCIe )\bBus error\b|\bSIGBUS\b|(?:exit code|exitcode):? (?:135|-7)\b|signal 7\b",
    ),
    Sign(
        "weights_damaged",
        (
            "error while deserializing header",
            "headertoolarge",
            "incomplete metadata",
            "invalidheader",
            "metadataincompletebuffer",
            "pytorchstreamreader failed",
            "safetensor",
            "unexpected eof, expected ",
        ),
        r"Error while deserializing header|MetadataIncompleteBuffer|HeaderTooLarge|InvalidHeader"
        r"|incomplete metadata|PytorchStreamReader failed|safetensor.{0,80}truncated"
        r"|unexpected EOF, expected \d",
    ),
    Sign(
        "io_error_read",
        (
            "[errno 5]",
            "input/output error",
        ),
        r"\[Errno 5\]|Input/output error",
    ),
    Sign(
        "stale_handle",
        (
            " not responding",
            "[errno 116]",
            "file handle",
            "transport endpoint is not connected",
        ),
        r"Stale (?:NFS )?file handle|\[Errno 116\]|server \S{1,80} not responding"
        r"|Transport endpoint is not connected",
    ),
    Sign(
        "hung_task",
        (" blocked for more than ",),
        r"task (?P<task>\S{1,40}) blocked for more than \d{1,6} seconds",
        any_level=True,
    ),
    Sign("nvme_bogus_ids", ("ignoring bogus namespace",), "Ignoring bogus Namespace", role="noise"),
    Sign("nvme_queues", ("default/read/poll queues",), "default/read/poll queues", role="noise"),
)

CAUSES = (
    Cause(
        id="nvme_lost",
        kind="nvme",
        sentence="An NVMe drive stopped answering and was reset or removed: "
        "power state, heat, PCIe "
        "link or a failing drive.",
        remedy="Take the drive out of the KV pool; read its smart-log and temperature; try "
        "nvme_core.default_ps_max_latency_us=0 and pcie_aspm=off; replace it if it returns.",
        will_not_help=(
            _RESTART,
            ("a larger I/O time-out", "CSTS=0xffffffff means that the link itself is gone"),
            ("rewriting the cache files", "data on an unreliable drive is lost again"),
        ),
        collect=(
            "nvme smart-log and error-log of the drive",
            "lspci -vv of its slot",
            "journalctl -k around the first reset",
        ),
        confidence=0.9,
        reference="raspberrypi/linux#6661",
        depth=95,
        any=("nvme_down",),
        check=_drives,
    ),
    Cause(
        id="drive_media_errors",
        kind="nvme",
        sentence="A drive cannot read back what was written to it: media "
        "errors, not a full disk and "
        "not the engine.",
        remedy="Fence the drive, let the cache recompute what it held, replace the drive.",
        will_not_help=(
            _RESTART,
            ("retrying the reads", "the sectors stay unreadable until they are rewritten"),
            ("a file system check", "it repairs structure, not the medium"),
        ),
        collect=(
            "nvme smart-log (media_errors, percentage_used, critical_warning)",
            "journalctl -k for the sectors",
        ),
        confidence=0.85,
        reference="https://nvmexpress.org/specifications/",
        depth=94,
        any=("nvme_io", "medium_error", "io_error_read"),
        none=("nvme_down",),
        check=_drives,
    ),
    Cause(
        id="file_system_read_only",
        kind="nvme",
        sentence="A file system went read-only after an error: spills fail, reads may go on.",
        remedy="Find the error before it in the kernel's log, take the drive out of the pool, "
        "repair "
        "or replace it, mount it again.",
        will_not_help=(
            _RESTART,
            ("remounting read-write at once", "the error that made it read-only is still there"),
        ),
        collect=("journalctl -k before the remount", "mount | grep of the cache directory"),
        confidence=0.85,
        reference="https://docs.kernel.org/admin-guide/ext4.html",
        depth=92,
        any=("read_only",),
        none=("nvme_down",),
        check=_drives,
    ),
    Cause(
        id="disk_full",
        kind="disk_full",
        sentence="A file system is full: the cache tier, the logs or the temporary directory took "
        "all its space.",
        remedy="Free space; give the cache a hard cap with a floor of free "
        "space; keep it on a file "
        "system of its own.",
        will_not_help=(
            _RESTART,
            ("a larger host memory pool", "the write that fails goes to the disk"),
        ),
        collect=("df -h and df -i of the directories that the engine writes to", "du of the cache"),
        confidence=0.8,
        reference="LMCache/LMCache#4664",
        depth=84,
        any=("disk_full",),
        none=("shm_full", "shm_insufficient", "nccl_shm_failed"),
    ),
    Cause(
        id="shm_full",
        kind="nccl_shm",
        sentence="/dev/shm is too small for what the workers keep in it.",
        remedy="Give the container more: docker --shm-size=16g or --ipc=host; in Kubernetes an "
        "emptyDir with medium: Memory mounted at /dev/shm.",
        will_not_help=(
            ("NCCL_SHM_DISABLE=1", "it only moves NCCL away; the engine's own queues stay there"),
            ("more GPU memory", "shared memory is host memory"),
        ),
        collect=("df -h /dev/shm inside the container", "ls -l /dev/shm for segments left behind"),
        confidence=0.85,
        reference="vllm-project/vllm#4383",
        depth=83,
        any=("shm_full", "shm_insufficient"),
        none=("nccl_shm_failed",),
    ),
    Cause(
        id="bus_error",
        kind="shm_or_storage",
        sentence="A process died of SIGBUS: memory mapped from a file could "
        "not be read. /dev/shm is "
        "too small, or a weights file is truncated, or its storage failed.",
        remedy="Enlarge /dev/shm (--shm-size, --ipc=host); verify the "
        "weights' sizes and checksums; "
        "read the kernel's log for I/O errors of the drive that holds them.",
        will_not_help=(
            ("changing Python packages", "no Python code can raise SIGBUS by itself"),
            ("--disable-cuda-graph", "the process died while reading mapped memory"),
        ),
        collect=(
            "df -h /dev/shm",
            "sha256sum of the weights against their source",
            "journalctl -k at the time of the death",
        ),
        confidence=0.7,
        reference="sgl-project/sglang#6083",
        depth=82,
        any=("bus_error",),
    ),
    Cause(
        id="weights_damaged",
        kind="weights",
        sentence="A weights file is damaged or incomplete: its header or its end is missing.",
        remedy="Delete the file and fetch it again; compare its size and checksum with the source.",
        will_not_help=(
            ("another load format", "the bytes are not there in any format"),
            ("a restart", "the same file is read again"),
        ),
        collect=("ls -l and sha256sum of the model's files", "df -h of the download directory"),
        confidence=0.85,
        reference="https://huggingface.co/docs/safetensors/index",
        depth=78,
        any=("weights_damaged",),
    ),
    Cause(
        id="network_file_system_lost",
        kind="nvme",
        sentence="A network file system went away under the engine.",
        remedy="Restore the mount; keep caches on local drives; mount with a finite time-out.",
        will_not_help=(_RESTART,),
        collect=("mount and nfsstat output", "journalctl -k for the server's name"),
        confidence=0.75,
        reference="https://docs.kernel.org/admin-guide/nfs/index.html",
        depth=81,
        any=("stale_handle",),
    ),
    Cause(
        id="hung_storage",
        kind="hang_watchdog",
        sentence="The kernel saw tasks blocked for minutes, usually in "
        "storage I/O or a driver: the "
        "engine's hang lies below it.",
        remedy="Read the kernel's stack under the line; check the drive or the network mount it "
        "waits for.",
        will_not_help=(
            ("longer engine time-outs", "the wait is in the kernel and has no end of its own"),
            ("kill -9", "an uninterruptible task does not take signals"),
        ),
        collect=("the full hung-task stack", "iostat -x 1 and the drive's smart-log"),
        confidence=0.7,
        reference="https://docs.kernel.org/admin-guide/sysctl/kernel.html#hung-task-timeout-secs",
        depth=75,
        any=("hung_task",),
    ),
)

FAMILY = Family("storage", "Drives, file systems, shared memory", SIGNS, CAUSES)
