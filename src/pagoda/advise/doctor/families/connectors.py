"""vLLM's own offloading connector: a CPU tier that is full, and what then breaks."""

from __future__ import annotations

from ..facts import Facts
from ..model import Cause, Check, Family, Sign


def _crashed(facts: Facts) -> Check | None:
    """A full tier with an exception behind it; either alone is another matter."""
    broke = facts.has("offload_trace", "engine_dead", "index_error")
    return Check() if broke else None


SIGNS = (
    Sign(
        "offload_full",
        (" store block",),
        r"(?:[Cc]annot|[Uu]nable to|[Ff]ailed to) store blocks?",
    ),
    Sign(
        "offload_trace",
        (
            "kv_offload",
            "offloading/scheduler",
            "offloading/worker",
            "offloading_connector",
            "simple_cpu_offload",
        ),
        r"(?:File \".{0,200}|\()?(?:kv_offload|offloading_connector|offloading/(?:scheduler"
        r"|worker)|simple_cpu_offload)"
        r"\S{0,60}\.py\"?,? (?:line )?:?\d{1,6}",
        role="context",
    ),
    Sign(
        "offload_transfer",
        (
            "') transfer",
            "cumemcpybatchasync failed",
            "swap_blocks(",
        ),
        r"Exception in \('(?:CPU|GPU)', '(?:CPU|GPU)'\) transfer|swap_blocks\("
        r"|cuMemcpyBatchAsync failed",
    ),
    Sign(
        "offload_named",
        ("offloading",),
        r"OffloadingConnector|kv[-_]offloading|offloading_connector",
        role="context",
    ),
    Sign(
        "index_error",
        ("indexerror: list index out of range",),
        r"IndexError: list index out of range",
        role="context",
    ),
    Sign("assertion", ("assertionerror",), r"AssertionError", role="context"),
    Sign(
        "swap_too_large",
        (
            "available ",
            "too large swap space",
        ),
        r"Too large swap space|(?:cpu|CPU|host).{0,40}(?:exceeds"
        r"|more than) (?:the )?available (?:CPU |host )?memory",
    ),
    Sign(
        "load_failure",
        (
            "failed to load kv",
            "invalid kv blocks",
            "load fail",
        ),
        r"KV (?:cache )?load fail|[Ff]ailed to load KV|invalid KV blocks",
    ),
)

CAUSES = (
    Cause(
        id="offload_crash_when_full",
        kind="kv_offload",
        sentence="The CPU tier of the offloading connector was full («cannot store» alone is "
        "harmless) "
        "and the connector then broke under pressure.",
        remedy="Give it more CPU blocks so that the tier does not fill, or upgrade vLLM; switch "
        "offloading off until then.",
        will_not_help=(
            ("a restart", "the tier fills again at the same load"),
            ("more GPU blocks alone", "the CPU side is what ran full"),
        ),
        collect=("number and size of CPU blocks", "the trace of the exception", "vLLM's version"),
        confidence=0.8,
        reference="vllm-project/vllm#26329",
        depth=45,
        any=("offload_full",),
        check=_crashed,
        explains=("offload_bug",),
    ),
    Cause(
        id="offload_full",
        kind="kv_offload",
        sentence="Information only: the CPU tier is full, so some blocks are "
        "not stored. Serving goes "
        "on; hits are lost.",
        remedy="Add CPU blocks if the hit rate matters.",
        will_not_help=(("a restart", "the tier fills again"),),
        collect=("hit rate of the external cache", "number of CPU blocks"),
        confidence=0.6,
        reference="vllm-project/vllm#26329",
        depth=6,
        any=("offload_full",),
        check=lambda facts: None if _crashed(facts) else Check(),
    ),
    Cause(
        id="offload_bug",
        kind="kv_offload",
        sentence="The engine ended inside the KV offloading connector: a "
        "fault of the connector for "
        "this model or load, often with hybrid layers or unequal block sizes.",
        remedy="Upgrade vLLM, or switch KV offloading off for this model; "
        "check that its block size "
        "is a multiple of the GPU's.",
        will_not_help=(
            ("more CPU memory", "an assertion of the bookkeeping failed, not an allocation"),
            ("NCCL settings", "no collective is involved"),
        ),
        collect=("the trace", "vLLM's version", "block sizes and whether the model is hybrid"),
        confidence=0.75,
        reference="vllm-project/vllm#43884",
        depth=44,
        any=("offload_trace", "offload_transfer"),
        check=lambda facts: (
            Check()
            if facts.has("offload_transfer")
            or (
                facts.has("offload_trace")
                and facts.has("assertion", "engine_dead", "index_error", "traceback")
            )
            else None
        ),
    ),
    Cause(
        id="swap_space_too_large",
        kind="pinned",
        sentence="The host pool asked for is larger than the host's memory allows.",
        remedy="Lower the pool per rank: it is multiplied by the number of ranks.",
        will_not_help=(("lower gpu_memory_utilization", "the memory is the host's"),),
        collect=("free -g", "pool size × ranks"),
        confidence=0.85,
        reference="https://docs.vllm.ai/en/latest/configuration/conserving_memory.html",
        depth=65,
        any=("swap_too_large",),
    ),
    Cause(
        id="kv_load_failed",
        kind="kv_transfer",
        sentence="A connector could not load KV that the scheduler had "
        "counted on; the requests are "
        "recomputed or fail, by the policy for load failures.",
        remedy="Find why the source lost the blocks (evicted, restarted, unreachable); prefer the "
        "policy recompute.",
        will_not_help=(("longer client time-outs", "the blocks do not come back"),),
        collect=("the source's log at that time", "the connector's own errors"),
        confidence=0.6,
        reference="vllm-project/vllm#19329",
        depth=40,
        any=("load_failure",),
    ),
)

FAMILY = Family("connectors", "vLLM's offloading connector", SIGNS, CAUSES)
