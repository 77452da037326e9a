"""KV transfer between engines: NIXL, UCX, Mooncake, prefill and decode."""

from __future__ import annotations

from ..facts import Facts
from ..model import Cause, Check, Family, Sign


def _ucx_crash(facts: Facts) -> Check | None:
    """A crash counts for UCX only when a frame of it is in the same trace."""
    return Check() if facts.has("segfault") and facts.has("ucx_frame") else None


def _stuck(facts: Facts) -> Check | None:
    """Waiting is normal for a moment: only many repeats, or a time-out, make it a fault."""
    if facts.has("remote_kv_timeout"):
        return Check()
    return Check("", 0.55) if facts.count("remote_kv_waiting") >= 20 else None


SIGNS = (
    Sign(
        "nixl_wrong_peer",
        (
            "agent name mismatch",
            "engine id mismatch",
        ),
        r"engine ID mismatch|agent name mismatch",
    ),
    Sign(
        "nixl_incompatible",
        (
            "compatibility hash mismatch",
            "incompatible kv",
            "incompatible nixl",
        ),
        r"compatibility hash mismatch|[Ii]ncompatible (?:KV|NIXL|nixl)",
    ),
    Sign(
        "nixl_handshake",
        ("handshake",),
        r"[Hh]andshake(?:_setup)?[ _](?:failed|timed out)|[Hh]andshake with \S{1,80} failed",
    ),
    Sign(
        "nixl_error",
        (
            "nixl transfer failure",
            "nixl_err_",
            "nixlbackend",
            "nixlinvalidparam",
            "nixlnotfound",
            "nixlremotedisconnect",
        ),
        r"NIXL_ERR_(?P<code>\w{1,40})|nixl(?:Backend|RemoteDisconnect|NotFound"
        r"|InvalidParam)\w{0,10}Error"
        r"|NIXL transfer failure",
    ),
    Sign(
        "kv_expired",
        ("expired",),
        r"[Rr]eleasing expired KV|expired.{0,40}(?:KV|request).{0,60}(?:never|not) (?:retrieved"
        r"|pulled|read)",
    ),
    Sign(
        "ucx_frame",
        (
            "libnixl",
            "libplugin_ucx",
            "libuc",
            "nixl.libs",
            "nixlucx",
        ),
        r"libuc[pst]\b|libuc[pst]-|libplugin_UCX|nixlUcx|nixl\.libs|libnixl",
        role="context",
    ),
    Sign(
        "ucx_error",
        (
            "' are not available",
            "error",
            "ucs_err_",
        ),
        r"UCX\s{1,4}ERROR|UCS_ERR_\w{1,40}|transports '.{1,80}' are not available",
    ),
    Sign(
        "remote_kv_waiting",
        (
            "waiting for remote kv",
            "waiting_for_remote_kv",
        ),
        r"WAITING_FOR_REMOTE_KVS?|[Ww]aiting for remote KV",
        role="context",
    ),
    Sign(
        "remote_kv_timeout",
        (
            "kvpoll.bootstrapping",
            "kvpoll.waitingforinput",
            "pulling kv_caches",
            "timed out",
            "timeout waiting for p side",
            "waiting for remote kv",
            "waiting_for_remote_kv",
        ),
        r"[Tt]imeout waiting for P side|(?:[Ww]aiting for remote KV"
        r"|WAITING_FOR_REMOTE_KVS?).{0,80}(?:time|exceed|expired)"
        r"|pulling kv_caches.{0,80}failed|KVPoll\.(?:Bootstrapping|WaitingForInput)"
        r"|timed out.{0,40}KVPoll",
    ),
    Sign(
        "pd_failed",
        (
            " bootstrap",
            " handshake",
            " transfer",
            "failed to get kvcache from prefill",
            "kvtransfererror",
            "lost connection with prefill",
            "transfer failed",
        ),
        r"KVTransferError|(?:Decode|Prefill) (?:transfer|bootstrap|handshake) failed"
        r"|[Ll]ost connection with prefill"
        r"|[Ff]ailed to get kvcache from prefill|[Ff]ailed to transfer KV"
        r"|KV (?:cache )?transfer failed",
    ),
    Sign(
        "mooncake_connect",
        (
            "duplicate rpc_meta",
            "failed to connect",
            "failed to find",
            "failed to init",
            "failed to open",
            "failed to register",
            "failed to retrieve",
            "failed to setup",
            "metadata not found",
            "segment descriptor ",
            "sockethandshakeplugin: connect",
            "rpc_fail",
            "storageplugin: ",
            "timed out",
            "transfer failed",
            "transfer_fail",
        ),
        r"\bRPC_FAIL\b|Transfer \d{1,20} timed out.{0,60}segment"
        r"|[Ff]ailed to (?:open|connect to|retrieve|find) (?:remote )?segment"
        r"|[Mm]etadata not found|Duplicate rpc_meta"
        r"|Segment descriptor \d{1,20} not found|[Ff]ailed to connect to (?:target|metadata|master)"
        r"|[Mm]ooncake.{0,60}(?:transfer failed|[Ff]ailed to (?:init|connect|setup|register))"
        r"|TRANSFER_FAIL|SocketHandShakePlugin: connect"
        r"|(?:Http|Etcd|Redis)StoragePlugin: .{0,200}(?:failed|unable|error)",
    ),
    Sign(
        "mooncake_full",
        (
            "available",
            "error_code=-200",
            "insufficient space",
            "insufficient_space",
        ),
        r"NO_AVAILABLE_HANDLE|no[_ ]available[_ ]handle|error_code=-200\b|insufficient space"
        r"|INSUFFICIENT_SPACE",
    ),
    Sign(
        "mooncake_overlap",
        (
            "does not support overlapped memory region",
            "failed to register memory",
            "registerlocalmemory",
        ),
        r"does not support overlapped memory region|[Ff]ailed to register memory"
        r"|registerLocalMemory.{0,40}fail",
    ),
)

