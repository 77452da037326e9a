"""InfiniBand and RoCE: queue pairs that time out, ids that do not fit, ports that fell."""

from __future__ import annotations

from ..facts import Facts
from ..model import Cause, Check, Family, Sign

_ENV = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
_COLLECT = (
    "show_gids and ibstat on both nodes",
    "ib_write_bw between the two addresses named, with the same GID index",
    "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET of both ranks",
)


def _gids(facts: Facts) -> Check:
    """IPv4-mapped ids on both ends mean that the GID index is right and the route is not."""
    if facts.has("gid_ipv4"):
        return Check(
            "The GIDs are IPv4-mapped RoCEv2 ones, so the index is not the fault: check the "
            "routing "
            "between rails, NCCL_CROSS_NIC=0 and the switches' PFC."
        )
    if facts.has("gid_link_local"):
        return Check(
            "The GIDs are link-local: choose the routable RoCEv2 index (NCCL_IB_GID_INDEX)."
        )
    return Check()


SIGNS = (
    Sign(
        "ib_retry",
        (
            "got completion",
            "retry_exc",
            "transport retry counter exceeded",
        ),
        r"Got completion.{0,80}(?:status=|error |status )(?:IBV_WC_RETRY_EXC_ERR\()?12\b"
        r"|transport retry counter exceeded|RETRY_EXC",
    ),
    Sign(
        "ib_completion",
        (
            "got completion",
            "local protection error",
            "remote access error",
            "remote operation error",
        ),
        r"Got completion.{0,80}(?:status=|error "
        r"|status )(?!12\b)(?:IBV_\w{1,40}\()?(?P<status>[1-9]\d?)\b"
        r"|\blocal protection error|\bremote access error|remote operation error",
    ),
    Sign("gid_ipv4", ("ffff:",), r"[Gg]ids?:? ?:{0,2}ffff:", role="context"),
    Sign(
        "gid_link_local",
        ("fe80:",),
        r"[Gg]ids?:? ?fe80:",
        role="context",
    ),
    Sign(
        "ib_modify_qp",
        (
            "failed to modify qp",
            "ibv_modify_qp",
        ),
        r"ibv_modify_qp\w{0,20} failed|[Ff]ailed to modify (?:QP|qp)(?: to RT[RS])?",
    ),
    Sign(
        "ib_port",
        (
            "link down",
            "mlx5_core",
            "no active ",
            "not active",
            "port error",
            "port_err",
        ),
        r"[Aa]sync(?:hronous)? event.{0,60}(?:port error|PORT_ERR|link down)"
        r"|IBV?_EVENT_PORT_ERR|mlx5_core.{0,120}Link down"
        r"|port (?:\d{1,3} )?(?:is )?not (?:ACTIVE|active)|no active (?:IB )?port",
    ),
    Sign(
        "ib_no_device",
        (
            " device",
            "no available rnic",
        ),
        r"NET/IB : No device found|No (?:IB|RDMA) devices? (?:found|available)|no available RNIC",
    ),
    Sign(
        "efa_error",
        (
            "efa_rdm",
            "fi_efa",
            "libfabric",
            "net/ofi",
            "prov/efa",
        ),
        r"(?:NET/OFI|[Ll]ibfabric|fi_efa|prov/efa"
        r"|efa_rdm).{0,120}(?:[Ee]rror|WARN|failed)(?!.{0,40}symbol)",
    ),
)

