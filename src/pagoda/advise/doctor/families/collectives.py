"""NCCL and Gloo: set-up, shared memory, time-outs, silence, and which rank is to blame.

Longer than most files here: it is one list of causes, which are judged against each other.
"""

# ruff: noqa: S108 - /dev/shm is named in texts here, never opened
from __future__ import annotations

from ..facts import Facts
from ..model import Cause, Check, Family, Sign

_DOC = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
_LONGER = ("longer NCCL time-outs", "the peer does not answer late, it does not answer at all")
_GRAPH = (
    "disabling CUDA graphs",
    "the capture only happens to hold the first collective that waits",
)
_FIRST_COLLECTIVES = 3
_SILENT_S = 60.0


def _laggards(facts: Facts) -> str:
    """Names ranks that did not report a time-out when most others did, or that lag behind."""
    reported = facts.ranks_of("watchdog_timeout")
    world = facts.world_size
    if world and len(reported) < world <= 4096 and 2 * len(reported) >= world:
        silent = sorted(set(range(world)) - reported)
        return f"Look at rank {', '.join(map(str, silent[:8]))}: it did not report the time-out."
    if len(reported) == 1:
        return f"Only rank {next(iter(reported))} reported; look for the peer that did not."
    return ""


def _first_collective(facts: Facts) -> bool:
    numbers = facts.numbers("watchdog_timeout", "seq")
    return bool(numbers) and min(numbers) <= _FIRST_COLLECTIVES


def _never_worked(facts: Facts) -> Check | None:
    """One of the first collectives, over several nodes: the network never carried any."""
    if not (_first_collective(facts) and facts.several_nodes):
        return None
    return Check(_laggards(facts))


def _stopped(facts: Facts) -> Check | None:
    """A later collective, or one node only."""
    if _first_collective(facts) and facts.several_nodes:
        return None
    return Check(_laggards(facts))


def _silence(facts: Facts) -> Check | None:
    """Initialised, then nothing: said by a watcher, by idle power, or by the clock."""
    told = facts.has("hang_told", "busy_at_idle_power")
    waited = facts.count("shm_broadcast_wait") > 1 and not facts.recovered("shm_broadcast_wait")
    peers = facts.has("p2p_named", "busy_at_idle_power")
    quiet = facts.silent_s("nccl_init_complete", "progress")
    if quiet is None:  # something went on, so only a told hang with peers in it counts
        return Check("", 0.5) if told and peers else None
    if told or waited:
        return Check("", 0.8 if peers else 0.6)
    if quiet >= _SILENT_S:
        return Check(f"The log is silent for {quiet:.0f} s after the initialisation.", 0.65)
    return None


def _first_failing(facts: Facts) -> Check:
    """Name where the first failure was: the others only report what followed."""
    event = facts.first("nccl_internal", "nccl_proxy_crash")
    if event is None:
        return Check()
    places = [f"rank {event.rank}"] if event.rank is not None else []
    places += [f"node {event.node}"] if event.node else []
    return Check(f"The first to fail was {' on '.join(places)}." if places else "")