CAUSES = (
    Cause(
        id="nixl_wrong_agent",
        kind="kv_transfer",
        sentence="The decode side reached the wrong NIXL agent, usually its own host, because the "
        "side "
        "channel's address was not set. It then computes every prompt again, silently.",
        remedy="Set VLLM_NIXL_SIDE_CHANNEL_HOST to an address that the other nodes can reach, on "
        "every "
        "node, and a port of its own per engine.",
        will_not_help=(
            ("restarting the decode side", "it asks the same wrong address again"),
            ("longer time-outs", "the wrong agent answers at once"),
        ),
        collect=("env | grep NIXL on both sides", "the proxy's kv_transfer_params"),
        confidence=0.9,
        reference="vllm-project/vllm#27083",
        depth=51,
        any=("nixl_wrong_peer",),
        explains=("nixl_handshake_failed", "nixl_transfer_failed", "kv_load_failed"),
    ),
    Cause(
        id="nixl_incompatible",
        kind="kv_transfer",
        sentence="Prefill and decode do not store KV in the same way: version, model, dtype, block "
        "size or layout differ.",
        remedy="Use the same image, model revision, KV dtype, block size and attention backend on "
        "both "
        "sides.",
        will_not_help=(("a retry", "the compared values do not change"),),
        collect=("the full start-up lines of both sides",),
        confidence=0.85,
        reference="vllm-project/vllm#33745",
        depth=52,
        any=("nixl_incompatible",),
        explains=("nixl_handshake_failed", "nixl_transfer_failed", "kv_load_failed"),
    ),
    Cause(
        id="ucx_crash",
        kind="kv_transfer",
        sentence="A process crashed inside the UCX library that NIXL brings "
        "along: its build does not "
        "fit the other UCX, the driver or the network of this host.",
        remedy="Install nixl and UCX of one build; remove other UCX "
        "libraries from LD_LIBRARY_PATH; "
        "try UCX_TLS without the transport in the trace; another transfer backend is the control.",
        will_not_help=(
            ("model or engine flags", "the trace ends in a native network library"),
            ("more memory", "the address was mapped without permission, memory was not missing"),
        ),
        collect=("the native backtrace", "ucx_info -v", "pip list | grep -i nixl"),
        confidence=0.75,
        reference="sgl-project/sglang#6694",
        depth=56,
        any=("ucx_frame",),
        every=("segfault",),
        check=_ucx_crash,
    ),
    Cause(
        id="nixl_handshake_failed",
        kind="kv_transfer",
        sentence="The handshake between prefill and decode failed.",
        remedy="Check that the side channel's address and port can be reached; use equal tensor "
        "parallel sizes to test; look at the other side's log for its reason.",
        will_not_help=(
            ("longer client time-outs", "each new request shakes hands and fails again"),
        ),
        collect=("both sides' logs of the same second", "parallel sizes of both sides"),
        confidence=0.65,
        reference="vllm-project/vllm#50765",
        depth=43,
        any=("nixl_handshake",),
        explains=("nixl_transfer_failed", "kv_load_failed"),
    ),
    Cause(
        id="nixl_transfer_failed",
        kind="kv_transfer",
        sentence="A NIXL transfer failed: the peer went away, or the backend (UCX) cannot use the "
        "path between the two nodes.",
        remedy="See whether the peer restarted; test UCX alone with ucx_perftest; restart both "
        "sides "
        "after a disconnect: agents do not reconnect by themselves.",
        will_not_help=(("restarting one side only", "the other keeps the dead agent"),),
        collect=("both sides' logs", "UCX_LOG_LEVEL=info output", "ucx_info -d"),
        confidence=0.7,
        reference="ai-dynamo/nixl#1614",
        depth=42,
        any=("nixl_error", "ucx_error"),
        explains=("kv_load_failed", "kv_never_fetched"),
    ),
    Cause(
        id="remote_kv_never_came",
        kind="kv_transfer",
        sentence="Requests wait for KV from another engine that never comes.",
        remedy="Look at the sender: did it finish, restart, or drop the blocks? Set a time-out on "
        "the "
        "connector so that such requests are recomputed; upgrade it.",
        will_not_help=(
            ("more GPU blocks", "the requests wait for a message, not for memory"),
            ("a healthy engine elsewhere", "other requests run while these are parked"),
        ),
        collect=("the sender's log for the same request", "how many requests wait, over time"),
        confidence=0.7,
        reference="vllm-project/vllm#50719",
        depth=35,
        any=("remote_kv_timeout", "remote_kv_waiting"),
        check=_stuck,
        none=("nixl_wrong_peer", "nixl_handshake", "nixl_error"),
    ),
    Cause(
        id="prefill_decode_broken",
        kind="kv_transfer",
        sentence="KV did not get from the prefill to the decode engine: the "
        "transfer or its bootstrap "
        "failed, or the prefill engine ended.",
        remedy="Read the prefill engine's log first; check the bootstrap address and the RDMA "
        "devices given; compare parallel sizes.",
        will_not_help=(("longer decode time-outs", "the sender has given up already"),),
        collect=("both engines' logs of the same request", "the device list and addresses"),
        confidence=0.65,
        reference="sgl-project/sglang#10560",
        depth=36,
        any=("pd_failed",),
        explains=("kv_load_failed", "remote_kv_never_came"),
    ),
    Cause(
        id="mooncake_unreachable",
        kind="kv_transfer",
        sentence="Mooncake's transfer engine cannot find or reach a segment: wrong host name "
        "(localhost), a dead or restarted master, or a blocked port.",
        remedy="Give each client an address that others can reach, not localhost; check master and "
        "metadata server; remove stale entries after a restart.",
        will_not_help=(("a larger segment", "the segment is not found, it is not full"),),
        collect=(
            "the master's log",
            "MOONCAKE configuration of every node",
            "nc -vz to master and peers",
        ),
        confidence=0.75,
        reference="kvcache-ai/Mooncake#1115",
        depth=44,
        any=("mooncake_connect",),
        explains=("prefill_decode_broken", "kv_load_failed", "remote_kv_never_came"),
    ),
    Cause(
        id="kv_never_fetched",
        kind="kv_transfer",
        sentence="The prefill engine released KV that no decode engine had fetched in time: decode "
        "is overloaded, gone, or was never told.",
        remedy="Look at the decode side's log of that time; check the router's kv_transfer_params; "
        "lengthen the lease only when decode is merely slow.",
        will_not_help=(("more prefill GPUs", "they would produce more KV that nobody fetches"),),
        collect=("the decode engine's log of the same requests", "its queue length over time"),
        confidence=0.6,
        reference="llm-d/llm-d#191",
        depth=34,
        any=("kv_expired",),
    ),
    Cause(
        id="mooncake_pool_full",
        kind="kv_remote_full",
        sentence="Mooncake's pool has no room: nothing could be evicted, stores are refused.",
        remedy="Add segments or make them larger; lower leases and pins; check that evictions free "
        "something.",
        will_not_help=(("a restart of the engine", "the pool lives in the store"),),
        collect=("the master's metrics line (storage, evictions)", "lease time"),
        confidence=0.7,
        reference="kvcache-ai/Mooncake#2187",
        depth=37,
        any=("mooncake_full",),
    ),
    Cause(
        id="mooncake_registration",
        kind="kv_transfer",
        sentence="The transfer engine could not register its memory: regions overlap, or the "
        "registration was refused.",
        remedy="Register each buffer once; check memlock and the RDMA device's limits.",
        will_not_help=(("more RAM", "the region exists, it is registered twice or not allowed"),),
        collect=("the addresses in the line", "ulimit -l"),
        confidence=0.65,
        reference="sgl-project/sglang#4880",
        depth=46,
        any=("mooncake_overlap",),
    ),
)

FAMILY = Family("transfer", "KV transfer between engines", SIGNS, CAUSES)