CAUSES = (
    Cause(
        id="rdma_unreachable",
        kind="ib_gid",
        sentence="RDMA packets get no answer (completion status 12, vendor "
        "error 129): the peers can "
        "talk over sockets but not over this RoCE or InfiniBand path.",
        remedy="Test the pair with ib_write_bw; choose the routable RoCEv2 "
        "GID index; route between "
        "the rails or set NCCL_CROSS_NIC=0; check PFC and VLAN on the switches.",
        will_not_help=(
            ("a larger NCCL_IB_TIMEOUT alone", "no number of retries crosses a missing route"),
            ("longer NCCL time-outs", "the packet is lost, not late"),
            ("a successful ping", "it takes another path than RoCE"),
        ),
        collect=_COLLECT,
        confidence=0.85,
        reference="NVIDIA/nccl#1814",
        depth=50,
        any=("ib_retry",),
        check=_gids,
        explains=("rdma_completion_error", "nccl_system_error", "nccl_remote_died"),
    ),
    Cause(
        id="rdma_queue_pair",
        kind="ib_gid",
        sentence="A queue pair could not be brought up: GID index, port or "
        "subnet do not fit between "
        "the two ends.",
        remedy="Set NCCL_IB_HCA to the ports that are active and NCCL_IB_GID_INDEX to a routable "
        "RoCEv2 id on both ends; exclude storage or down ports.",
        will_not_help=(
            ("longer NCCL time-outs", "the connection is refused when it is set up"),
            ("more GPU memory", "no memory is involved"),
        ),
        collect=_COLLECT,
        confidence=0.85,
        reference="NVIDIA/nccl#925",
        depth=51,
        any=("ib_modify_qp",),
        check=_gids,
        explains=("nccl_system_error", "nccl_remote_died"),
    ),
    Cause(
        id="rdma_port_down",
        kind="ib_link",
        sentence="An InfiniBand or RoCE port went down.",
        remedy="Check cable, transceiver and switch port; compare ibstat; exclude the port with "
        "NCCL_IB_HCA until it is repaired.",
        will_not_help=(("longer NCCL time-outs", "a link that is down carries nothing"),),
        collect=("ibstat", "journalctl -k | grep mlx5", "the switch port's counters"),
        confidence=0.85,
        reference=_ENV,
        depth=68,
        any=("ib_port",),
        explains=("rdma_unreachable", "rdma_completion_error", "nccl_system_error"),
    ),
    Cause(
        id="rdma_completion_error",
        kind="ib_gid",
        sentence="An RDMA operation completed with an error other than a lost "
        "route: memory that was "
        "not registered, or a peer that went away and flushed its queue.",
        remedy="Find the first completion error over all nodes; flushes (status 5) after it are "
        "consequences. For a local protection error check registration and the cache's buffers.",
        will_not_help=(("longer NCCL time-outs", "the queue pair is in its error state"),),
        collect=_COLLECT,
        confidence=0.65,
        reference="kvcache-ai/Mooncake#851",
        depth=46,
        any=("ib_completion",),
        explains=("nccl_system_error",),
    ),
    Cause(
        id="rdma_no_device",
        kind="ib_gid",
        sentence="No RDMA device was found although the configuration asks for one.",
        remedy="Pass /dev/infiniband and the capability IPC_LOCK to the container; install "
        "rdma-core; or set NCCL_IB_DISABLE=1 to use sockets on purpose.",
        will_not_help=(("NCCL_IB_GID_INDEX", "there is no device to have an index"),),
        collect=("ls /dev/infiniband in the container", "ibv_devices"),
        confidence=0.5,
        reference=_ENV,
        depth=30,
        any=("ib_no_device",),
        every=("error_level",),
    ),
    Cause(
        id="efa_failure",
        kind="ib_gid",
        sentence="The EFA or libfabric transport reported an error.",
        remedy="Check the security group (all traffic within itself), the EFA driver and "
        "aws-ofi-nccl versions, and huge pages.",
        will_not_help=(("NCCL_IB_* variables", "EFA does not go through NCCL's InfiniBand code"),),
        collect=("fi_info -p efa", "FI_LOG_LEVEL=warn output", "the EFA driver's version"),
        confidence=0.55,
        reference="https://github.com/aws/aws-ofi-nccl",
        depth=41,
        any=("efa_error",),
        check=lambda facts: Check() if facts.has("error_level", "nccl_warning") else None,
    ),
)

FAMILY = Family("fabric", "InfiniBand, RoCE and EFA", SIGNS, CAUSES)