SIGNS = (
    Sign(
        "nccl_shm_failed",
        (
            "/dev/shm/nccl",
            "posix_fallocate failed",
            "shared memory segment",
        ),
        r"(?:[Ee]rror|fail\w{0,3}).{0,40}(?:creat|extend|open|attach)\w{0,4}.{0,30}"
        r"(?:shared memory segment|/dev/shm/nccl)|posix_fallocate failed",
    ),
    Sign(
        "watchdog_timeout",
        (
            "collective operation timeout",
            "timeout at nccl work: ",
            "failed to pass monitoredbarrier",
            "heartbeat monitor timed out",
            "nccl watchdog hang",
            "watchdog got stuck",
        ),
        r"[Cc]ollective operation timeout(?:: "
        r"WorkNCCL\((?:\w{1,20}=[^,]{1,40}, ){0,3}?SeqNum=(?P<seq>\d{1,12}))?"
        r"|watchdog got stuck|NCCL watchdog hang|[Hh]eartbeat monitor timed out"
        r"|failed to pass monitoredBarrier"
        r"|Timeout at NCCL work: (?P<work>\d{1,12})",
        any_level=True,
    ),
    Sign(
        "gloo_timeout",
        (
            "application timeout caused pair closure",
            "timed out waiting ",
        ),
        r"gloo.{0,160}Timed out waiting \d{1,9}ms|Application timeout caused pair closure",
    ),
    Sign(
        "nccl_remote",
        (
            "call to recv",
            "call to send",
            "connection closed by remote peer",
            "ncclremoteerror",
            "remote process exited or there was a network error",
        ),
        r"remote process exited or there was a network error|ncclRemoteError"
        r"|Connection closed by remote peer|Call to (?:recv|send)\w{0,4}.{0,80}failed",
    ),
    Sign(
        "nccl_internal",
        (
            "internal error - please report",
            "ncclinternalerror",
        ),
        r"internal error - please report|ncclInternalError",
    ),
    Sign(
        "nccl_proxy_crash",
        (
            "] failed to execute",
            "ncclproxy",
        ),
        r"\bncclProxy\w{1,40}\(\)|\[Proxy Service.{0,20}\] Failed to execute",
    ),
    Sign(
        "nccl_system",
        (
            "ncclsystemerror",
            "unhandled system error",
        ),
        r"unhandled system error|ncclSystemError",
        role="context",
    ),
    Sign(
        "nccl_invalid",
        (
            "nccl error",
            "ncclinvalidargument",
            "ncclinvalidusage",
        ),
        r"ncclInvalid(?:Usage|Argument)|NCCL error.{0,80}invalid (?:usage|argument)",
    ),
    Sign(
        "duplicate_gpu",
        ("duplicate gpu detected",),
        r"Duplicate GPU detected ?: rank (?P<a>\d{1,5}) and rank (?P<b>\d{1,5})",
    ),
    Sign(
        "collective_mismatch",
        ("collective",),
        r"mismatch between collectives|[Cc]ollectives? (?:calls? )?(?:do not|does not) match"
        r"|CollectiveFingerPrint",
    ),
    Sign(
        "no_interface",
        (
            "every node should have a unique ip",
            "interface",
            "unable to find address for",
        ),
        r"[Nn]o (?:usable |socket )?(?:socket )?interfaces? found"
        r"|Unable to find address for|Unable to find interface for"
        r"|[Ee]very node should have a unique IP"
        r"|[Nn]o network interface.{0,40}match",
    ),
    Sign(
        "loopback_used",
        (
            "bootstrap : using lo:127",
            "hostname",
            "using the loopback address as fallback",
        ),
        r"Using the loopback address as fallback"
        r"|[Hh]ostname.{0,60}(?:resolve[sd]? to (?:a )?loopback"
        r"|127\.\d{1,3}\.)|Bootstrap : Using lo:127",
    ),
    Sign(
        "gloo_mesh",
        ("connect",),
        r"connectFullMesh failed|[Gg]loo.{0,40}connect.{0,20}failed",
    ),
    Sign(
        "connect_failed",
        (
            "bootstrap :",
            "bootstrap.cc",
            "nccl warn",
            "ncclsocket",
            "net/socket",
            "socketpollconnect",
            "socketstartconnect",
        ),
        r"(?:socketStartConnect|socketPollConnect|ncclSocket\w{1,30}|NET/Socket"
        r"|bootstrap\.cc|Bootstrap :).{0,120}"
        r"(?:Connection refused|No route to host|timed out|Network is unreachable|failed)"
        r"|NCCL WARN.{0,60}[Cc]onnect.{0,80}(?:refused|No route|timed out|unreachable)",
    ),
    Sign(
        "store_timeout",
        (
            " clients joined",
            " seconds waiting for clients",
            "client socket has failed to connect",
            "client socket has timed out",
            "distnetworkerror",
            "wait timeout after ",
        ),
        r"client socket has (?:timed out|failed to connect)"
        r"|Timed out after \d{1,6} seconds waiting for clients"
        r"|\d{1,4}/\d{1,4} clients joined|DistNetworkError.{0,160}(?:timed out|failed to connect)"
        r"|[Ww]ait timeout after \d{1,9} ?ms",
    ),
    Sign(
        "gloo_peer_closed",
        (
            "connection closed by peer",
            "connection reset by peer",
        ),
        r"(?:gloo|pair\.cc|transport/tcp).{0,120}(?:Connection closed by peer"
        r"|Connection reset by peer)"
        r"|Connection closed by peer \[",
        role="symptom",
        title="a peer closed its connection: it ended first, look at its log",
        collect="the log of the peer whose address is in the line",
    ),
    Sign(
        "graph_capture",
        ("capture cuda",),
        r"[Cc]apture (?:cuda|CUDA) ?graph failed",
        role="symptom",
        title="CUDA graph capture failed; its advice does not apply when a collective failed "
        "inside it",
    ),
    Sign(
        "nccl_init_complete",
        (
            " is using nccl",
            "connected all rings",
            "connected all trees",
            "init complete",
            "ncclcomminitrank",
        ),
        r"Connected all (?:rings|trees)|(?:vLLM|sglang) is using nccl"
        r"|Init COMPLETE|ncclCommInitRank.{0,160}Init COMPLETE",
        role="context",
    ),
    Sign(
        "p2p_named",
        (
            "-p2p ",
            "access",
            "custom",
            "oneshot all",
            "p2p/cumem",
            "p2p/direct",
            "p2p/indirect",
            "p2p/ipc",
            "p2p_disable",
            "pcie p2p",
            "to-peer",
            "via p2p",
        ),
        r"via P2P|P2P/(?:IPC|direct|CUMEM|indirect)|-p2p |P2P_DISABLE"
        r"|P2P access|PCIe P2P|[Oo]neshot all-?reduce"
        r"|custom_?\s?all_?reduce|peer[- ](?:to-peer|access)",
        role="context",
    ),
    Sign(
        "hang_told",
        (
            "freezes",
            "hangs",
            "hung at",
            "hung for",
            "hung in",
            "hung on",
            "is hanging",
            "never returns",
            "no further log",
            "no further output",
            "stuck",
        ),
        r"\b(?:hangs|hung (?:on|at|for|in)|is hanging|freezes"
        r"|never returns)\b|\bstuck\b(?! for \d{1,6}s! \[)|no further (?:output|log)",
        role="context",
    ),
    Sign(
        "busy_at_idle_power",
        ("utili",),
        r"100 ?%.{0,60}utili\w{0,10}.{0,40}(?:idle power|\d{2,3} ?W)"
        r"|utili\w{0,10}.{0,30}100 ?%.{0,40}idle",
        role="context",
    ),
    Sign(
        "progress",
        (
            " batch",
            " weight",
            "200 ok",
            "application startup complete",
            "avg bus bandwidth",
            "fired up",
            "graph captur",
            "init engine",
            "kv cache size",
            "model loading took",
            "out of bounds values : 0",
            "starting vllm",
            "throughput",
        ),
        r"Load(?:ing)? weights?\b|Model loading took|[Gg]raph captur|KV cache size"
        r"|Starting vLLM|throughput"
        r"|200 OK|Application startup complete|(?:Prefill|Decode) batch|init engine|fired up"
        r"|Avg bus bandwidth|Out of bounds values : 0",
        role="context",
    ),
    Sign(
        "several_nodes",
        (
            "multi",
            "nnode",
            "remote_subscribe_addr='tcp",
            "spans across nodes",
        ),
        r"spans across nodes|--?nnodes[ =](?:[2-9]|\d\d)|\bn[Nn]odes?[ =:]{1,2}(?:[2-9]|\d\d)\b"
        r"|remote_subscribe_addr='tcp|multi-?node",
        role="context",
    ),
    Sign(
        "world_size",
        (
            "nranks",
            "parallel",
            "world",
        ),
        r"(?:world[ _]size|n[Rr]anks|tensor[-_]parallel[-_]size)[ =:'\"]{1,4}(?P<size>\d{1,5})\b",
        role="context",
    ),
    Sign(
        "nccl_warning",
        ("nccl warn",),
        r"NCCL WARN",
        role="symptom",
        title="NCCL warned of something whose cause is not known",
        collect="NCCL_DEBUG=INFO of the same rank",
        passing=True,
    ),
    Sign(
        "client_name_unknown",
        ("hostname of the client socket cannot be retrieved",),
        r"hostname of the client socket cannot be retrieved",
        role="noise",
    ),
    Sign(
        "nccl_advice",
        ("missing ",),
        r"Missing .{0,2}iommu=pt",
        role="noise",
    ),
    Sign(
        "nccl_plugin_probe",
        (
            "/plugin",
            "could not find: libnccl",
            "failed to find ncclcollnet",
            "failed to find ncclnet",
            "failed to find ncclprofiler",
            "failed to find nccltuner",
            "failed to open libibverbs",
            "no plugin found",
        ),
        r"Failed to find (?:ncclNet|ncclCollNet|ncclTuner|ncclProfiler)|No plugin found|(?:NET"
        r"|TUNER|PROFILER|NVLS)"
        r"/Plugin|Could not find: libnccl|Failed to open libibverbs",
        role="noise",
    ),
)

