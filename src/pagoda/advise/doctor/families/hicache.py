"""SGLang's hierarchical cache: host pool, evictions, state slots, storage backend."""

from __future__ import annotations

from ..facts import Facts
from ..model import Cause, Check, Family, Sign


def _died(facts: Facts) -> Check | None:
    """A trace through the cache only counts when something ended there."""
    return Check() if facts.has("engine_dead", "assertion", "traceback", "exception_line") else None


SIGNS = (
    Sign(
        "hicache_evict_trace",
        (
            " line ",
            "evict_",
        ),
        r"in (?:_?evict_host|evict_regular|_?evict_\w{1,30}host\w{0,20})\b"
        r"|(?:hiradix_cache|hi_?\w{0,10}radix\w{0,20}|unified_radix_cache"
        r"|memory_pool_host)\.py\S{0,4},? line \d{1,6}"
        r",? in \w{0,20}evict",
    ),
    Sign(
        "hicache_trace",
        (
            "_radix_cache",
            "cache_controller",
            "hiradix_cache",
            "mem_cache/",
            "memory_pool_host",
            "unified_cache_components/",
        ),
        r"(?:hiradix_cache|unified_radix_cache|memory_pool_host|cache_controller"
        r"|\w{1,20}_radix_cache"
        r"|unified_cache_components/\w{1,30}|mem_cache/\w{1,40})\.py\"?,? line \d{1,6}",
        role="context",
    ),
    Sign(
        "load_back_trace",
        (
            "host_value is not none",
            "in build_hicache_transfers",
            "in commit_hicache_transfer",
            "in write_backup",
            "load_back",
        ),
        r"in (?:init_)?load_back\b|in commit_hicache_transfer|in build_hicache_transfers"
        r"|in write_backup\b"
        r"|assert .{0,40}host_value is not None",
    ),
    Sign(
        "state_slot",
        (
            "_alloc_mamba_slot",
            "mamba cache",
            "mamba pool",
            "not alloc",
            "not enough mamba",
        ),
        r"[Cc]an ?not alloc(?:ate)? (?:the )?(?:mamba|state|ssm|gdn)|_alloc_mamba_slot"
        r"|[Mm]amba (?:pool|cache) is (?:full|exhausted)"
        r"|[Nn]ot enough mamba",
    ),
    Sign(
        "hicache_no_memory",
        ("host memory",),
        r"[Nn]ot enough host memory|host memory.{0,40}(?:less than|exceeds|insufficient)",
    ),
    Sign(
        "hicache_storage",
        (
            "_io_aux",
            "_thread",
            "expected diskdescriptor",
            "hicache",
            "page_backup",
            "page_get",
            "page_set",
            "page_transfer",
            "prefetch operation",
            "storage backend",
        ),
        r"Prefetch operation.{0,80}failed|Expected DiskDescriptor"
        r"|(?:in |Exception in thread.{0,40})(?:prefetch|backup)_(?:io_aux|thread)\w{0,10}"
        r"|in _?page_(?:backup|transfer|get|set)\b"
        r"|(?:[Ss]torage backend|[Hh]i[Cc]ache\w{0,20}).{0,80}(?:fail|error|timed? ?out"
        r"|unavailable)",
    ),
)

CAUSES = (
    Cause(
        id="hicache_eviction_crash",
        kind="hicache",
        sentence="HiCache's scheduler failed when the host pool evicted: it "
        "works until the host tier "
        "is full for the first time.",
        remedy="Upgrade SGLang; until then a larger host pool (--hicache-size) only delays it, and "
        "without --enable-hierarchical-cache it does not happen.",
        will_not_help=(
            ("a restart", "it returns as soon as the host pool is full again"),
            ("--disable-cuda-graph", "the failure is in the bookkeeping on the CPU"),
        ),
        collect=(
            "the last lines of the trace",
            "SGLang's version",
            "host pool size and write policy",
        ),
        confidence=0.8,
        reference="sgl-project/sglang#23429",
        depth=49,
        any=("hicache_evict_trace",),
        check=_died,
        explains=("hicache_bug",),
    ),
    Cause(
        id="hicache_state_slots",
        kind="hicache",
        sentence="A hybrid model (Mamba, GDN) found no state slot although the pool is not full: "
        "slots "
        "cannot be evicted while nodes hold them; the scheduler ends.",
        remedy="Upgrade SGLang; give more state slots (--max-mamba-cache-size or fewer running "
        "requests); switch the radix cache off for this model as a last resort.",
        will_not_help=(
            ("more KV memory", "state slots are counted apart from KV pages"),
            ("a restart", "the same load runs out again"),
        ),
        collect=("slot counts at the failure", "SGLang's version", "max running requests"),
        confidence=0.8,
        reference="sgl-project/sglang#36770",
        depth=49,
        any=("state_slot",),
        explains=("hicache_bug", "hicache_eviction_crash"),
    ),
    Cause(
        id="hicache_bug",
        kind="hicache",
        sentence="The scheduler ended inside the hierarchical cache (load-back, write-back or its "
        "tree): a fault of this version under concurrency.",
        remedy="Upgrade SGLang; until then run without --enable-hierarchical-cache or with "
        "write_through and fewer concurrent requests.",
        will_not_help=(
            ("NCCL settings", "the other ranks only lost this one"),
            ("a larger GPU pool", "the race is between the tree and its transfers"),
        ),
        collect=("the full trace", "SGLang's version", "cache flags"),
        confidence=0.65,
        reference="sgl-project/sglang#32331",
        depth=48,
        any=("hicache_trace", "load_back_trace"),
        check=_died,
        none=("prefill_oom", "pool_leak", "cuda_oom", "illegal_access"),
    ),
    Cause(
        id="hicache_host_memory",
        kind="hicache",
        sentence="The host has less memory than the hierarchical cache asks "
        "for: its size counts per "
        "rank.",
        remedy="Lower --hicache-ratio or --hicache-size; leave 10 GB a rank free.",
        will_not_help=(("lower --mem-fraction-static alone", "the ratio is of the GPU pool"),),
        collect=("free -g", "ranks × host pool size"),
        confidence=0.85,
        reference="https://docs.sglang.ai/advanced_features/hicache.html",
        depth=66,
        any=("hicache_no_memory",),
    ),
    Cause(
        id="hicache_storage_failed",
        kind="hicache",
        sentence="HiCache's storage tier failed: a page could not be written "
        "or read, or its thread "
        "ended, after which backups queue up for ever.",
        remedy="Repair the backend (space, network, server), then restart the engine: the thread "
        "does "
        "not come back by itself.",
        will_not_help=(
            ("a larger host pool", "pages waiting for the dead thread fill it as well"),
        ),
        collect=("the storage backend's log", "the exception that ended the thread"),
        confidence=0.65,
        reference="sgl-project/sglang#38428",
        depth=47,
        any=("hicache_storage",),
        explains=("hicache_bug",),
    ),
)

FAMILY = Family("hicache", "SGLang's hierarchical cache", SIGNS, CAUSES)