CAUSES = (
    Cause(
        id="nccl_shm_too_small",
        kind="nccl_shm",
        sentence="NCCL could not create its segment in /dev/shm: the "
        "container's shared memory is too "
        "small.",
        remedy="Start the container with --shm-size=16g or --ipc=host; in Kubernetes mount an "
        "emptyDir with medium: Memory at /dev/shm.",
        will_not_help=(
            ("more GPU memory", "the segment is host memory"),
            ("NCCL_DEBUG=INFO", "the line above has named the reason already"),
            _LONGER,
        ),
        collect=("df -h /dev/shm inside the container",),
        confidence=0.95,
        reference="vllm-project/vllm#4383",
        depth=84,
        any=("nccl_shm_failed",),
        explains=("nccl_system_error", "shm_full", "disk_full"),
    ),
    Cause(
        id="collective_never_worked",
        kind="nccl_timeout",
        sentence="One of the first collectives between the nodes timed out: "
        "the network or the NCCL "
        "transport between them never worked.",
        remedy="Set NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME and NCCL_IB_HCA "
        "on every node; test with "
        "all_reduce_perf over the same nodes; open the ports between them.",
        will_not_help=(_LONGER, _GRAPH, ("a smaller memory fraction", "no memory is involved")),
        collect=(
            "NCCL_DEBUG=INFO of one rank a node",
            "ip addr of every node",
            "all_reduce_perf over both nodes",
        ),
        confidence=0.75,
        reference="sgl-project/sglang#3254",
        depth=34,
        any=("watchdog_timeout",),
        check=_never_worked,
        explains=("rendezvous_timeout", "nccl_remote_died"),
    ),
    Cause(
        id="collective_stopped",
        kind="nccl_timeout",
        sentence="A collective timed out in the middle of service: a peer "
        "stopped (hang, crash or a "
        "slow link) and the watchdog ended this process.",
        remedy="Find the rank that did not report, and what it did then: py-spy dump, its own log, "
        "the kernel's log of its node. Set TORCH_NCCL_TRACE_BUFFER_SIZE for the next time.",
        will_not_help=(
            _LONGER,
            _GRAPH,
            ("restarting only this rank", "the group is broken for all"),
        ),
        collect=(
            "the logs of all ranks, above all of the one that is silent",
            "py-spy dump of every worker while it hangs",
            "journalctl -k of its node",
        ),
        confidence=0.65,
        reference="vllm-project/vllm#13535",
        depth=33,
        any=("watchdog_timeout",),
        check=_stopped,
        explains=("nccl_remote_died",),
    ),
    Cause(
        id="peer_to_peer_hang",
        kind="p2p_hang",
        sentence="NCCL initialised and then nothing more came: the first "
        "collective hangs, most often "
        "because peer-to-peer writes over PCIe are dropped (IOMMU, ACS).",
        remedy="Try NCCL_P2P_DISABLE=1 and --disable-custom-all-reduce; if that runs, set iommu=pt "
        "and "
        "disable ACS in the BIOS, then take the work-around out again.",
        will_not_help=(
            _LONGER,
            ("«OK» in nvidia-smi topo -p2p", "it reports the capability, not that data arrives"),
            ("a full GPU utilisation", "a kernel that waits counts as busy; look at the power"),
        ),
        collect=(
            "nvidia-smi (power beside utilisation)",
            "lspci -vvv | grep ACSCtl",
            "all_reduce_perf -g 2 with and without NCCL_P2P_DISABLE=1",
        ),
        confidence=0.7,
        reference="local-inference-lab/rtx6kpro#15",
        depth=32,
        any=("nccl_init_complete",),
        none=("watchdog_timeout",),
        check=_silence,
        explains=("worker_unresponsive",),
    ),
    Cause(
        id="nccl_internal_failure",
        kind="nccl_remote",
        sentence="One rank failed inside NCCL and the others lost it: blame the first that failed, "
        "often because NCCL's version or environment differs between nodes.",
        remedy="Compare NCCL's version and NCCL_* variables over all nodes; read the first failing "
        "rank's log with NCCL_DEBUG=INFO.",
        will_not_help=(_LONGER, ("reading the other ranks first", "they only report the loss")),
        collect=(
            "NCCL_DEBUG=INFO of the first failing rank",
            "NCCL version on each node",
            "env | grep NCCL on each node",
        ),
        confidence=0.65,
        reference="vllm-project/vllm#6106",
        depth=37,
        any=("nccl_internal", "nccl_proxy_crash"),
        check=_first_failing,
        explains=("nccl_remote_died", "nccl_system_error"),
    ),
    Cause(
        id="nccl_remote_died",
        kind="nccl_remote",
        sentence="A peer ended or its network broke: this rank only reports the loss.",
        remedy="Find the peer that failed first, by time, and read its log.",
        will_not_help=(_LONGER, ("settings of this rank", "the fault is at the peer")),
        collect=(
            "the logs of all ranks around the first error",
            "the kernel's log of the peer's node",
        ),
        confidence=0.5,
        reference="vllm-project/vllm#6106",
        depth=22,
        any=("nccl_remote",),
        role="symptom",
    ),
    Cause(
        id="duplicate_gpu",
        kind="rank_mismatch",
        sentence="Two ranks were given the same GPU.",
        remedy="Give each rank its own CUDA_VISIBLE_DEVICES or local rank; check the launcher.",
        will_not_help=(_LONGER, ("a larger GPU", "NCCL refuses two ranks on one device")),
        collect=("CUDA_VISIBLE_DEVICES and the local rank of every process",),
        confidence=0.95,
        reference=_DOC,
        depth=77,
        any=("duplicate_gpu",),
        explains=("nccl_invalid_usage",),
    ),
    Cause(
        id="collective_mismatch",
        kind="rank_mismatch",
        sentence="The ranks call different collectives: their settings or "
        "their inputs have drifted "
        "apart.",
        remedy="Start all ranks with the same arguments and version; look for a branch that only "
        "some ranks take.",
        will_not_help=(_LONGER,),
        collect=("the command line of every rank", "TORCH_DISTRIBUTED_DEBUG=DETAIL output"),
        confidence=0.8,
        reference="https://docs.pytorch.org/docs/stable/distributed.html",
        depth=48,
        any=("collective_mismatch",),
        explains=("collective_stopped", "collective_never_worked"),
    ),
    Cause(
        id="nccl_invalid_usage",
        kind="nccl_invalid_usage",
        sentence="NCCL was called with arguments it refuses: usually ranks or devices that do not "
        "fit together.",
        remedy="Run with NCCL_DEBUG=WARN: the line before the error names the argument.",
        will_not_help=(_LONGER,),
        collect=("NCCL_DEBUG=WARN output of all ranks",),
        confidence=0.6,
        reference=_DOC,
        depth=28,
        any=("nccl_invalid",),
    ),
    Cause(
        id="wrong_interface",
        kind="socket_ifname",
        sentence="Gloo or NCCL bound to the loopback or found no interface: the variables were not "
        "set on every node, or name an interface that is not there.",
        remedy="Set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME (and VLLM_HOST_IP) on EVERY node, "
        "before "
        "ray start; make the host's name resolve to its real address.",
        will_not_help=(
            ("setting them on the head only", "workers inherit from the daemon of their own node"),
            _LONGER,
        ),
        collect=("ip addr and /etc/hosts of every node", "env of the workers (grep SOCKET_IFNAME)"),
        confidence=0.85,
        reference="vllm-project/vllm#7074",
        depth=52,
        any=("loopback_used", "gloo_mesh", "no_interface"),
        explains=(
            "connect_refused",
            "rendezvous_timeout",
            "collective_never_worked",
            "nccl_remote_died",
        ),
    ),
    Cause(
        id="connect_refused",
        kind="nccl_connect",
        sentence="A rank cannot open its connection to another: a firewall, a "
        "wrong interface, or a "
        "peer that ended.",
        remedy="Check that the address in the line is the one meant; open all ports between the "
        "nodes; set NCCL_SOCKET_IFNAME on every node.",
        will_not_help=(_LONGER,),
        collect=(
            "ip addr of both nodes",
            "nc -vz ADDRESS PORT from the other node",
            "NCCL_DEBUG=INFO of both ranks",
        ),
        confidence=0.7,
        reference=_DOC,
        depth=42,
        any=("connect_failed",),
        explains=("nccl_system_error", "nccl_remote_died"),
    ),
    Cause(
        id="rendezvous_timeout",
        kind="rendezvous",
        sentence="The ranks never met: the rendezvous (TCPStore or Gloo) timed out, because a node "
        "did "
        "not start, has another address, or is blocked by a firewall.",
        remedy="Check that every node was started with the same master "
        "address, port and size; open "
        "the port; read the log of the node that is missing.",
        will_not_help=(("longer rendezvous time-outs", "a node that was not started never joins"),),
        collect=("the launch command and log of every node", "nc -vz MASTER PORT from each node"),
        confidence=0.7,
        reference="https://docs.pytorch.org/docs/stable/distributed.html",
        depth=36,
        any=("store_timeout", "gloo_timeout"),
        none=("watchdog_timeout",),
    ),
    Cause(
        id="nccl_system_error",
        kind="nccl_system_error",
        sentence="NCCL met an unhandled system error and the log does not say "
        "which: separate IPC or "
        "/dev/shm namespaces of containers on one host, or its network settings, are the "
        "usual ones.",
        remedy="Run again with NCCL_DEBUG=INFO; for containers on one host use --ipc=host and a "
        "large "
        "--shm-size; check NCCL_* variables.",
        will_not_help=(_LONGER, ("more GPU memory", "no GPU memory is involved")),
        collect=(
            "NCCL_DEBUG=INFO of all ranks",
            "how the containers were started (ipc, shm, network)",
        ),
        confidence=0.45,
        reference="vllm-project/vllm#14093",
        depth=21,
        any=("nccl_system",),
        none=("nccl_shm_failed",),
    ),
)

FAMILY = Family("collectives", "NCCL and Gloo", SIGNS, CAUSES)
